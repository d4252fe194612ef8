"""An env that failed in company: would it have failed alone?

Some simulators keep their state in the process, so that the second env in it breaks the
first, or the first the second. What the env says then (`getJointState failed`) does not
tell. So an env that could not be reset beside others is tried in a process of its own:

    alone      reset, reset, reset, …    all of them have to work
    a pair     reset                     it has to fail, as before

What fails alone as well, or now and then, is nobody else's fault. An env that could not
even be built is not tried: building it may have been the harm.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from corral.core import NO_TASK
from corral.errors import CorralError, Fault, FaultError
from corral.executors.contract import Assignment
from corral.pool.options import FaceOptions

if TYPE_CHECKING:
    from corral.pool.pool import Pool

SUSPECT = ("construct", "reset")
"""What a second env in a process fails in."""
SECONDS = 10.0
"""For the envs to be built, and again for each reset."""
RESETS = 8
"""Alone, all of which have to work; fewer where they take longer than PATIENCE."""
PATIENCE = 2.0


def judged(
    faults: Sequence[Fault], assignment: Assignment, shards: Sequence[range], here: bool
) -> list[Fault]:
    """The same faults; those that may be the company's say whether they are.

    One is tried; others with the same words are taken to have the same reason.

    Args:
        faults: of one batch.
        assignment: what the envs were built with.
        shards: who shared with whom.
        here: whether all of them are in one process.
    """
    told: list[Fault] = []
    tried: dict[tuple[Any, ...], bool | None] = {}
    for fault in faults:
        company = 0 if assignment.options.batched else _company(fault, shards, here)
        words = (fault.command, fault.error_type, fault.error_text)
        if company and not tried and fault.command == "reset":
            assert fault.slot is not None
            beside = _pair(fault.slot, shards, here)
            tried[words] = fails_alone(assignment, fault, beside)
        if company:
            fault = replace(fault, company=company, alone=tried.get(words))
        told.append(fault)
    return told


def _company(fault: Fault, shards: Sequence[range], here: bool) -> int:
    """How many others were in its process by then."""
    if fault.kind not in ("raised", "start") or fault.command not in SUSPECT:
        return 0
    slot = fault.slot
    if slot is None or fault.step:
        return 0
    shared = _sharing(slot, shards, here)
    return slot - shared.start if fault.command == "construct" else len(shared) - 1


def _sharing(slot: int, shards: Sequence[range], here: bool) -> range:
    """The slots of its process."""
    if here:
        return range(shards[-1].stop)
    return next(shard for shard in shards if slot in shard)


def _pair(slot: int, shards: Sequence[range], here: bool) -> range:
    """The slot and one of those beside it, in their order."""
    first = max(slot - 1, _sharing(slot, shards, here).start)
    return range(first, first + 2)


def fails_alone(assignment: Assignment, fault: Fault, pair: range) -> bool | None:
    """Whether its reset fails alone as well; None if that cannot be told."""
    assert fault.slot is not None
    alone = range(fault.slot, fault.slot + 1)
    try:
        if _fails(assignment, fault, alone, RESETS):
            return True
        return False if _fails(assignment, fault, pair, 1) else None
    except (CorralError, OSError):  # it hung, died, or failed in some other way
        return None


def _fails(assignment: Assignment, fault: Fault, slots: range, resets: int) -> bool:
    """Whether the env fails again, with these slots in a process of their own."""
    place = slots.index(fault.slot or 0)
    seeds: list[int | None] = [None] * len(slots)
    tasks: list[Any] = [NO_TASK] * len(slots)
    seeds[place] = fault.seed
    tasks[place] = fault.task if fault.has_task else NO_TASK
    ending = time.monotonic() + PATIENCE
    try:
        with _apart(assignment, slots) as pool:
            for _ in range(resets):
                pool.reset(seeds=seeds, tasks=tasks, options=fault.options)
                if time.monotonic() > ending:
                    break
    except FaultError as error:
        if any(_is_like(one, fault, place) for one in error.faults or [error.fault]):
            return True
        raise
    return False


def _is_like(again: Fault, fault: Fault, place: int) -> bool:
    """Whether this is what had gone wrong."""
    same = again.error_type == fault.error_type
    return again.slot == place and same and again.kind in ("raised", "start")


def _apart(assignment: Assignment, slots: range) -> Pool:
    """These slots in one process, built as they were."""
    from corral.pool.pool import Pool

    given: dict[str, Any] = {
        "worker_init": assignment.worker_init,
        "per_worker": assignment.per_worker,
        "shared": assignment.shared,
        "threads_per_worker": assignment.threads_per_worker,
        "devices": assignment.devices[:1],
        "isolate_rng": assignment.options.isolate_rng,
        "seed": assignment.options.root_seed,
    }
    return Pool(
        [assignment.factories[slot] for slot in slots],
        backend="process",
        workers=1,
        isolation="shared",
        infos="none",
        start_timeout=SECONDS,
        reset_timeout=SECONDS,
        close_timeout=2.0,
        _face=FaceOptions(tries_alone=False),
        **given,
    )
