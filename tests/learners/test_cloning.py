"""Cloning: a policy that does as somebody did."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from gymnasium import spaces
from made_rollouts import BOX, Draws, made_rollout

from corral.errors import OptionError, TrainingDiverged
from corral.learners.cloning import clone
from corral.learners.ppo import PPO, PPOConfig


def shown(count: int = 512):
    obs = np.random.default_rng(0).uniform(-1, 1, (count, 3)).astype(np.float32)
    return obs, (obs[:, 0] > 0)


def agreed(ppo, obs) -> np.ndarray:
    step = type("Step", (), {"obs": obs})
    policy = ppo.policy.deterministic()
    return policy.act(step, policy.initial_carry(len(obs)), Draws(len(obs))).action


def test_a_policy_does_as_it_was_shown():
    ppo = PPO(BOX, spaces.Discrete(2, start=4))
    obs, right = shown()
    losses = clone(ppo, obs, 4 + right, epochs=20, batch_size=64)
    assert losses[-1] < 0.3 < losses[0]
    assert (agreed(ppo, obs) == 4 + right).mean() > 0.95


def test_of_numbers_the_mean_is_fitted_and_the_deviation_left():
    ppo = PPO(BOX, spaces.Box(-1, 1, (1,), np.float32), PPOConfig(log_std_init=-1.0))
    obs, _ = shown()
    critic = ppo.net.value.weight.clone()
    clone(ppo, obs, obs[:, :1] * 0.5, epochs=30, batch_size=64)
    assert np.abs(agreed(ppo, obs) - obs[:, :1] * 0.5).mean() < 0.05
    assert ppo.net.head.log_std.tolist() == [-1.0]
    assert torch.equal(ppo.net.value.weight, critic)


def test_a_memory_is_fitted_to_sequences():
    ppo = PPO(BOX, spaces.Discrete(2), PPOConfig(memory="gru", memory_size=16))
    generator = np.random.default_rng(0)
    obs = generator.uniform(-1, 1, (12, 32, 3)).astype(np.float32)
    started = np.zeros((12, 32), np.bool_)
    started[0] = started[6] = True
    action = np.where(np.arange(12)[:, None] < 6, obs[0, :, 0], obs[6, :, 0]) > 0
    losses = clone(
        ppo, obs, action, started=started, epochs=60, batch_size=128, lr=1e-2
    )
    assert losses[-1] < 0.1
    with pytest.raises(OptionError, match="give `started`"):
        clone(ppo, obs, action)


def test_a_cloned_learner_learns_on_by_itself():
    ppo = PPO(BOX, spaces.Discrete(2), PPOConfig(n_epochs=1))
    obs, right = shown()
    clone(ppo, obs, right, epochs=1)
    before = ppo.net.actor.layers[0].weight.clone()
    ppo.update(made_rollout(ppo, BOX))
    assert not torch.equal(before, ppo.net.actor.layers[0].weight)


def test_pairs_that_do_not_fit_are_refused():
    ppo = PPO(BOX, spaces.Discrete(2))
    obs, right = shown()
    with pytest.raises(OptionError, match="as many of one as of the other"):
        clone(ppo, obs, right[:-1])
    obs[3] = np.nan
    with pytest.raises(TrainingDiverged, match="epoch 1"):
        clone(ppo, obs, right)
