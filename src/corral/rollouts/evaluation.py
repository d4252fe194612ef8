"""How well a policy does: so many episodes, every one of which counts.

Environments that run side by side finish short episodes first, so the first hundred
that end include too many short ones. Here it is decided beforehand which episodes are
run, and all of them are run to their end.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from corral.core import Policy
from corral.engine.adapters.factories import EnvSource, is_list
from corral.engine.keywords import checked_keywords
from corral.engine.pool import Pool, PoolOptions
from corral.errors import Fault, OptionError
from corral.rollouts.episode import Episode
from corral.rollouts.episodic import run_episodes
from corral.rollouts.normalise import ObsNorm
from corral.rollouts.number_format import rate, score

SUCCESS_KEYS = ("is_success", "success")
"""Entries of an episode's last info that say whether it succeeded."""
DEFAULT_NUM_ENVS = 8
"""Environments side by side, unless told otherwise."""


@dataclass(frozen=True, slots=True)
class Evaluation:
    """What came of a number of episodes, in the order of their seeds."""

    returns: NDArray[np.float64]
    """(episodes,); nan where one failed."""
    lengths: NDArray[np.int64]
    """(episodes,); 0 where one failed."""
    seeds: tuple[int, ...]
    infos: tuple[dict[str, Any], ...]
    """Those that came with the last steps."""
    failed: tuple[Fault, ...]
    """Why episodes could not be run to their end."""

    @property
    def mean(self) -> float:
        """The average return of those that did not fail."""
        return float(np.nanmean(self.returns)) if self._any() else float("nan")

    @property
    def std(self) -> float:
        """The standard deviation of the returns."""
        return float(np.nanstd(self.returns)) if self._any() else float("nan")

    @property
    def success_rate(self) -> float | None:
        """Of the episodes whose last info tells; None if none does."""
        successes = [success_of(info) for info in self.infos]
        known = [success for success in successes if success is not None]
        return float(np.mean(known)) if known else None

    def _any(self) -> bool:
        return bool(np.isfinite(self.returns).any())

    def __len__(self) -> int:
        return len(self.returns)

    def __str__(self) -> str:
        failed = f", {len(self.failed)} failed" if self.failed else ""
        shown = f"{score(self.mean, self.std)} over {len(self)} episodes"
        success = self.success_rate
        succeeded = "" if success is None else f", success rate {rate(success)}"
        return f"{shown}{succeeded}{failed}"


def success_of(info: Mapping[str, Any]) -> float | None:
    """Whether an episode succeeded, by its last info: 1, 0 or None if it is not told.

    The entries are those that Stable-Baselines3, Gymnasium-Robotics and Meta-World use.
    """
    for key in SUCCESS_KEYS:
        value = info.get(key)
        if isinstance(value, (bool, int, float, np.bool_, np.number)):
            return float(value)
    return None


@checked_keywords(onward=Pool)
def evaluate(
    policy: Policy,
    env: Pool | EnvSource,
    episodes: int = 100,
    seed: int = 0,
    *,
    num_envs: int | None = None,
    tasks: Sequence[Any] | None = None,
    max_length: int | None = None,
    obs_norm: ObsNorm | None = None,
    **options: Any,
) -> Evaluation:
    """Run exactly so many episodes; the result does not depend on how many at a time.

        print(corral.evaluate(policy, "CartPole-v1", episodes=100))

    Args:
        policy: see `corral.Policy`.
        env: a pool, or what a pool is made of, which is then closed again.
        episodes: how many.
        seed: every episode's is made from (seed, its number).
        num_envs: how many at a time, where the pool is made here.
        tasks: one per episode.
        max_length: episodes are truncated after so many steps; None: never.
        obs_norm: what the policy was trained with.
        **options: for the pool, as `corral.Pool` takes them.
    """
    if isinstance(env, Pool):
        if options or num_envs is not None:
            names = [*options, *(["num_envs"] if num_envs is not None else [])]
            raise OptionError(f"{', '.join(names)}: the pool given was made without")
        return _evaluation(env, policy, episodes, seed, tasks, max_length, obs_norm)
    if num_envs is None and not is_list(env):
        num_envs = max(1, min(DEFAULT_NUM_ENVS, episodes))
    with Pool.with_options(env, num_envs, PoolOptions(seed=seed, **options)) as pool:
        return _evaluation(pool, policy, episodes, seed, tasks, max_length, obs_norm)


def _evaluation(
    pool: Pool,
    policy: Policy,
    episodes: int,
    seed: int,
    tasks: Sequence[Any] | None,
    max_length: int | None,
    norm: ObsNorm | None,
) -> Evaluation:
    run: list[Episode] = run_episodes(
        pool,
        policy,
        episodes=episodes,
        tasks=tasks,
        seed=seed,
        rows=False,
        max_length=max_length,
        obs_norm=norm,
    )
    return Evaluation(
        returns=np.array([episode.return_ for episode in run], np.float64),
        lengths=np.array([episode.length for episode in run], np.int64),
        seeds=tuple(episode.seed for episode in run),
        infos=tuple(episode.info for episode in run),
        failed=tuple(one.fault for one in run if one.fault is not None),
    )
