"""Whole episodes, collected for a learner that wants episodes or trials."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from corral.engine.pool import Pool
from corral.engine.worker.seeds import SeedDomain, collection_root, episode_seed
from corral.errors import Fault, OptionError
from corral.learners.protocol import Episodes, Trials
from corral.rollouts.episodic import Episode, drawn_task, run_episodes
from corral.rollouts.rollout import EpisodeSummary


@dataclass(frozen=True, slots=True)
class EpisodeBatch:
    """The episodes of one update, in the order of their numbers.

    Attributes:
        whole: Without those that failed each time they were run.
        per_trial: Consecutive episodes that are one trial.
    """

    whole: tuple[Episode, ...]
    per_trial: int
    faults: tuple[Fault, ...]

    def __iter__(self) -> Iterator[Episode]:
        return iter(self.whole)

    def __len__(self) -> int:
        return len(self.whole)

    @property
    def trials(self) -> list[tuple[Episode, ...]]:
        """The episodes of each trial; fewer where some failed."""
        found: dict[int, list[Episode]] = {}
        for episode in self.whole:
            found.setdefault(episode.item // self.per_trial, []).append(episode)
        return [tuple(episodes) for episodes in found.values()]

    @property
    def reward(self) -> NDArray[np.float64]:
        """(steps,): all rewards, one episode after the other."""
        rewards = [one.reward for one in self.whole if one.reward is not None]
        return np.concatenate(rewards) if rewards else np.empty(0)

    @property
    def valid(self) -> NDArray[np.bool_]:
        """(steps,): all True."""
        return np.ones(len(self.reward), np.bool_)

    @property
    def episodes(self) -> tuple[EpisodeSummary, ...]:
        """What a run writes down; an episode has no fixed slot here, so that is -1."""
        return tuple(
            EpisodeSummary(
                slot=-1,
                row=one.length - 1,
                seed=one.seed,
                return_=one.return_,
                length=one.length,
                terminated=one.terminated,
                info=one.info,
            )
            for one in self.whole
        )


class EpisodeGatherer:
    """Collects whole episodes with a policy; see `protocol.Gatherer`.

    Args:
        pool: of the envs.
        policy: acts in them.
        wants: what the learner wants.
        act_in: "caller" or "workers"; see `run_episodes`.
    """

    def __init__(
        self, pool: Pool, policy: Any, wants: Episodes | Trials, act_in: str = "caller"
    ) -> None:
        self._act_in = act_in
        self._refuse_parts_of_groups(pool.repeat, wants)
        self._pool = pool
        self._policy = policy
        self._per_trial = wants.episodes if isinstance(wants, Trials) else 1
        self._root = pool.seed
        self._turn = 0

    @staticmethod
    def _refuse_parts_of_groups(repeat: int, wants: Episodes | Trials) -> None:
        if repeat > 1 and isinstance(wants, Trials):
            raise OptionError(
                f"repeat is {repeat}, and the learner wants trials of single episodes, "
                "which it cannot be given in groups; use repeat: 1, or corral.Trials "
                "and a learner that wants episodes"
            )
        if wants.count % repeat:
            raise OptionError(
                f"repeat is {repeat}, and an update learns from {wants.count} "
                f"episodes; use a multiple of {repeat}"
            )

    def collect(self, steps: int) -> EpisodeBatch:
        """Run this many episodes, or trials, to their end."""
        seed = collection_root(self._root, self._turn)
        self._turn += 1
        count, copies = steps * self._per_trial, self._pool.repeat
        # Every episode of a trial has the same task.
        trials = [number // self._per_trial for number in range(count // copies)]
        tasks = [drawn_task(self._pool, seed, trial) for trial in trials]
        found = run_episodes(
            self._pool,
            self._policy,
            tasks=tasks,
            seed=seed,
            repeat=copies,
            act_in=self._act_in,
        )
        whole = tuple(one for one in found if not one.failed)
        faults = tuple(fault for one in found for fault in one.faults)
        return EpisodeBatch(whole, self._per_trial, faults)

    def end_episodes(self, number: int) -> None:
        """Seed what comes next from `number`; no episode is running."""
        self._root = episode_seed(self._pool.seed, number, SeedDomain.NUMBERED)
        self._turn = 0
