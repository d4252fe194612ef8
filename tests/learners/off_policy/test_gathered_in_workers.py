"""Episodes that copies of a policy run in workers are those of the caller."""

from __future__ import annotations

import numpy as np
import pytest
from off_policy_envs import Recall

import corral
from corral.learners.episode_batch import EpisodeGatherer
from corral.learners.off_policy.learner import SACLearner
from corral.learners.protocol import LearnerSetup

SETTINGS = {
    **{"architecture": "memory", "hidden": (8, 8), "memory_size": 6},
    **{"batch_size": 4, "random_steps": 12, "replay_size": 1000, "updates": 2},
}


def learned(act_in: str, backend: str) -> list[np.ndarray]:
    """The weights after each of three updates, and the rewards before it."""
    workers = None if backend == "serial" else 2
    with corral.Pool(Recall, 4, backend=backend, workers=workers, seed=3) as pool:
        setup = LearnerSetup(pool.spec, SACLearner.Config(**SETTINGS), pool, seed=1)
        learner = SACLearner(setup)
        wants = learner.wants(learner.settings)
        gatherer = EpisodeGatherer(pool, learner.policy, wants, act_in)
        found = []
        for _ in range(3):
            batch = gatherer.collect(6)
            learner.update(batch)
            arrays = learner.policy.weights().values()
            found += [batch.reward, *(array.copy() for array in arrays)]
        assert not learner.policy.random  # it was at first
        return found


@pytest.mark.parametrize("backend", ["thread", "process"])
def test_a_learner_of_episodes_learns_the_same(backend: str) -> None:
    ours, theirs = learned("workers", backend), learned("caller", "serial")
    assert all(map(np.array_equal, ours, theirs)) and len(ours) == len(theirs)
