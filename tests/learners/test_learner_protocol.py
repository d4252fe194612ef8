"""What a learner has by default, and whole episodes collected for one."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import corral
from corral.core import Decision
from corral.errors import OptionError
from corral.learners.episode_batch import EpisodeGatherer
from corral.learners.protocol import (
    Episodes,
    Learner,
    LearnerConfig,
    LearnerSetup,
    PolicyVariants,
    Rows,
    Trials,
)


class Coin(PolicyVariants):
    """Draws one of two actions."""

    def act(self, step: Any, carry: Any, rng: Any) -> Decision:
        drawn = np.zeros(len(step)) if self.greedy else rng.random(1)[:, 0]
        return Decision((drawn > 0.5).astype(int))


class Tabular(Learner):
    """Has nothing but a name."""


def test_names_and_settings_come_from_the_class() -> None:
    assert (Tabular.title, Tabular.group) == ("Tabular", "tabular")
    assert Tabular.wants(LearnerConfig()) == Rows(128)
    with corral.Pool("CartPole-v1", 1, backend="serial") as pool:
        learner = Tabular.make(LearnerSetup(pool.spec, LearnerConfig()))
    assert learner.gamma == 0.99 and learner.collector() is None
    with pytest.raises(NotImplementedError):
        learner.update(None)


def test_variants_of_a_policy_are_copies() -> None:
    coin = Coin()
    assert coin.deterministic().greedy and not coin.greedy
    assert not coin.deterministic().stochastic().greedy
    assert coin.frozen().greedy


def sample_task(slot: int, episode: int, rng: np.random.Generator) -> dict[str, Any]:
    return {"goal": int(rng.integers(10**9))}


def open_pool() -> corral.Pool:
    return corral.Pool(
        "CartPole-v1", 2, backend="serial", seed=3, sample_task=sample_task
    )


def lengths(batch: Any) -> list[int]:
    return [episode.length for episode in batch]


def test_the_episodes_of_a_trial_have_one_task_and_seeds_of_their_own() -> None:
    with open_pool() as pool:
        batch = EpisodeGatherer(pool, Coin(), Trials(3, episodes=2)).collect(3)
    assert [len(trial) for trial in batch.trials] == [2, 2, 2]
    goals = [{episode.task["goal"] for episode in trial} for trial in batch.trials]
    assert [len(one) for one in goals] == [1, 1, 1] and len(set.union(*goals)) == 3
    assert len({episode.seed for episode in batch}) == 6
    assert batch.reward.shape == batch.valid.shape == (sum(lengths(batch)),)
    assert [one.length for one in batch.episodes] == lengths(batch)


def test_in_a_pool_with_groups_episodes_come_in_groups_of_equal_ones() -> None:
    with corral.Pool(
        "CartPole-v1", 4, backend="serial", seed=3, sample_task=sample_task, repeat=2
    ) as pool:
        batch = EpisodeGatherer(pool, Coin(), Episodes(6)).collect(6)
        with pytest.raises(OptionError, match="repeat is 2, and an update learns from"):
            EpisodeGatherer(pool, Coin(), Episodes(5))
        with pytest.raises(OptionError, match="the learner wants trials"):
            EpisodeGatherer(pool, Coin(), Trials(4))
    begun = [(one.seed, one.task["goal"]) for one in batch]
    assert begun[::2] == begun[1::2] and len(set(begun)) == 3
    assert len(set(lengths(batch))) > 3  # the policy's draws differ


def test_what_is_collected_depends_on_the_number_of_the_checkpoint_alone() -> None:
    with open_pool() as pool:
        gatherer = EpisodeGatherer(pool, Coin(), Episodes(4))
        first = [lengths(gatherer.collect(4)) for _ in range(2)]
        gatherer.end_episodes(2)
        after = [lengths(gatherer.collect(4)) for _ in range(2)]
        other = EpisodeGatherer(pool, Coin(), Episodes(4))
        other.end_episodes(2)
        assert [lengths(other.collect(4)) for _ in range(2)] == after
    assert first[0] != first[1] and after != first
