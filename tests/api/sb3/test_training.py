"""What Stable-Baselines3 and sb3-contrib build on a vector env works on ours."""

from __future__ import annotations

import functools
import warnings

import gymnasium
import numpy as np
import pytest

import corral

from ..side_by_side import assert_same
from .envs import Kinds, Masked
from .side_by_side import assert_same_sb3_run

pytest.importorskip("stable_baselines3")
import torch
from stable_baselines3 import DQN, PPO, SAC
from stable_baselines3.common.callbacks import EvalCallback
from stable_baselines3.common.evaluation import evaluate_policy
from stable_baselines3.common.vec_env import (
    DummyVecEnv,
    VecCheckNan,
    VecFrameStack,
    VecMonitor,
    VecNormalize,
    VecTransposeImage,
    VecVideoRecorder,
)

BACKENDS = {
    "serial": {"backend": "serial"},
    "thread": {"backend": "thread", "workers": 2},
    "process": {"backend": "process", "workers": 2},
}


@pytest.fixture(autouse=True, scope="module")
def one_thread():
    """Nets this small are slower with more, above all beside other tests."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.fixture(params=BACKENDS)
def backend(request):
    return BACKENDS[request.param]


# Wrappers on top ----------------------------------------------------------------------

WRAPPERS = {
    "VecMonitor": (VecMonitor, "box"),
    "VecNormalize": (VecNormalize, "box"),
    "VecFrameStack": (functools.partial(VecFrameStack, n_stack=3), "image"),
    "VecTransposeImage": (VecTransposeImage, "image"),
    "VecCheckNan": (functools.partial(VecCheckNan, raise_exception=True), "box"),
}


@pytest.mark.parametrize("name", WRAPPERS)
def test_vec_wrappers_give_what_they_give_there(name, opened):
    wrap, observations = WRAPPERS[name]
    fns = [functools.partial(Kinds, observations)] * 3
    ours = opened(wrap(corral.make_sb3(fns, **BACKENDS["process"])))
    assert assert_same_sb3_run(ours, wrap(DummyVecEnv(fns)), 30) >= 10


def test_vec_monitor_writes_the_same_file(tmp_path, opened):
    def lines(name, envs):
        path = tmp_path / name
        monitored = VecMonitor(envs, str(path))
        monitored.seed(0)
        monitored.reset()
        for _ in range(20):
            monitored.step(np.zeros(2, np.int64))
        monitored.close()
        text = path.with_suffix(".monitor.csv").read_text().splitlines()[2:]
        return [line.split(",")[:2] for line in text]

    ours = opened(corral.make_sb3(Kinds, 2, **BACKENDS["process"]))
    told = lines("ours", ours)
    assert len(told) >= 5
    assert told == lines("theirs", DummyVecEnv([Kinds] * 2))


def test_videos_are_recorded(tmp_path, backend, opened):
    pytest.importorskip("moviepy", reason="VecVideoRecorder needs moviepy")
    pytest.importorskip("imageio_ffmpeg", reason="moviepy needs ffmpeg")
    envs = VecVideoRecorder(
        corral.make_sb3(Kinds, 2, seed=0, **backend),
        str(tmp_path),
        record_video_trigger=lambda step: step == 0,
        video_length=4,
    )
    opened(envs)
    assert envs.frames_per_sec == 12  # what the env's metadata say
    envs.reset()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # moviepy's own
        for _ in range(5):
            envs.step(np.zeros(2, np.int64))
    (video,) = tmp_path.glob("*.mp4")
    assert video.stat().st_size > 0


# Evaluation ---------------------------------------------------------------------------


def cartpoles(**options):
    limit = {"max_episode_steps": 12}
    return corral.make_sb3("CartPole-v1", 2, env_kwargs=limit, **options)


def stock_cartpoles():
    make = functools.partial(gymnasium.make, "CartPole-v1", max_episode_steps=12)
    return DummyVecEnv([make] * 2)


def test_a_policy_is_evaluated_alike(backend, opened):
    results = []
    for envs in (opened(cartpoles(**backend)), stock_cartpoles()):
        envs = VecMonitor(envs)
        envs.seed(1)
        model = PPO("MlpPolicy", envs, n_steps=8, batch_size=8, seed=0, device="cpu")
        results.append(
            evaluate_policy(model, envs, n_eval_episodes=6, return_episode_rewards=True)
        )
    assert results[0] == results[1] and len(results[0][0]) == 6


def test_eval_callback_evaluates_while_training(tmp_path, backend, opened):
    results = []
    for name, make in (
        ("ours", lambda: cartpoles(**backend)),
        ("theirs", stock_cartpoles),
    ):
        train, judge = opened_pair(opened, make)
        callback = EvalCallback(
            judge,
            eval_freq=8,
            n_eval_episodes=3,
            log_path=str(tmp_path / name),
            verbose=0,
        )
        model = PPO("MlpPolicy", train, n_steps=8, batch_size=8, seed=0, device="cpu")
        judge.seed(3)
        model.learn(32, callback=callback)
        results.append(dict(np.load(tmp_path / name / "evaluations.npz")))
    assert len(results[0]["timesteps"]) == 2
    assert_same(*results)


def opened_pair(opened, make):
    pair = [VecMonitor(make()) for _ in range(2)]
    for envs in pair:
        if hasattr(envs, "pool"):
            opened(envs)
    return pair


# Learning -----------------------------------------------------------------------------


def trained(learner, envs, steps: int, **options):
    """The parameters after a short training with a fixed seed."""
    model = learner("MlpPolicy", envs, seed=0, device="cpu", verbose=0, **options)
    model.learn(steps)
    return {name: tensor.clone() for name, tensor in model.policy.state_dict().items()}


def assert_bit_equal(ours, theirs):
    assert ours.keys() == theirs.keys()
    differ = [name for name in theirs if not torch.equal(ours[name], theirs[name])]
    assert not differ, differ


# Ends of both kinds: poles that fall, and truncations that are bootstrapped from the
# terminal observation.
LEARNERS = {
    "PPO falls": (PPO, "CartPole-v1", 30, 128, {"n_steps": 32, "batch_size": 32}),
    "PPO late": (PPO, "Pendulum-v1", 9, 128, {"n_steps": 32, "batch_size": 32}),
    "DQN": (DQN, "CartPole-v1", 30, 80, {"learning_starts": 20, "batch_size": 8}),
    "SAC": (SAC, "Pendulum-v1", 9, 60, {"learning_starts": 20, "batch_size": 8}),
}


@functools.cache
def stock_result(name):
    learner, env, limit, steps, options = LEARNERS[name]
    make = functools.partial(gymnasium.make, env, max_episode_steps=limit)
    return trained(learner, DummyVecEnv([make] * 4), steps, **options)


@pytest.mark.parametrize("name", LEARNERS)
def test_training_gives_exactly_the_policy_it_gives_there(name, backend, opened):
    learner, env, limit, steps, options = LEARNERS[name]
    kwargs = {"max_episode_steps": limit}
    envs = opened(corral.make_sb3(env, 4, env_kwargs=kwargs, **backend))
    assert_bit_equal(trained(learner, envs, steps, **options), stock_result(name))


def test_training_on_normalised_dict_observations_is_the_same(backend, opened):
    def weights(envs):
        model = PPO(
            "MultiInputPolicy",
            VecMonitor(VecNormalize(envs, norm_obs_keys=["box"])),
            n_steps=8,
            batch_size=8,
            n_epochs=2,
            seed=0,
            device="cpu",
        )
        model.learn(16)
        return model.policy.state_dict()

    fns = [functools.partial(Kinds, "dict")] * 2
    ours = opened(corral.make_sb3(fns, **backend))
    assert_bit_equal(weights(ours), weights(DummyVecEnv(fns)))


def test_a_model_is_saved_and_loaded_with_other_envs(tmp_path, opened):
    envs = opened(cartpoles(**BACKENDS["process"]))
    model = PPO("MlpPolicy", envs, n_steps=8, batch_size=8, seed=0, device="cpu")
    model.learn(16)
    model.save(tmp_path / "model")
    other = opened(cartpoles(backend="serial"))
    loaded = PPO.load(tmp_path / "model", env=other, device="cpu")
    assert_bit_equal(loaded.policy.state_dict(), model.policy.state_dict())
    loaded.learn(16)


# sb3-contrib --------------------------------------------------------------------------


def test_maskable_ppo_learns_the_same_without_asking_for_masks(backend, opened):
    contrib = pytest.importorskip("sb3_contrib")
    options = {"n_steps": 16, "batch_size": 16, "n_epochs": 2}
    envs = opened(corral.make_sb3(Masked, 3, **backend))
    before = envs.pool.question_count
    ours = trained(contrib.MaskablePPO, envs, 96, **options)
    # Two rollouts of 16 steps: does it mask, the first masks, and nothing else.
    asked = envs.pool.question_count - before
    assert asked == (2 + 32 if backend["backend"] == "serial" else 2)
    theirs = trained(contrib.MaskablePPO, DummyVecEnv([Masked] * 3), 96, **options)
    assert_bit_equal(ours, theirs)


def test_masks_are_found_through_vec_wrappers(backend, opened):
    pytest.importorskip("sb3_contrib")
    from sb3_contrib.common.maskable import evaluation, utils

    envs = VecMonitor(opened(corral.make_sb3(Masked, 2, seed=0, **backend)))
    assert utils.is_masking_supported(envs)
    envs.reset()
    for _ in range(7):
        masks = utils.get_action_masks(envs)
        assert masks.shape == (2, 4) and masks.sum() == 6
        assert not masks[np.arange(2), envs.get_attr("place")].any()
        envs.step(np.zeros(2, np.int64))
    from sb3_contrib import MaskablePPO

    model = MaskablePPO("MlpPolicy", envs, n_steps=8, batch_size=8, device="cpu")
    mean, _ = evaluation.evaluate_policy(model, envs, n_eval_episodes=4)
    assert 0 <= mean <= 5
    plain = opened(corral.make_sb3(Kinds, 2, **backend))
    assert not utils.is_masking_supported(plain)


def test_recurrent_ppo_learns_the_same(backend, opened):
    contrib = pytest.importorskip("sb3_contrib")

    def weights(envs):
        model = contrib.RecurrentPPO(
            "MlpLstmPolicy",
            envs,
            n_steps=16,
            batch_size=16,
            n_epochs=1,
            seed=0,
            device="cpu",
            policy_kwargs={"lstm_hidden_size": 8},
        )
        model.learn(32)
        return model.policy.state_dict()

    ours = opened(cartpoles(**backend))
    assert_bit_equal(weights(ours), weights(stock_cartpoles()))
