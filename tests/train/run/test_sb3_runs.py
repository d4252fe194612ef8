"""A run may learn with Stable-Baselines3's PPO; all else of it stays as it is."""

import os
import signal
from pathlib import Path

import numpy as np
import pytest
import torch
from small_runs import SMALL
from test_resuming import lead, learnt, same

from corral import Pool
from corral.errors import OptionError, TrainingDiverged
from corral.train.run.checkpoint import Checkpoint
from corral.train.run.loaded_run import LoadedRun
from corral.train.run.start import begin, resume
from corral.train.sinks import jsonl

pytest.importorskip("stable_baselines3", reason="its PPO is what learns here")
from stable_baselines3 import PPO
from stable_baselines3.common.utils import set_random_seed
from stable_baselines3.common.vec_env import VecNormalize

from corral.api.sb3.env import CorralVecEnv

SB3 = {**SMALL, "learner": "sb3_ppo"}
SCALED = {**SB3, "normalise_obs": True, "normalise_reward": True}


@pytest.fixture(autouse=True)
def global_generators():
    """Leave them as they were: SB3 seeds them."""
    states = torch.get_rng_state(), np.random.get_state()
    yield
    torch.set_rng_state(states[0])
    np.random.set_state(states[1])


def as_its_users_write_it(pool, ppo, scaled):
    """SB3's own loop with the same settings; returns the weights."""

    def left_before(left):
        """Of six updates: SB3 says what is left at the end of the rollout."""
        return 1.0 - (round(6 * (1.0 - left)) - 1) / 6

    venv = CorralVecEnv(pool)
    set_random_seed(3)
    model = PPO(
        "MlpPolicy",
        VecNormalize(venv, gamma=ppo.gamma) if scaled else venv,
        learning_rate=lambda left: ppo.lr * left_before(left),
        n_steps=ppo.n_steps,
        batch_size=ppo.batch_size,
        n_epochs=ppo.n_epochs,
        gamma=ppo.gamma,
        gae_lambda=ppo.gae_lambda,
        clip_range=lambda left: ppo.clip_range * left_before(left),
        policy_kwargs={"net_arch": [8]},
        device="cpu",
    )
    model.learn(192)
    return dict(model.policy.state_dict())


@pytest.mark.parametrize("settings", [SB3, SCALED], ids=["plain", "scaled"])
def test_a_run_learns_what_sb3s_own_loop_would(settings):
    settings = {**settings, "seed": 3}
    with begin("cartpole", settings, out=Path("run")) as training:
        for update in range(6):
            torch.rand(7), np.random.rand(7)  # somebody else draws as well
            rollout = training.collect()
            training.log(rollout, training.learn(rollout))
            if update == 2:
                training.evaluate()
        ours = dict(training.parts.learner.model.policy.state_dict())
        ppo = training.config.ppo
    with Pool("CartPole-v1", 2, backend="serial", seed=3) as pool:
        theirs = as_its_users_write_it(pool, ppo, settings.get("normalise_obs"))
    assert same(ours, theirs)


def test_the_last_update_learns_something(train):
    run = train(settings=SB3)
    rates = [line["learn/lr"] for line in jsonl.read(run.metrics) if "learn/lr" in line]
    assert rates == pytest.approx([1e-3 * left / 6 for left in (6, 5, 4, 3, 2, 1)])


def test_three_updates_and_three_more_are_six():
    whole = lead(begin("cartpole", SCALED, out=Path("whole")), 6)
    parts = lead(begin("cartpole", SCALED, out=Path("parts")), 5)
    lead(resume(parts.path, {}), 6)
    ours, theirs = Checkpoint.load(parts.last), Checkpoint.load(whole.last)
    assert ours.update == theirs.update == 6
    assert same(ours.learner, theirs.learner)
    assert same(ours.normalisers, theirs.normalisers)
    assert jsonl.read(parts.episodes) == jsonl.read(whole.episodes)
    assert learnt(parts) == learnt(whole)


def test_a_run_leaves_what_both_libraries_open(train):
    run = train(settings=SCALED)
    assert "Stable-Baselines3" in run.report.read_text()
    measured = jsonl.read(run.metrics)
    assert {"learn/kl", "learn/entropy", "learn/explained_variance"} <= set(measured[0])
    assert len(jsonl.read(run.episodes)) > 2
    with LoadedRun(run.path) as loaded:
        before = loaded.evaluate(episodes=3, seed=7)
        ours = [loaded.evaluate(episodes=5, seed=7).returns, before.returns]
        drawn = [loaded.evaluate(3, 7, stochastic=True).returns for _ in range(2)]
    assert (ours[0][:3] == ours[1]).all()
    assert (drawn[0] == drawn[1]).all()
    model = PPO.load(run.checkpoints / "best_sb3.zip", device="cpu")
    saved = Checkpoint.load(run.best)
    assert same(dict(model.policy.state_dict()), saved.learner["net"])
    with Pool("CartPole-v1", 2, backend="serial") as pool:
        path = str(run.checkpoints / "best_vecnormalize.pkl")
        scales = VecNormalize.load(path, CorralVecEnv(pool))
    assert (scales.obs_rms.mean == saved.normalisers["obs"]["mean"]).all()


def test_a_longer_run_begins_with_given_weights(train):
    first = train(settings=SB3)
    with begin("cartpole", SB3, out=Path("second"), init_from=first.path) as new:
        theirs = Checkpoint.load(first.best).learner["net"]
        assert same(dict(new.parts.learner.model.policy.state_dict()), theirs)
        assert new.parts.learner.steps == 0


def test_a_reward_that_is_no_number_is_told_with_its_slot():
    settings = {**SB3, "env": "run_envs:TurnsNan"}
    with (
        begin("cartpole", settings, out=Path("run")) as training,
        pytest.raises(
            TrainingDiverged, match="The env of slot 0 returned the reward nan"
        ),
    ):
        training.run()


@pytest.mark.parametrize(
    ("setting", "told"),
    [
        ({"ppo.memory": "gru"}, r"ppo\.memory is 'gru'.*has none"),
        ({"mode": "two_groups"}, "mode is 'two_groups'.*set it to sync"),
    ],
)
def test_what_sb3s_ppo_cannot_do_is_refused(setting, told):
    with pytest.raises(OptionError, match=told):
        begin("cartpole", {**SB3, **setting}, out=Path("run"))
    assert not Path("run").exists()


def test_observations_that_cannot_be_scaled_are_refused():
    settings = {**SCALED, "env": "FrozenLake-v1"}
    with pytest.raises(OptionError, match=r"normalise_obs: .*Discrete"):
        begin("cartpole", settings, out=Path("run"))


def test_a_curriculum_changes_the_envs_that_collect_and_no_others():
    """Also after a resume, before the first reset."""
    from corral.train.recipes.resolve import resolve
    from corral.train.run.parts import build

    told = []

    def curriculum(venv, steps):
        venv.set_attr("reward", float(steps))
        told.append(steps)

    config = resolve("cartpole", {**SB3, "env": "run_envs:TurnsNan"})
    parts = build(config, curriculum=curriculum)
    with parts.pool, parts.open_pool("serial", None) as other:
        for update in range(3):
            parts.learner.update(parts.collector.collect(16))
            parts.collector.end_episodes(update)
        assert told == [0, 0, 32, 32, 64, 64, 96]
        assert parts.pool.get_attr("reward") == (96.0, 96.0)
        assert np.isnan(other.get_attr("reward")).all()


def test_envs_that_are_restarted_in_a_rollout_learn_of_the_curriculum():
    """Before their next episode begins; and those that died between two rollouts."""
    from corral.train.recipes.resolve import resolve
    from corral.train.run.parts import build

    def curriculum(venv, steps):
        venv.set_attr("height", 0.125)

    asked = {"env": "run_envs:Led", "backend": "process", "on_fault": "restart"}
    parts = build(resolve("cartpole", {**SB3, **asked}), curriculum=curriculum)
    with parts.pool as pool:
        parts.collector.collect(16)
        pool.set_attr("doomed", [False, True])
        lost = parts.collector.collect(16).valid
        assert lost.sum(axis=0).tolist() == [16, 15]
        os.kill(pool.stats().workers[0].pid, signal.SIGKILL)
        parts.collector.collect(16)
        assert [fault.worker for fault in pool.faults] == [1, 0]
        assert (parts.learner.model.rollout_buffer.observations == 0.125).all()


def test_a_worker_that_dies_while_others_are_led_on_is_replaced():
    from corral.train.recipes.resolve import resolve
    from corral.train.run.parts import build

    victims = {}

    def curriculum(venv, steps):
        if len(venv.pool.faults) in victims:  # one has been restarted
            os.kill(victims.pop(len(venv.pool.faults)), signal.SIGKILL)
        venv.set_attr("height", 0.125)

    asked = {"env": "run_envs:Led", "backend": "process", "on_fault": "restart"}
    parts = build(resolve("cartpole", {**SB3, **asked}), curriculum=curriculum)
    with parts.pool as pool:
        parts.collector.collect(16)
        pool.set_attr("doomed", [False, True])
        victims[1] = pool.stats().workers[0].pid
        lost = parts.collector.collect(16).valid
        assert lost.sum(axis=0).tolist() == [15, 15]
        assert [fault.worker for fault in pool.faults] == [1, 0]
        assert (parts.learner.model.rollout_buffer.observations == 0.125).all()
