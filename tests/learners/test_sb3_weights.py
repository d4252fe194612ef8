"""Weights of a policy of Stable-Baselines3, and its scales."""

from __future__ import annotations

import pickle

import numpy as np
import pytest

import corral
from corral.engine.worker.serialization import dumps
from corral.learners.protocol import LearnerSetup
from corral.rollouts.evaluation import evaluate

pytest.importorskip("stable_baselines3")


def test_a_copy_that_loads_weights_and_scales_acts_like_the_model() -> None:
    from corral.learners.sb3.ppo import SB3PPO

    with corral.Pool("CartPole-v1", 4, backend="serial", seed=0) as pool:
        settings = SB3PPO.Config(n_steps=32, batch_size=32)
        setup = LearnerSetup(pool.spec, settings, pool, normalise_obs=True)
        learner = SB3PPO(setup)
        copy = pickle.loads(dumps(learner.policy.on("cpu")))
        learner.collector().collect(32)
        assert copy.weights().keys() == learner.policy.weights().keys()
        assert not same(copy.weights(), learner.policy.weights())
        copy.load_weights(learner.policy.weights())
        assert same(copy.weights(), learner.policy.weights())
        found = [
            evaluate(policy.deterministic(), "CartPole-v1", 4, backend="serial").returns
            for policy in (copy, learner.policy)
        ]
        assert found[0].tolist() == found[1].tolist()


def same(one, other) -> bool:
    return all(np.array_equal(one[name], other[name]) for name in one)
