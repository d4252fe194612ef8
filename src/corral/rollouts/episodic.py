"""Whole episodes, each run in the next free slot.

    items  0 1 2 3 4 5 6 ──►  slot 0   0 ────── 3 ── 4 ─────────
                              slot 1   1 ── 2 ──────── 5 ── 6 ──  ──► results 0 1 2 ...

The result of an item depends on its seed and task alone. Slots are reset by this loop,
without autoreset: when an episode ends, its slot starts the next item.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from corral.core import NO_TASK, Policy
from corral.engine.keywords import check_choice, check_count, checked_keywords
from corral.engine.pool import Pool
from corral.engine.worker.seeds import SeedDomain, copy_seed, episode_seed, item_seed
from corral.errors import CorralError, OptionError
from corral.rollouts.actor import check_policy, check_pool
from corral.rollouts.episode_run import (
    Episode,
    EpisodeItem,
    EpisodeOptions,
    EpisodesRun,
    ItemQueue,
)
from corral.rollouts.normalise import ObsNorm
from corral.rollouts.published_policy import ACT_IN, PolicyFactory, check_factory
from corral.rollouts.site_group import SiteGroup
from corral.rollouts.workers_episodes import run_in_workers

__all__ = ["Episode", "drawn_task", "run_episodes"]


@checked_keywords(pool=Pool)
def run_episodes(
    pool: Pool | SiteGroup | None = None,
    policy: Policy | None = None,
    *,
    episodes: int | None = None,
    tasks: Sequence[Any] | None = None,
    seeds: Sequence[int] | None = None,
    seed: int | None = None,
    rows: bool = True,
    max_restarts: int = 3,
    max_length: int | None = None,
    min_slots: int | None = None,
    obs_norm: ObsNorm | None = None,
    repeat: int = 1,
    act_in: str = "caller",
    policy_factory: PolicyFactory | None = None,
    cluster: SiteGroup | None = None,
) -> list[Episode]:
    """Run whole episodes; results are in the order of the items.

        trials = corral.run_episodes(pool, policy, tasks=tasks)

    Args:
        pool: any pool, whatever its autoreset, or a `corral.Cluster`. Episodes that are
            running in it are dropped.
        policy: see `corral.Policy`.
        episodes: number of episodes; not needed with tasks or seeds.
        tasks: one per episode (default: drawn by the pool's `sample_task`, if any).
        seeds: one per episode (default: made from `seed` and the item's index).
        seed: root of the seeds (default: the pool's).
        rows: whether to keep observations, actions, rewards and extras.
        max_restarts: how often an item is run again after its own faults, if the pool
            restarts; after that it is returned as failed.
        max_length: steps after which an episode is truncated (default: no limit).
        min_slots: number of results to wait for (default: half of those running).
        obs_norm: normalises the policy's observations; it is not updated here.
        repeat: run each episode this often, with the same seed and task; only the
            policy's draws differ. The copies follow each other in the result.
        act_in: "caller", or "workers": each worker has a copy of the policy, as for
            `Collector`, and runs whole episodes. A free slot takes the next item,
            whichever worker it is in. If a worker dies, all its items are run again;
            of the faults that they had there, only the number is kept.
        policy_factory: as for `Collector`.
        cluster: a `corral.Cluster` to use in place of `pool`.

    Raises:
        CorralError: an env or worker failed in a pool with on_fault="raise", or a task
            cannot be sent; episodes that were finished by then are in its `episodes`.
    """
    pool = pool if cluster is None else cluster
    check_pool(pool)
    assert pool is not None, "it was checked"
    check_policy(policy)
    assert policy is not None, "it was checked"
    check_count("max_restarts", max_restarts, least=0)
    check_count("repeat", repeat)
    check_choice("act_in", act_in, ACT_IN)
    act_in = "workers" if isinstance(pool, SiteGroup) else act_in
    check_factory(policy_factory, act_in)
    root = pool.seed if seed is None else seed
    items = _items(pool, episodes, tasks, seeds, root, repeat)
    if max_length is not None and max_length < 1:
        raise OptionError(f"max_length is {max_length!r}; it must be None or >= 1")
    if not items:
        return []
    pool.drain()
    options = EpisodeOptions(rows, max_restarts, max_length)
    if isinstance(pool, SiteGroup):
        published = pool.published(policy, policy_factory)
        done = pool.run_items(published, items, options, obs_norm)
        return [done[item.number] for item in items]
    # Under serial the one worker is the caller.
    if act_in == "workers" and pool.layout.backend != "serial":
        done = run_in_workers(pool, policy, items, options, obs_norm, policy_factory)
        return [done[item.number] for item in items]
    run = EpisodesRun(pool, policy, ItemQueue(items), options, obs_norm)
    try:
        while pool.waiting:
            run.advance(min_slots)
    except CorralError as error:
        error.episodes = tuple(run.done[number] for number in sorted(run.done))
        raise
    return [run.done[item.number] for item in items]


def _items(
    pool: Pool | SiteGroup,
    episodes: int | None,
    tasks: Sequence[Any] | None,
    seeds: Sequence[int] | None,
    seed: int,
    repeat: int,
) -> list[EpisodeItem]:
    given = {"tasks": tasks, "seeds": seeds}
    counts = {name: len(each) for name, each in given.items() if each is not None}
    if episodes is not None:
        counts["episodes"] = episodes
    if not counts:
        raise OptionError(
            "the number of episodes is missing; pass episodes, tasks or seeds"
        )
    if len(set(counts.values())) > 1:
        said = ", ".join(f"{count} {name}" for name, count in counts.items())
        raise OptionError(f"the numbers do not agree: {said}")
    (count,) = set(counts.values())
    if count < 0:
        raise OptionError(f"episodes is {episodes!r}; it must be >= 0")
    items = []
    for number in range(count):
        own = item_seed(seed, number) if seeds is None else int(seeds[number])
        task = drawn_task(pool, seed, number) if tasks is None else tasks[number]
        for copy in range(repeat):
            draws = copy_seed(own, copy)
            items.append(EpisodeItem(number * repeat + copy, own, task, draws))
    return items


def drawn_task(pool: Pool | SiteGroup, seed: int, number: int) -> Any:
    """The task of an item without one; it depends on the number, not on the slot."""
    if pool.sample_task is None:
        return NO_TASK
    rng = np.random.default_rng(episode_seed(seed, number, SeedDomain.TASKS))
    return pool.sample_task(number, 0, rng)
