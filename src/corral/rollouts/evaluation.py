"""The mean return of a policy over a fixed set of episodes.

Parallel environments finish short episodes first, so the first hundred that end include
too many short ones. Here the episodes are chosen beforehand, and all run to their end.
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from corral.core import Policy
from corral.engine.adapters.factories import EnvSource, is_list
from corral.engine.faults.report import message_for
from corral.engine.keywords import checked_keywords
from corral.engine.pool import Pool, PoolOptions
from corral.errors import Fault, FaultError, OptionError
from corral.rollouts.episodic import run_episodes
from corral.rollouts.normalise import ObsNorm
from corral.rollouts.number_format import rate, score
from corral.rollouts.published_policy import PolicyFactory
from corral.rollouts.site_group import SiteGroup

# Keys of an episode's last info that hold whether it succeeded.
SUCCESS_KEYS = ("is_success", "success")
# Default number of parallel environments.
DEFAULT_NUM_ENVS = 8


@dataclass(frozen=True, slots=True)
class Evaluation:
    """The results of episodes, in the order of their seeds.

    Attributes:
        returns: (episodes,); nan where an episode failed.
        lengths: (episodes,); 0 where an episode failed.
        infos: The infos of the last steps.
        failed: Why episodes failed.
    """

    returns: NDArray[np.float64]
    lengths: NDArray[np.int64]
    seeds: tuple[int, ...]
    infos: tuple[dict[str, Any], ...]
    failed: tuple[Fault, ...]

    @property
    def mean(self) -> float:
        """The mean return of the episodes that did not fail."""
        return float(np.nanmean(self.returns)) if self._any() else float("nan")

    @property
    def std(self) -> float:
        """The standard deviation of the returns."""
        return float(np.nanstd(self.returns)) if self._any() else float("nan")

    @property
    def success_rate(self) -> float | None:
        """Over episodes whose last info has a success key; None if there are none."""
        successes = [success_of(info) for info in self.infos]
        known = [success for success in successes if success is not None]
        return float(np.mean(known)) if known else None

    def _any(self) -> bool:
        return bool(np.isfinite(self.returns).any())

    def __len__(self) -> int:
        return len(self.returns)

    def __str__(self) -> str:
        failed = f", {len(self.failed)} failed" if self.failed else ""
        episodes = "1 episode" if len(self) == 1 else f"{len(self)} episodes"
        shown = f"{score(self.mean, self.std)} over {episodes}"
        success = self.success_rate
        succeeded = "" if success is None else f", success rate {rate(success)}"
        return f"{shown}{succeeded}{failed}"


def success_of(info: Mapping[str, Any]) -> float | None:
    """Whether an episode succeeded, by its last info: 1, 0 or None if unknown.

    The keys are those that Stable-Baselines3, Gymnasium-Robotics and Meta-World use.
    """
    for key in SUCCESS_KEYS:
        value = info.get(key)
        if isinstance(value, (bool, int, float, np.bool_, np.number)):
            return float(value)
    return None


@checked_keywords(onward=Pool)
def evaluate(
    policy: Policy,
    env: Pool | SiteGroup | EnvSource | None = None,
    episodes: int = 100,
    seed: int = 0,
    *,
    num_envs: int | None = None,
    tasks: Sequence[Any] | None = None,
    max_length: int | None = None,
    obs_norm: ObsNorm | None = None,
    repeat: int = 1,
    act_in: str = "caller",
    policy_factory: PolicyFactory | None = None,
    cluster: SiteGroup | str | None = None,
    **options: Any,
) -> Evaluation:
    """Run exactly this many episodes; the result does not depend on `num_envs`.

        print(corral.evaluate(policy, "CartPole-v1", episodes=100))

    Args:
        policy: see `corral.Policy`.
        env: a pool, or an env as `corral.Pool` takes it.
        episodes: number of episodes.
        seed: root of the episodes' seeds.
        num_envs: number of parallel envs, if `env` is not a pool (default: 8).
        tasks: one per episode.
        max_length: steps after which an episode is truncated (default: no limit).
        obs_norm: the normalisation that the policy was trained with.
        repeat: run each episode this often, with the same seed and task; see
            `run_episodes`.
        act_in: "caller" or "workers"; see `run_episodes`.
        policy_factory: as for `Collector`.
        cluster: a `corral.Cluster` to use in place of `env`, or the address of a Ray
            cluster where `env` is run.
        **options: everything else that `corral.Pool` takes, if `env` is not a pool.
    """
    if isinstance(cluster, SiteGroup):
        env = cluster
    opened: AbstractContextManager[Pool | SiteGroup]
    if isinstance(env, (Pool, SiteGroup)):
        if options or num_envs is not None:
            names = [*options, *(["num_envs"] if num_envs is not None else [])]
            raise OptionError(
                f"{', '.join(names)} cannot change a pool that exists; pass it to "
                "corral.Pool"
            )
        opened = nullcontext(env)
    elif env is None:
        raise OptionError("env is missing; pass an env, a pool or cluster=")
    else:
        if num_envs is None and not is_list(env):
            num_envs = max(1, min(DEFAULT_NUM_ENVS, episodes))
        if cluster is None:
            asked = PoolOptions(seed=seed, **options)
            opened = Pool.with_options(env, num_envs, asked)
        else:
            opened = _on_cluster(env, num_envs, address=cluster, seed=seed, **options)
    try:
        with opened as pool:
            run = run_episodes(
                pool,
                policy,
                episodes=episodes,
                tasks=tasks,
                seed=seed,
                rows=False,
                max_length=max_length,
                obs_norm=obs_norm,
                repeat=repeat,
                act_in=act_in,
                policy_factory=policy_factory,
            )
    except FaultError as error:
        if not isinstance(opened, nullcontext):
            error.fault = replace(error.fault, closed=True)
            error.args = (message_for(error.fault),)
        raise
    return Evaluation(
        returns=np.array([episode.return_ for episode in run], np.float64),
        lengths=np.array([episode.length for episode in run], np.int64),
        seeds=tuple(episode.seed for episode in run),
        infos=tuple(episode.info for episode in run),
        failed=tuple(one.fault for one in run if one.fault is not None),
    )


def _on_cluster(env: Any, num_envs: int | None, **options: Any) -> Any:
    """A cluster of these envs, for one evaluation."""
    # By name: it is a room above this one.
    there = importlib.import_module("corral.cluster.cluster")
    return there.Cluster(env, num_envs, **options)
