"""An env that failed is built again, and the command that failed is answered from it.

raised ──► budget ──► wait ──► close, build ──► begin as the mode says ──► answered
             │  ▲                   │                      │
             │  └───── raised ──────┴──────────────────────┘
             └─ spent: the fault is the answer
"""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from typing import Protocol

from corral.engine.layout.plan import CONSTRUCTING, STEPPING
from corral.engine.worker import autoreset
from corral.engine.worker.commands import ShardOptions
from corral.engine.worker.forked_copies import Guard
from corral.engine.worker.shard_envs import ShardEnvs
from corral.errors import Fault, OrderError, SpacesDiffer


@dataclass(frozen=True, slots=True)
class FailedCommand:
    """The command that a slot had when its env failed."""

    index: int
    row: int
    mode: int | None
    """The autoreset mode of a step; None for a reset."""
    standing: bool
    """Whether the step's transition is recorded and only its next episode failed."""


class RestartableShard(autoreset.ShardEpisodes, Protocol):
    """What a restart asks of a shard, which is a `shard.Shard`."""

    envs: ShardEnvs
    guard: Guard
    options: ShardOptions
    slots: range

    def described(self, index: int, command: str, error: BaseException) -> Fault: ...

    def mark(self, doing: int) -> None: ...

    def lose_episode(self, index: int, repeated: bool) -> None: ...


def answered(
    shard: RestartableShard, failed: FailedCommand, error: BaseException, fault: Fault
) -> Fault | None:
    """Answer a command from a new env; returns the fault if that cannot be done."""
    index, budget = failed.index, shard.options.restarts
    # A new env does not help after a mistake of the caller's, or if its spaces differ.
    while not isinstance(error, (OrderError, SpacesDiffer)):
        slot = shard.slots[index]
        delay = None if budget is None else budget.spend(slot, time.monotonic())
        if delay is None:
            return replace(fault, gave_up=budget is not None)
        command = "construct"
        try:
            _rebuild(shard, failed, delay)
            command = "reset"
            _begin(shard, failed)
            return None
        except BaseException as again:
            shard.guard(again)
            error, fault = again, shard.described(index, command, again)
    return fault


def _rebuild(shard: RestartableShard, failed: FailedCommand, delay: float) -> None:
    shard.mark(CONSTRUCTING)
    time.sleep(delay)
    shard.mark(CONSTRUCTING)
    shard.envs.rebuild(failed.index)
    shard.mark(STEPPING)
    # The caller's own reset is repeated as it was.
    shard.lose_episode(failed.index, repeated=failed.mode is None)


def _begin(shard: RestartableShard, failed: FailedCommand) -> None:
    """Write the row that the command asked for, from the new env."""
    index, row = failed.index, failed.row
    if failed.standing:
        shard.begin_next(index, row)
        return
    shard.info_writer.discard(index)  # what was said of the outcome is void
    if failed.mode is None:
        shard.begin(index, row)
        shard.write_started(index, row, valid=True)
    else:
        autoreset.after_a_fault(shard, index, row, failed.mode)
