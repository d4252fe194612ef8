"""Whole episodes in the workers, each with a copy of the policy.

If a worker dies, its running items are run again, and so are those that were done
there: their results died with it. Of faults that such an item had before, only the
number is known, which counts for `max_restarts`.
"""

from __future__ import annotations

import weakref
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import cast

from corral.core import Policy
from corral.engine.pool import Pool
from corral.engine.pool.sites import Sites
from corral.engine.worker.serialization import pack
from corral.errors import CorralError, FactoryError, Fault
from corral.rollouts.desk import Desk
from corral.rollouts.episode_run import Episode, EpisodeItem, EpisodeOptions
from corral.rollouts.normalise import ObsNorm
from corral.rollouts.published_policy import PolicyFactory, PublishedPolicy
from corral.rollouts.site import policy_sites


@dataclass(slots=True)
class _EpisodeSites:
    """The sites of a pool for episodes, and the last policy that acted there."""

    sites: Sites
    published: PublishedPolicy


# By pool: its sites are made once.
_SITES: weakref.WeakKeyDictionary[Pool, _EpisodeSites] = weakref.WeakKeyDictionary()


def _sites_of(
    pool: Pool, policy: Policy, factory: PolicyFactory | None
) -> _EpisodeSites:
    found = _SITES.get(pool)
    if found is None:
        # By proxy: otherwise this table would keep a pool open that nothing else uses.
        sites = policy_sites(cast(Pool, weakref.proxy(pool)))
        found = _EpisodeSites(sites, PublishedPolicy(policy, True, factory))
        _SITES[pool] = found
    elif found.published.policy is not policy or found.published.factory != factory:
        found.published.follow(policy, factory)
    return found


def run_in_workers(
    pool: Pool,
    policy: Policy,
    items: Sequence[EpisodeItem],
    options: EpisodeOptions,
    norm: ObsNorm | None,
    factory: PolicyFactory | None = None,
) -> dict[int, Episode]:
    """Run items in the workers of a pool; returns episodes by number."""
    here = _sites_of(pool, policy, factory)
    here.published.publish()
    return run_at_sites(pool, here.sites, here.published, items, options, norm)


def run_at_sites(
    pool: Pool,
    sites: Sites,
    published: PublishedPolicy,
    items: Sequence[EpisodeItem],
    options: EpisodeOptions,
    norm: ObsNorm | None,
) -> dict[int, Episode]:
    """Run items at the sites of a pool; returns episodes by number."""
    waiting = {item.number: item for item in items}
    done: dict[int, Episode] = {}
    while waiting:
        desk = Desk(pool.num_envs, len(items))
        orders = published.orders(norm)
        every = list(waiting.values())
        count = len(pool.shards)
        shares = [every] * count
        if desk.address is None:
            shares = [every[number::count] for number in range(count)]
        args = {id(mine): (orders, mine, desk.address, options) for mine in shares}
        try:
            found = sites.call("run_episodes", [args[id(one)] for one in shares])
        except CorralError as error:
            if isinstance(error, FactoryError):
                _check_tasks(every)  # names the item
            error.episodes = tuple(_finished(sites, done))
            raise
        except BaseException:  # Ctrl-C; workers may be at work for long
            desk.stop()
            raise
        finally:
            desk.close()
        for one in found:
            done |= {} if isinstance(one, Fault) else one
        for number in waiting.keys() - done.keys():
            _recall(waiting[number], desk.faults(number))
        for slots, one in zip(pool.shards, found, strict=True):
            running = desk.running(slots) if isinstance(one, Fault) else {}
            for slot, number in running.items():
                _blame(waiting[number], one, slot)
        waiting = _remaining(waiting, done, options)
    return done


def _check_tasks(items: Sequence[EpisodeItem]) -> None:
    """Raise FactoryError for the first task that cannot be pickled."""
    for item in items:
        pack(item.task, f"the task of item {item.number}")


def _recall(item: EpisodeItem, count: int) -> None:
    """An item had so many faults of its own, some of them in a worker that died."""
    lost = "its text was lost with the worker, which died later"
    fault = Fault("raised", "step", error_type="Exception", error_text=lost)
    item.faults += [fault] * (count - item.own_faults)


def _blame(item: EpisodeItem, fault: Fault, slot: int) -> None:
    """An item was running in a worker that died."""
    if fault.slot not in (None, slot):
        fault = replace(fault, kind="shardmate", beside=fault.slot, episode=None)
    item.faults.append(replace(fault, slot=slot))


def _remaining(
    waiting: dict[int, EpisodeItem], done: dict[int, Episode], options: EpisodeOptions
) -> dict[int, EpisodeItem]:
    """What has to be run again; items with too many faults have failed."""
    left = {}
    for number, item in waiting.items():
        if number in done:
            continue
        if item.can_run_again(options.max_restarts):
            left[number] = item
        else:
            done[number] = item.result(failed=True)
    return left


def _finished(sites: Sites, done: dict[int, Episode]) -> list[Episode]:
    """The episodes that were finished before an error, in their order."""
    values = sites.take_values()
    with suppress(CorralError):  # the pool can only be closed
        values += sites.call("take_finished")
    found = dict(done)
    for value in values:
        found |= value if isinstance(value, dict) else {}
    return [found[number] for number in sorted(found)]
