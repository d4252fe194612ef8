"""`corral export` and `corral.load_policy`: the policy outside of a run."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import gymnasium
import numpy as np
import onnxruntime
import pytest
import torch

import corral
from corral.cli.main import main
from corral.errors import OptionError, RunFailed, SpaceMismatch
from corral.train.run import exporting
from corral.train.run.exporting import Comparison, export_run
from corral.train.run.loaded_run import LoadedRun
from corral.train.run.start import begin

KINDS = '''
import gymnasium
import numpy as np
from gymnasium import spaces


class Kind(gymnasium.Env):
    """Random observations of any space, for ten steps."""

    def __init__(self, seen, acted):
        self.observation_space, self.action_space = SEEN[seen], ACTED[acted]

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        if seed is not None:
            self.observation_space.seed(seed)
        self.steps = 0
        return self.observation_space.sample(), {}

    def step(self, action):
        assert self.action_space.contains(action)
        self.steps += 1
        return self.observation_space.sample(), 1.0, self.steps == 10, False, {}


SEEN = {
    "vector": spaces.Box(-3, 5, (4,), np.float64),
    "image": spaces.Box(0, 255, (12, 10, 3), np.uint8),
    "dict": spaces.Dict(
        arm=spaces.Box(-1, 1, (2, 2), np.float32),
        camera=spaces.Box(0, 255, (8, 8), np.uint8),
        room=spaces.Discrete(3, start=1),
        switches=spaces.MultiDiscrete([2, 3]),
    ),
    "tuple": spaces.Tuple([spaces.Discrete(3), spaces.Box(-1, 1, (2,))]),
}
ACTED = {
    "one": spaces.Discrete(3, start=-1),
    "one from zero": spaces.Discrete(3),
    "some": spaces.MultiDiscrete([3, 2], start=[1, 0]),
    "bits": spaces.MultiBinary(3),
    "numbers": spaces.Box(np.array([-1, 0]), np.array([1, 5]), dtype=np.float32),
}
'''
# What a run has, what is seen, what is acted.
RUNS = {
    "ppo, scaled": ({"normalise_obs": True}, "vector", "numbers"),
    "ppo, images": ({}, "image", "one"),
    "ppo, dict": ({"normalise_obs": True, "ppo.activation": "silu"}, "dict", "some"),
    "ppo, tuple": ({"ppo.hidden": []}, "tuple", "bits"),
    "sac": ({"learner": "sac"}, "dict without camera", "numbers"),
    "sac, discrete": ({"learner": "sac"}, "vector", "one"),
    "td3": ({"learner": "td3"}, "vector", "numbers"),
    "sb3": (
        {"learner": "sb3_ppo", "normalise_obs": True, "normalise_reward": True},
        "vector",
        "numbers",
    ),
    "sb3, images": ({"learner": "sb3_ppo"}, "large image", "one from zero"),
}
SMALL = {
    "backend": "serial",
    "num_envs": 2,
    "total_steps": 64,
    "evaluate_episodes": 1,
    "final_episodes": 0,
    "video": "never",
}


@pytest.fixture(autouse=True)
def kinds(here):
    more = (
        'SEEN["dict without camera"] = spaces.Dict('
        '{key: one for key, one in SEEN["dict"].items() if key != "camera"})\n'
        'SEEN["large image"] = spaces.Box(0, 255, (40, 40, 3), np.uint8)\n'
    )
    (here / "kinds.py").write_text(KINDS + more)
    yield
    sys.modules.pop("kinds", None)


def trained_as(settings, seen, acted, out="run"):
    chosen = {**SMALL, "env": "kinds:Kind", **settings}
    chosen["env_kwargs"] = {"seen": seen, "acted": acted}
    small = {"n_steps": 16, "batch_size": 16, "n_epochs": 1, "hidden": [8]}
    if settings.get("learner", "ppo") in ("ppo", "sb3_ppo"):
        chosen = {**{f"ppo.{key}": value for key, value in small.items()}, **chosen}
    else:
        name = settings["learner"]
        chosen |= {f"{name}.replay_size": 1000, f"{name}.random_steps": 16}
    Path("empty.yaml").write_text("")
    with begin("empty.yaml", chosen, out=Path(out)) as training:
        training.run()
    return Path(out)


@pytest.mark.parametrize("name", RUNS)
def test_torch_and_onnx_act_as_the_policy_does(name):
    run = trained_as(*RUNS[name])
    written = export_run(run)
    folder = run / "export"
    assert [path.name for path in written][-4:] == [
        *("policy.pt2", "policy.pth", "policy.onnx", "policy.json")
    ]
    policy = corral.load_policy(run)
    inputs = exporting.Inputs.of(policy.observation_space)
    batch = inputs.sampled(9, seed=5)
    leaves, expected = inputs.leaves(batch), policy.act(batch)
    assert all(policy.action_space.contains(one) for one in expected)
    program = torch.export.load(folder / "policy.pt2").module()
    by_torch = program(*map(torch.from_numpy, leaves)).numpy()
    session = onnxruntime.InferenceSession(folder / "policy.onnx")
    given = dict(zip(inputs.names, leaves, strict=True))
    (by_onnx,) = session.run(["action"], given)
    assert by_torch.dtype == by_onnx.dtype == expected.dtype
    np.testing.assert_allclose(by_torch, expected, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(by_onnx, expected, rtol=1e-5, atol=1e-6)


def test_exported_files_are_run_by_plain_torch(trained):
    assert main(["export", "run", "--out", "model", "--formats", "torch"]) == 0
    assert {path.name for path in Path("model").iterdir()} == {
        *("policy.pt2", "policy.pth", "policy.json")
    }
    code = (
        "import sys, torch; sys.modules['corral'] = None\n"
        "module = torch.export.load('model/policy.pt2').module()\n"
        "print(module(torch.zeros(1, 4)).shape, module(torch.zeros(5, 4)).dtype)\n"
        "print(sorted(torch.load('model/policy.pth')))"
    )
    result = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True
    )
    assert result.stdout.splitlines() == [
        "torch.Size([1]) torch.int64",
        "['actor.0.bias', 'actor.0.weight', 'actor.2.bias', 'actor.2.weight', "
        "'choice.start']",
    ], result.stderr
    about = json.loads(Path("model/policy.json").read_text())
    assert about["inputs"] == [
        {"name": "observation", "shape": ["rows", 4], "dtype": "float32"}
    ]


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"ppo.memory": "gru"}, "ppo.memory is gru: a policy with a memory cannot be"),
        (
            {"learner": "sac", "sac.architecture": "memory"},
            "sac.architecture is memory: a policy with a memory",
        ),
    ],
)
def test_a_memory_is_refused_by_name(settings, said, capsys):
    trained_as(settings, "vector", "numbers")
    assert main(["export", "run"]) == 2
    assert said in capsys.readouterr().err
    assert not Path("run/export").exists()


def test_a_file_that_acts_otherwise_is_refused(trained):
    with LoadedRun(trained.path, num_envs=1) as run:
        policy = corral.load_policy(trained.path)
        inputs = exporting.Inputs.of(run.parts.pool.spec.observation_space)
    compared = Comparison.of(policy, inputs)
    compared.check("same", compared.actions)
    with pytest.raises(RunFailed, match="other does not act as the policy does"):
        compared.check("other", 1 - compared.actions)


def test_unknown_formats_are_named(trained, capsys):
    assert main(["export", "run", "--formats", "tflite"]) == 2
    assert "--formats tflite: choose torch or onnx" in capsys.readouterr().err


# corral.load_policy -------------------------------------------------------------------


def test_a_loaded_policy_plays_in_a_plain_loop(trained):
    policy = corral.load_policy(trained.path)
    env = gymnasium.make("CartPole-v1")
    obs, _ = env.reset(seed=3)
    policy.reset()
    steps, ended = 0, False
    while not ended:
        action = policy.act(obs)
        assert env.action_space.contains(action)
        obs, _, terminated, truncated, _ = env.step(action)
        steps, ended = steps + 1, terminated or truncated
    assert steps > 5


def test_a_loaded_policy_acts_as_the_evaluation_does(trained):
    with LoadedRun(trained.path) as run:
        expected = run.evaluate(3, seed=7)
        seeds = [episode.seed for episode in _episodes(run)]
    policy, returns = corral.load_policy(trained.path), []
    env = gymnasium.make("CartPole-v1")
    for seed in seeds:
        (obs, _), total, ended = env.reset(seed=seed), 0.0, False
        while not ended:
            obs, reward, terminated, truncated, _ = env.step(policy.act(obs))
            total, ended = total + reward, terminated or truncated
        returns.append(total)
    assert returns == expected.returns.tolist()


def _episodes(run):
    pool, policy = run.parts.pool, run.parts.learner.policy.deterministic()
    return corral.run_episodes(pool, policy, episodes=3, seed=7)


def test_one_observation_is_a_row_of_a_batch(trained):
    policy = corral.load_policy(trained.path)
    batch = np.random.default_rng(0).normal(size=(20, 4)).astype(np.float32)
    one_by_one = [policy.act(obs) for obs in batch]
    assert policy.act(batch).tolist() == one_by_one


def test_drawn_actions_repeat_with_the_seed(trained):
    obs = np.zeros(4, np.float32)

    def drawn(seed):
        policy = corral.load_policy(trained.path, seed=seed)
        return [int(policy.act(obs, deterministic=False)) for _ in range(30)]

    assert drawn(1) == drawn(1) != drawn(2)
    assert set(drawn(1)) == {0, 1}


def test_a_memory_lasts_until_reset():
    run = trained_as({"ppo.memory": "gru"}, "vector", "numbers")
    policy = corral.load_policy(run)
    obs = np.full(4, 0.5)
    first, second = policy.act(obs), policy.act(obs)
    assert (first != second).any()
    policy.reset()
    assert (policy.act(obs) == first).all()


def test_an_observation_of_another_shape_is_refused(trained):
    policy = corral.load_policy(trained.path)
    said = r"has shape \(3,\); the policy of run/checkpoints/best.pt takes one of shape"
    with pytest.raises(SpaceMismatch, match=said):
        policy.act(np.zeros(3))


def test_a_run_of_others_is_refused_unless_trusted(trained):
    text = trained.config.read_text()
    trained.config.write_text(text.replace("seed: 0", "seed: 1"))
    with pytest.raises(corral.errors.UnsafeFile):
        corral.load_policy(trained.path)
    assert corral.load_policy(trained.path, trust=True).config.seed == 1


def test_a_learner_without_a_module_says_so(trained, monkeypatch):
    from corral.learners.ppo_learner import PPOLearner
    from corral.learners.protocol import Learner

    monkeypatch.setattr(PPOLearner, "policy_module", Learner.policy_module)
    with pytest.raises(OptionError, match="PPO cannot be exported"):
        export_run(trained.path)
