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
from train.run.agent_envs import AGENTS

import corral
from corral.cli.main import main
from corral.errors import OptionError, RunFailed, SpaceMismatch
from corral.train.run.export_inputs import Inputs, Signature
from corral.train.run.exporting import Comparison, export_run
from corral.train.run.loaded_run import LoadedRun
from corral.train.run.start import begin
from corral.train.run.trained_policy import load_run

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
    "text": spaces.Dict(hidden=spaces.Box(-1, 1, (2,)), word=spaces.Text(5)),
}
ACTED = {
    "one": spaces.Discrete(3, start=-1),
    "one from zero": spaces.Discrete(3),
    "some": spaces.MultiDiscrete([3, 2], start=[1, 0]),
    "bits": spaces.MultiBinary(3),
    "numbers": spaces.Box(np.array([-1, 0]), np.array([1, 5]), dtype=np.float32),
}
'''
GRU = {"ppo.memory": "gru", "ppo.memory_size": 8}
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
    "ppo, gru, scaled": ({**GRU, "normalise_obs": True}, "vector", "numbers"),
    "ppo, lstm": ({"ppo.memory": "lstm", "ppo.memory_size": 8}, "dict", "some"),
    "ppo, gru, text": (GRU, "text", "one"),
    "sac, gru": ({"learner": "sac", "sac.architecture": "memory"}, "vector", "one"),
    "td3, lstm": (
        {"learner": "td3", "td3.architecture": "memory", "td3.memory": "lstm"},
        "vector",
        "numbers",
    ),
}
SMALL = {
    "backend": "serial",
    "num_envs": 2,
    "total_steps": 64,
    "evaluate_episodes": 1,
    "final_episodes": 0,
    "video": "never",
}

ROLLOUTS = {"n_steps": 16, "batch_size": 16, "n_epochs": 1}
REPLAYED = {
    **{"hidden": [8], "batch_size": 4, "updates": 2},
    **{"replay_size": 1000, "random_steps": 16},
}
SIZES = {
    "ppo": {**ROLLOUTS, "hidden": [8]},
    "taac": {**ROLLOUTS, "hidden": 8, "embedding": 8},
    "sac": REPLAYED,
    "td3": REPLAYED,
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


def trained_as(settings, seen="", acted="", out="run"):
    kwargs = {"seen": seen, "acted": acted}
    chosen = {**SMALL, "env": "kinds:Kind", "env_kwargs": kwargs, **settings}
    learner = settings.get("learner", "ppo")
    name = "ppo" if "ppo" in learner else learner
    small = {f"{name}.{key}": value for key, value in SIZES[name].items()}
    if f"{name}.architecture" in settings:
        small |= {f"{name}.memory_size": 8, f"{name}.sequence_length": 8}
    chosen = {**small, **chosen}
    Path("empty.yaml").write_text("")
    with begin("empty.yaml", chosen, out=Path(out)) as training:
        training.run()
    return Path(out)


@pytest.mark.parametrize("name", RUNS)
def test_torch_and_onnx_act_as_the_policy_does(name):
    run = trained_as(*RUNS[name])
    written = export_run(run)
    assert [path.name for path in written][-4:] == [
        *("policy.pt2", "policy.pth", "policy.onnx", "policy.json")
    ]
    acts_as_its_files(run)


def acts_as_its_files(run, steps=4):
    """Lead policy and files through the same steps, rows with rewards and memories."""
    policy, folder = corral.load_policy(run), run / "export"
    about = json.loads((folder / "policy.json").read_text())
    names, carried = [one["name"] for one in about["inputs"]], about.get("carry", {})
    program = torch.export.load(folder / "policy.pt2").module()
    session = onnxruntime.InferenceSession(folder / "policy.onnx")
    with load_run(run, "best", False) as loaded:
        learner, norm = loaded.parts.learner, loaded.parts.obs_norm
        signature = Signature.of(learner.policy_module(norm), policy.observation_space)
    torch_carry, onnx_carry = {}, {}
    for step in range(steps if carried else 1):
        batch, reward = signature.inputs.sampled(9, seed=5 + step), float(step)
        expected = policy.act(batch, reward=reward)
        if isinstance(expected, dict):
            (expected,) = expected.values()
        else:
            assert all(policy.action_space.contains(one) for one in expected)
        given = dict(zip(names, signature.first(batch), strict=True))
        if "reward" in given:
            given["reward"] += reward
        by_onnx, *more = session.run(["action", *carried], given | onnx_carry)
        onnx_carry = dict(zip(carried.values(), more, strict=True))
        inputs = (given | torch_carry).values()
        outputs = program(*(torch.as_tensor(one) for one in inputs))
        by_torch, *more = outputs if carried else (outputs,)
        torch_carry = dict(zip(carried.values(), more, strict=True))
        for found in (by_torch.numpy(), by_onnx):
            assert found.dtype == expected.dtype
            np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    "settings",
    [
        {"learner": "taac", "env_kwargs": {"masks": "info"}},
        {"learner": "taac", "env_kwargs": {"masks": "obs"}},
        {"learner": "taac", "env_kwargs": {"kind": "dict", "actions": "box"}},
        {"learner": "sb3_maskable_ppo", "env_kwargs": {"masks": "info"}},
        {"learner": "sb3_ppo", "normalise_obs": True, "env_kwargs": {}},
    ],
)
def test_files_of_teams_act_as_the_policy_does(settings, here):
    if settings["learner"].startswith("sb3"):
        pytest.importorskip("sb3_contrib", reason="learns here, or what it is built on")
    (here / "agent_envs.py").write_text(AGENTS)
    run = trained_as({"env": "agent_envs:Crew", **settings})
    export_run(run)
    acts_as_its_files(run)
    sys.modules.pop("agent_envs")


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


def test_values_of_no_fixed_size_are_refused_by_their_space():
    space = gymnasium.spaces.Dict(
        words=gymnasium.spaces.Sequence(gymnasium.spaces.Discrete(3))
    )
    said = r"observations of Sequence\(.*have no fixed size; wrap the env"
    with pytest.raises(OptionError, match=said):
        Inputs.of(space)


def test_a_file_that_acts_otherwise_is_refused(trained):
    policy = corral.load_policy(trained.path)
    signature = Signature(Inputs.of(policy.observation_space), (), {})
    compared = Comparison.of(policy, signature)
    compared.check("same", lambda arguments: compared.actions)
    with pytest.raises(RunFailed, match="other does not act as the policy does"):
        compared.check("other", lambda arguments: [1 - compared.actions[0]])


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
