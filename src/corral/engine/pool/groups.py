"""Two groups of slots that take turns: one steps while the policy acts for the other.

    caller     think A ─ send A ─ think B ─ send B ─ think A ─ send A ─
    workers    ───── step B ────── step A ────── step B ────── step A ─

Both groups have slots of every worker, so that all workers have work whichever turn it
is. Where a worker has one slot, half the workers are in each group.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import cycle

import numpy as np
from numpy.typing import NDArray

from corral.core import Step
from corral.engine.pool.pool import Pool
from corral.errors import OptionError

Group = NDArray[np.intp]


def two_groups(pool: Pool) -> tuple[Group, Group]:
    """All slots in two groups, as equal as can be, every worker's shard in halves."""
    if pool.num_envs < 2:
        raise OptionError("two groups need at least two slots; this pool has one")
    groups: tuple[list[int], list[int]] = ([], [])
    for shard in pool.shards:
        # An odd shard gives its extra slot to the group that has fewer.
        more = len(shard) % 2 and len(groups[0]) <= len(groups[1])
        half = len(shard) // 2 + more
        groups[0].extend(shard[:half])
        groups[1].extend(shard[half:])
    return np.array(groups[0]), np.array(groups[1])


def take_turns(pool: Pool, groups: tuple[Group, ...] | None = None) -> Iterator[Step]:
    """Yield the groups' results in turns, endlessly; send to each before the next.

        pool.send_reset()
        for step in corral.take_turns(pool):
            actions = policy(step.obs)            # while the other group steps
            pool.send(actions, slots=step.slots)

    Args:
        pool: every slot of it has a pending command.
        groups: `two_groups(pool)` if None.
    """
    for slots in cycle(two_groups(pool) if groups is None else groups):
        yield pool.recv(slots=slots)
