"""What a config can name: wrappers, networks, code of workers, curricula, names."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path

import gymnasium
import numpy as np
import onnxruntime
import pytest
import torch
import yaml
from small_runs import SMALL

import corral
from corral.cli.main import main
from corral.errors import CheckpointError, OptionError
from corral.learners.ppo import PPO
from corral.train.recipes.resolve import resolve
from corral.train.run.checkpoint import Checkpoint
from corral.train.run.episode_video import VideoScene
from corral.train.run.exporting import export_run
from corral.train.run.parts import build_run
from corral.train.run.start import resume
from corral.train.run.time_split import one_env
from corral.train.sinks import jsonl

CODE = '''
import corral, gymnasium, numpy as np, torch
from gymnasium import spaces
from torch import nn


class Camera(gymnasium.Env):
    """The lighter side is the action that pays."""
    observation_space = spaces.Box(0, 255, (6, 8, 1), np.uint8)
    action_space = spaces.Discrete(2)
    level = 0

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.steps = 0
        return self.seen(), {}

    def seen(self):
        self.side = int(self.np_random.integers(2))
        picture = np.zeros((6, 8, 1), np.uint8)
        picture[:, 4 * self.side : 4 * self.side + 4] = 200
        return picture

    def step(self, action):
        reward = float(action == self.side)
        self.steps += 1
        info = {"level": self.level, "task": getattr(self, "task", -1)}
        if "table" in corral.this_worker().shared:
            info["shared"] = float(corral.this_worker().shared["table"].sum())
        info["resource"] = corral.this_worker().resource or 0
        return self.seen(), reward, self.steps == 8, False, info

    def set_task(self, task):
        self.task = task


class Drawn(Camera):
    """Cannot be made without what its worker has, nor drawn without a task."""
    metadata = {"render_modes": ["rgb_array"], "render_fps": 30}

    def __init__(self, render_mode=None):
        self.render_mode = render_mode
        here = corral.this_worker()
        self.shade = here.resource + int(here.shared["table"].sum())

    def render(self):
        return np.full((4, 4, 3), 10 * self.shade + self.task, np.uint8)


class Scaled(gymnasium.RewardWrapper):
    def __init__(self, env, factor):
        super().__init__(env)
        self.factor = factor

    def reward(self, reward):
        return reward * self.factor


class Plus(gymnasium.RewardWrapper):
    def reward(self, reward):
        return reward + 1


class Halved(gymnasium.ObservationWrapper):
    """Another space."""
    def __init__(self, env):
        super().__init__(env)
        self.observation_space = spaces.Box(0, 255, (3, 4, 1), np.uint8)

    def observation(self, picture):
        return picture[::2, ::2]


class Cnn(nn.Module):
    def __init__(self, observation_space, channels=4):
        super().__init__()
        height, width, depth = observation_space.shape
        self.conv = nn.Conv2d(depth, channels, 3)
        self.width = channels * (height - 2) * (width - 2)

    def forward(self, picture):
        x = picture.permute(0, 3, 1, 2).float() / 255
        return torch.relu(self.conv(x)).flatten(1)


def whole(observation_space, action_space):
    encoder = Cnn(observation_space)
    return {
        "encoder": encoder,
        "actor": nn.Linear(encoder.width, int(action_space.n)),
        "critic": nn.Sequential(nn.Linear(encoder.width, 1), nn.Flatten(0)),
    }


def actor_too_wide(observation_space, action_space):
    return {"encoder": Flat(), "actor": nn.Linear(48, 3)}


class Flat(nn.Module):
    def forward(self, x):
        return x.flatten(1).float()


class not_flat(nn.Module):
    def forward(self, x):
        return x[:, :4].float()


def bytes_into_floats():
    return nn.Conv2d(6, 4, 1)


def wrong_size():
    return nn.Linear(7, 3)


def normed(observation_space):
    return nn.Sequential(nn.Flatten(), nn.BatchNorm1d(48), nn.Linear(48, 2))


def nothing():
    return 3


def raises():
    raise ValueError("no weights today")


def double():
    return nn.Sequential(nn.Flatten(), Floats(), nn.Linear(48, 2).double())


class Floats(nn.Module):
    def forward(self, x):
        return x.double()


def load():
    return 7


def tables():
    return {"table": np.arange(4)}


def draw(slot, episode, rng):
    return int(rng.integers(5, 9))


def harder(pool, steps):
    pool.set_attr("level", steps)


VALUE = 3
'''
CAMERA = {**SMALL, "env": "mine:Camera"}


@pytest.fixture(autouse=True)
def mine(here):
    (here / "mine.py").write_text(CODE)
    (here / "broken.py").write_text("import gymnasium\n1 / 0\n")
    yield
    for name in ("mine", "broken"):
        sys.modules.pop(name, None)


@pytest.fixture
def built():
    """Build a run's parts from settings, and close them."""
    opened = []

    def build(**settings):
        opened.append(build_run(resolve({**nested(CAMERA), **settings}, {})))
        return opened[-1]

    yield build
    for parts in opened:
        parts.close()


def nested(settings):
    values = {}
    for key, value in settings.items():
        group, _, name = key.rpartition(".")
        (values.setdefault(group, {}) if group else values)[name] = value
    return values


def infos_of(parts, rows=16):
    return [episode.info for episode in parts.collector.collect(rows).episodes]


# Wrappers -----------------------------------------------------------------------------


def test_wrappers_are_applied_in_their_order_with_their_arguments(built):
    wrappers = ["mine:Plus", {"mine:Scaled": {"factor": 10}}]
    rewards = built(wrappers=wrappers).collector.collect(4).reward
    assert set(np.unique(rewards)) <= {10.0, 20.0}
    rewards = built(wrappers=wrappers[::-1]).collector.collect(4).reward
    assert set(np.unique(rewards)) <= {1.0, 11.0}


def test_wrappers_work_in_processes_and_may_be_gymnasiums(built):
    parts = built(
        backend="process",
        workers=1,
        wrappers=[{"TimeLimit": {"max_episode_steps": 3}}, "mine:Halved"],
    )
    assert parts.pool.spec.observation_space.shape == (3, 4, 1)
    lengths = [one.length for one in parts.collector.collect(7).episodes]
    assert set(lengths) == {3}


@pytest.mark.parametrize(
    ("wrapper", "said"),
    [
        ("mine:Nothing", "wrappers[0] is 'mine:Nothing': module 'mine' has no"),
        ("no_such:Wrapper", "wrappers[0] is 'no_such:Wrapper': no module 'no_such'"),
        (
            "broken:Wrapper",
            "module 'broken' raised an error when imported: ZeroDivision",
        ),
        ("mine:VALUE", "wrappers[0] is 'mine:VALUE': that is 3, not a function"),
        ("mine:Scaled", "missing a required argument: 'factor'"),
        (
            {"mine:Scaled": {"factor": 1, "facto": 2}},
            "got an unexpected keyword argument 'facto'",
        ),
        ("TimeLimits", "gymnasium.wrappers has none of that name; near names: TimeLim"),
        ({"mine:Plus": {}, "mine:Scaled": {}}, "has 2 keys; write"),
    ],
)
def test_a_wrapper_that_cannot_be_used_is_named(built, wrapper, said):
    with pytest.raises(OptionError, match=re.escape(said)):
        built(wrappers=[wrapper])


# Networks -----------------------------------------------------------------------------


@pytest.mark.parametrize("network", ["mine:Cnn", "mine:whole"])
def test_a_network_trains_resumes_loads_and_is_exported(train, go_on, network):
    settings = {"env": "mine:Camera", "network": network, "total_steps": 384}
    settings |= {"ppo.n_epochs": 4, "ppo.lr": 0.01}
    run = train({}, settings=settings)
    scores = [
        line["eval/return"] for line in jsonl.read(run.metrics) if "eval/return" in line
    ]
    assert scores[-1] > scores[0] or scores[-1] == 8
    go_on(run.path, total_steps=416)
    policy = corral.load_policy(run.path)
    light_left = np.zeros((6, 8, 1), np.uint8)
    light_left[:, :4] = 200
    batch = np.stack([light_left, light_left[:, ::-1]])
    program, *_ = export_run(run.path)
    found = torch.export.load(program).module()(torch.from_numpy(batch))
    assert found.tolist() == policy.act(batch).tolist()


def test_a_resumed_run_with_a_network_equals_one_without_a_stop(train, here):
    settings = {"env": "mine:Camera", "network": "mine:Cnn"}
    whole = train({}, "whole", settings)
    half = train({}, "half", {**settings, "total_steps": 96})
    with resume(half.path, {"total_steps": 192}) as training:
        training.run()
    nets = [
        torch.load(one.last, weights_only=True)["learner"]["net"]
        for one in (whole, half)
    ]
    assert all(torch.equal(nets[0][name], nets[1][name]) for name in nets[0])


def test_weights_of_a_network_follow_the_seed():
    space = corral.Pool("CartPole-v1", 1, backend="serial").spec
    make = lambda: torch.nn.Linear(4, 8)  # noqa: E731
    spaces = (space.observation_space, space.action_space)
    first, same, other = (
        PPO(*spaces, seed=seed, network=make).net.encoder.module.weight
        for seed in (1, 1, 2)
    )
    assert torch.equal(first, same) and not torch.equal(first, other)


@pytest.mark.parametrize(
    ("network", "said"),
    [
        (
            "mine:not_flat",
            "network mine:not_flat: its encoder returned shape (3, 4, 8, 1); called "
            "with 3 observations of Box(0, 255, (6, 8, 1), uint8), it must return "
            "shape (3, width); end it with nn.Flatten()",
        ),
        ("mine:bytes_into_floats", "Images are bytes: begin with x.float() / 255"),
        ("mine:wrong_size", "its encoder, called with 3 observations of Box(0, 255"),
        ("mine:actor_too_wide", "its actor returned shape (3, 3); called with"),
        ("mine:normed", "its encoder has BatchNorm1d (1), with which a row depends"),
        ("mine:nothing", "network mine:nothing returned 3; it must return a torch mod"),
        ("mine:raises", "raised ValueError: no weights today"),
        ("mine:double", "its encoder is torch.float64; networks compute in float32"),
        ("mine:absent", "network is 'mine:absent': module 'mine' has no 'absent'"),
        ("broken:make", "network is 'broken:make': module 'broken' raised an error"),
        ("mine.Cnn", "network is 'mine.Cnn': write it as module:function"),
    ],
)
def test_a_network_that_does_not_fit_is_refused_at_the_start(built, network, said):
    with pytest.raises(OptionError, match=re.escape(said)):
        built(network=network)


@pytest.mark.parametrize("learner", ["sac", "td3"])
def test_learners_with_their_own_networks_refuse_others(built, learner):
    settings = {"env": "Pendulum-v1", "backend": "serial", "learner": learner}
    with pytest.raises(OptionError, match="has networks of its own"):
        build_run(resolve({**settings, "network": "mine:Cnn"}, {}))


def test_sb3_takes_features_extractors_and_refuses_other_modules(built, here):
    with pytest.raises(OptionError, match=r"derives from stable_baselines3.*Extractor"):
        built(network="mine:Cnn", learner="sb3_ppo")
    (here / "extractors.py").write_text(
        "import torch\n"
        "from stable_baselines3.common.torch_layers import BaseFeaturesExtractor\n"
        "class Flat(BaseFeaturesExtractor):\n"
        "    def __init__(self, observation_space, features_dim=5, real=5):\n"
        "        super().__init__(observation_space, features_dim)\n"
        "        self.layer = torch.nn.Linear(4, real)\n"
        "    def forward(self, x):\n"
        "        return self.layer(x)\n"
    )
    settings = {"learner": "sb3_ppo", "env": "CartPole-v1"}
    settings["network"] = "extractors:Flat"
    model = built(**settings).learner.model
    assert type(model.policy.features_extractor).__name__ == "Flat"
    with pytest.raises(
        OptionError, match=r"returned shape \(3, 6\).*features_dim is 5"
    ):
        built(**settings, network_kwargs={"real": 6})
    sys.modules.pop("extractors")


def test_arguments_for_no_network_are_refused(built):
    with pytest.raises(OptionError, match="add network: module:function"):
        built(network_kwargs={"width": 8})


def test_a_resumed_run_keeps_its_network(train, here):
    run = train({}, settings={"env": "mine:Camera", "network": "mine:Cnn"})
    with pytest.raises(OptionError, match="cannot change network from 'mine:Cnn'"):
        resume(run.path, {"network": "mine:whole"})
    (here / "mine.py").write_text(CODE.replace("channels=4", "channels=12"))
    sys.modules.pop("mine")
    with pytest.raises(CheckpointError, match="does not fit: the saved nets are not"):
        resume(run.path, {"total_steps": 400})


# Engine -------------------------------------------------------------------------------


def test_code_and_arrays_reach_the_workers(built, here):
    np.save(here / "table.npy", np.arange(3))
    options = {"per_worker": "mine:load", "sample_task": "mine:draw"}
    for shared, total in (("mine:tables", 6), ({"table": "table.npy"}, 3)):
        parts = built(**options, shared=shared, backend="process", workers=1)
        infos = infos_of(parts)
        assert {info["resource"] for info in infos} == {7}
        assert {info["shared"] for info in infos} == {total}
        assert {info["task"] for info in infos} <= {5, 6, 7, 8}


def test_code_and_arrays_reach_the_env_of_a_video_and_of_a_comparison(built):
    options = {"per_worker": "mine:load", "sample_task": "mine:draw"}
    parts = built(env="mine:Drawn", shared="mine:tables", backend="process", **options)
    assert VideoScene.of(parts, 0).record().startswith(b"GIF")
    assert one_env(parts) > 0


def test_infos_and_autoreset_follow_the_config(built):
    parts = built(infos=["level"], autoreset_mode="NextStep")
    rollout = parts.collector.collect(16)
    assert {tuple(one.info) for one in rollout.episodes} <= {("level",), ()}
    assert not rollout.valid.all()
    parts = built(infos="none", autoreset="same_step")
    rollout = parts.collector.collect(16)
    assert rollout.valid.all() and not any(one.info for one in rollout.episodes)


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"per_worker": "mine:absent"}, "per_worker is 'mine:absent': module 'mine'"),
        ({"sample_task": "draw"}, "sample_task is 'draw': write it as module:function"),
        ({"curriculum": "mine:easier"}, "curriculum is 'mine:easier': module 'mine'"),
        ({"shared": {"table": "no.npy"}}, "shared.table is 'no.npy', and no array can"),
        ({"shared": "mine:load"}, "shared is 'mine:load': it returned int; it must"),
        (
            {"autoreset": "next_step", "learner": "sb3_ppo", "env": "CartPole-v1"},
            "autoreset is 'next_step', and sb3_ppo collects by itself",
        ),
        ({"autoreset": "never"}, "autoreset is 'never'"),
        ({"device": "tpu"}, "device is 'tpu': choose cpu, cuda"),
    ],
)
def test_what_cannot_be_done_names_its_setting(built, settings, said):
    with pytest.raises(OptionError, match=re.escape(said)):
        built(**settings)


def test_a_batched_env_trains_by_config(train):
    settings = {"env": "CartPole-v1", "batched": True, "autoreset": "next_step"}
    run = train({}, settings=settings)
    assert run.read_about()["state"] == "done"


def test_a_curriculum_sees_the_steps_and_changes_the_envs(train):
    settings = {"env": "mine:Camera", "curriculum": "mine:harder"}
    run = train({}, "whole", settings)
    levels = [line["info/level"] for line in jsonl.read(run.episodes)]
    assert levels == sorted(levels) and {0, 160} <= set(levels)
    half = train({}, "half", {**settings, "total_steps": 96})
    with resume(half.path, {"total_steps": 192}) as training:
        training.run()
    assert jsonl.read(half.episodes) == jsonl.read(run.episodes)


# Names and sizes ----------------------------------------------------------------------


def test_names_that_people_type_are_accepted_flat_or_nested():
    flat = {
        **{"env_id": "CartPole-v1", "n_envs": 4, "total_timesteps": 1000},
        **{"learning_rate": 0.01, "n_steps": 8, "normalize": True, "num_workers": 1},
        **{
            "autoreset_mode": "SAME_STEP",
            "net_arch": [8],
            "normalize_advantage": False,
        },
    }
    config = resolve(flat, {})
    assert (config.num_envs, config.total_steps, config.workers) == (4, 1000, 1)
    assert config.normalise_obs and config.normalise_reward
    ppo = config.ppo
    assert (ppo.lr, ppo.n_steps, ppo.hidden) == (0.01, 8, (8,))
    assert not ppo.normalise_advantage
    nested = {"env": "CartPole-v1", "ppo": {"learning_rate": 0.01, "net_arch": [8]}}
    assert resolve(nested, {"n_steps": 8}).ppo == ppo.model_copy(
        update={"normalise_advantage": True}
    )


def test_rollout_size_is_shared_by_the_envs():
    values = {"env": "CartPole-v1", "rollout_size": 2048}
    assert resolve(values, {"num_envs": 8}).ppo.n_steps == 256
    assert resolve(values, {"num_envs": 10}).steps_per_update == 2040
    assert resolve({**values, "learner": "sac"}, {}).sac.rows == 256
    typed = resolve({**values, "ppo": {"n_steps": 256}}, {"ppo.n_steps": 16})
    assert (typed.ppo.n_steps, typed.rollout_size) == (16, None)
    with pytest.raises(OptionError, match="less than one row for each of the 8 envs"):
        resolve(values, {"rollout_size": 4})


def test_a_config_is_written_and_read_again(train):
    settings = {
        "env": "mine:Camera",
        "wrappers": [{"mine:Scaled": {"factor": 2}}, "mine:Plus"],
        "rollout_size": 33,
        "wandb": {"mode": "disabled", "tags": ["one"]},
    }
    config = resolve({**nested(SMALL), **settings}, {})
    again = yaml.safe_load(yaml.safe_dump(config.model_dump(mode="json")))
    assert resolve(again, {}) == config
    assert config.ppo.n_steps == 16


def test_a_module_that_is_broken_is_told_on_the_command_line(capsys):
    Path("bad.yaml").write_text("env: broken:make\n")
    assert main(["train", "bad.yaml"]) == 2
    said = capsys.readouterr().err
    assert "module 'broken' raised an error when imported: ZeroDivisionError" in said
    assert "broken.py, line 2" in said


def test_a_window_that_cannot_be_shown_is_refused(built, capsys, monkeypatch):
    Path("mine.yaml").write_text("env: mine:Camera\n")
    for source, shown in (("cartpole", "recipe cartpole"), ("mine.yaml", "mine.yaml")):
        assert main(["train", source, "--render"]) == 2
        assert f"--render: {shown} has no window" in capsys.readouterr().err
    for name in ("DISPLAY", "WAYLAND_DISPLAY", "SDL_VIDEODRIVER"):
        monkeypatch.delenv(name, raising=False)
    said = r"env_kwargs\.render_mode: human opens a window, and there is no display"
    with pytest.raises(OptionError, match=said):
        built(env="CartPole-v1", env_kwargs={"render_mode": "human"})


# Spaces -------------------------------------------------------------------------------


def test_text_is_learnt_from(train, here):
    (here / "words.py").write_text(WORDS)
    settings = {"env": "words:Order", "total_steps": 1536, "ppo.lr": 0.01}
    run = train({}, settings={**settings, "ppo.n_epochs": 6})
    policy = corral.load_policy(run.path)
    assert policy.act({"word": "left", "sum": np.zeros(1)}) == 0
    assert policy.act({"word": "go", "sum": np.zeros(1)}) == 1
    *_, about = export_run(run.path)  # and compared with the policy
    known = json.loads(about.read_text())["characters"]["word"]
    session = onnxruntime.InferenceSession(run.path / "export/policy.onnx")
    codes = np.zeros((1, 6), np.int64)
    codes[0, :4] = [known.index(one) + 1 for one in "left"]
    given = {"word": codes, "sum": np.zeros((1, 1), np.float32)}
    assert session.run(["action"], given)[0] == 0
    sys.modules.pop("words")


def test_other_spaces_are_refused_with_a_wrapper_to_write(built, here):
    (here / "words.py").write_text(WORDS)
    said = r"observation is Sequence.*such as a Box for the longest sequence, filled up"
    with pytest.raises(corral.errors.SpaceMismatch, match=said):
        built(env="words:Some")
    values = {"env": "words:Order", "backend": "serial", "learner": "sac"}
    with pytest.raises(corral.errors.SpaceMismatch, match=r"a text; SAC and TD3 take"):
        build_run(resolve(values, {}))
    sys.modules.pop("words")


WORDS = """
import gymnasium, numpy as np
from gymnasium import spaces

class Order(gymnasium.Env):
    observation_space = spaces.Dict(
        word=spaces.Text(6, charset="eflgot"), sum=spaces.Box(0, 9, (1,))
    )
    action_space = spaces.Discrete(2)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.steps = 0
        return self.seen(), {}

    def seen(self):
        self.word = ("left", "go")[self.np_random.integers(2)]
        return {"word": self.word, "sum": np.zeros(1, np.float32)}

    def step(self, action):
        reward = float(("left", "go")[action] == self.word)
        self.steps += 1
        return self.seen(), reward, self.steps == 8, False, {}

class Some(Order):
    observation_space = spaces.Sequence(spaces.Discrete(3))

    def seen(self):
        return (1, 2)
"""


# Checkpoints --------------------------------------------------------------------------


def test_as_many_earlier_checkpoints_as_asked_are_kept(train):
    settings = {"checkpoint_every": 1, "keep_checkpoints": 2, "normalise_obs": True}
    run = train(settings=settings)
    kept = sorted(path.name for path in run.history.iterdir())
    assert kept == ["update-000005.pt", "update-000006.pt"]
    earlier = Checkpoint.load(run.history / kept[0])
    assert earlier.update == 5 and earlier.normalisers["obs"]
    assert corral.load_policy(run.history / kept[0]).checkpoint.name == kept[0]
    with resume(run.history / kept[0], {}) as training:
        assert training.progress.update == 5


def test_latest_is_the_run_that_was_begun_last(train, capsys, here):
    with pytest.raises(OptionError, match=r"there is no latest run: .*runs holds none"):
        resume(Path("latest"), {})
    for name in ("b", "a"):
        train(out=f"runs/{name}", settings={"total_steps": 32})
    assert corral.load_policy("latest").checkpoint.parts[:2] == ("runs", "a")
    typed = ["train", "--resume", "latest", "--total-steps", "64"]
    assert main(typed) == 0
    assert "Resuming from runs/a/checkpoints/last.pt" in capsys.readouterr().out


@pytest.mark.parametrize("learner", ["ppo", "sb3_ppo"])
def test_a_learning_rate_in_pieces(train, learner):
    pieces = [[0, 0.001], [0.5, 0.0005], [0.5, 0.0001], [1, 0]]
    run = train(settings={"ppo.lr": pieces, "learner": learner})
    rates = [line["learn/lr"] for line in jsonl.read(run.metrics) if "learn/lr" in line]
    expected = [0.001, 5 / 6e3, 4 / 6e3, 1e-4, 2 / 3e4, 1 / 3e4]
    np.testing.assert_allclose(rates, expected, rtol=1e-5)


@pytest.mark.parametrize(
    ("pieces", "said"),
    [
        ([[0.5, 1e-3]], "parts ascend from 0 to at most 1"),
        ([[0, 1e-3], [0.7, 1e-4], [0.5, 0]], "parts ascend from 0"),
        ([[0, -1e-3]], "values of pieces must be >= 0"),
    ],
)
def test_pieces_that_make_no_sense_are_refused(pieces, said):
    with pytest.raises(OptionError, match=said):
        resolve("cartpole", {"ppo.lr": pieces})


def test_sb3_loads_the_zip_and_the_statistics_of_any_checkpoint(train, here):
    stable_baselines3 = pytest.importorskip("stable_baselines3")
    from stable_baselines3.common.vec_env import DummyVecEnv, VecNormalize

    settings = {"learner": "sb3_ppo", "normalise_obs": True, "keep_checkpoints": 1}
    run = train(settings=settings)
    (earlier,) = run.history.iterdir()
    for checkpoint, folder in ((run.path, "best"), (earlier, "earlier")):
        export_run(checkpoint, here / folder, formats=())
        model = stable_baselines3.PPO.load(here / folder / "best_sb3.zip")
        envs = DummyVecEnv([lambda: gymnasium.make("CartPole-v1")])
        scaled = VecNormalize.load(here / folder / "best_vecnormalize.pkl", envs)
        obs = np.random.default_rng(0).normal(size=(9, 4)).astype(np.float32)
        chosen, _ = model.predict(scaled.normalize_obs(obs), deterministic=True)
        assert chosen.tolist() == corral.load_policy(checkpoint).act(obs).tolist()
