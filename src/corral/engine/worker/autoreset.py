"""What follows the end of an episode; the only code that begins one unasked.

    next_step   the step after the end resets instead of stepping: a filler row
    same_step   the step that ends an episode returns the next one's first observation
    off         nothing; the caller resets
    hold        every step after the end repeats the last row, until the caller resets

In every mode the last observation is copied to `final_obs` before anything is reset,
since an env may reuse its observation buffer.

An env that raised is built again, and the command that failed is answered from it:

    raised ──► budget ──► wait ──► close, build ──► begin as the mode says ──► answered
                 │  ▲                   │                      │
                 │  └───── raised ──────┴──────────────────────┘
                 └─ spent: the fault is the answer
"""

from __future__ import annotations

import time
from dataclasses import replace
from typing import Any

from corral.engine.faults.advice import mistake_in
from corral.engine.layout.plan import AFTER_STEP, BEFORE_RESET, CONSTRUCTING, STEPPING
from corral.engine.worker.record import EPISODE_LOST, EPISODE_OVER, NEXT_EPISODE_DUE
from corral.engine.worker.shard_rows import ShardRows
from corral.errors import EpisodeOver, Fault, OrderError, SpacesDiffer

NEXT_STEP, SAME_STEP, OFF, HOLD = range(4)
MODES = {"next_step": NEXT_STEP, "same_step": SAME_STEP, "off": OFF, "hold": HOLD}


def instead_of_stepping(shard: ShardRows, index: int, row: int, mode: int) -> None:
    """Obey a step command in a slot whose episode is over or lost."""
    care = shard.care[index]
    if care & EPISODE_LOST:
        shard.care[index] &= ~EPISODE_LOST
        shard.plan.break_off(index)  # the next episode is this one again
        after_a_fault(shard, index, row, mode)
    elif care & NEXT_EPISODE_DUE:
        shard.begin_next(index, row)
    elif mode == HOLD:
        shard.hold(index, row)
    elif mode == OFF:
        raise EpisodeOver(
            "the episode has ended; with autoreset off, reset the slot before a step"
        )
    else:
        shard.retire_if_outgrown(BEFORE_RESET)
        # An episode that ended under `off` or `next_step` is restarted in either mode.
        shard.begin(index, row, valid=False)


def after_the_end(
    shard: ShardRows, index: int, row: int, mode: int, obs: Any, info: dict[str, Any]
) -> None:
    """Handle a step that ended the episode."""
    shard.write_final(index, obs)
    if mode != SAME_STEP:
        shard.info_writer.write(index, row, info, final=True)
        shard.care[index] |= EPISODE_OVER
        return
    shard.info_writer.write_end(index, info)
    shard.retire_if_outgrown(AFTER_STEP)
    shard.begin_next(index, row)


def after_a_fault(shard: ShardRows, index: int, row: int, mode: int) -> None:
    """Truncate an episode that broke off, and begin the next one as the mode says."""
    if shard.care[index] & EPISODE_OVER:  # one had ended, and the next could not begin
        shard.begin(index, row, valid=False)
        return
    shard.cut(index, row)
    if mode == SAME_STEP:
        shard.begin_next(index, row)
    else:
        shard.care[index] |= EPISODE_OVER


def answered_anew(
    shard: ShardRows,
    index: int,
    row: int,
    mode: int | None,
    standing: bool,
    fault: Fault,
) -> Fault | None:
    """Answer a command from a new env; returns the fault if that cannot be done.

    Args:
        shard: where the env failed.
        index: whose env failed.
        row: where to write.
        mode: the autoreset mode of a step; None for a reset.
        standing: whether the step's transition is recorded, and only its next episode
            failed.
        fault: what was raised.
    """
    budget = shard.options.restarts
    # A new env does not help after a mistake of the caller's, or if its spaces differ.
    while not isinstance(mistake_in(fault), (OrderError, SpacesDiffer)):
        slot = shard.slots[index]
        delay = None if budget is None else budget.spend(slot, time.monotonic())
        if delay is None:
            return replace(fault, gave_up=budget is not None)
        command = "construct"
        try:
            shard.mark(CONSTRUCTING)
            if delay:  # not for 0: that gives the core away all the same
                time.sleep(delay)
                shard.mark(CONSTRUCTING)
            shard.envs.rebuild(index)
            shard.mark(STEPPING)
            # The caller's own reset is repeated as it was.
            shard.lose_episode(index, repeated=mode is None)
            command = "reset"
            if not standing:
                shard.info_writer.discard(index)  # what was said of the outcome is void
            if standing:
                shard.begin_next(index, row)
            elif mode is None:
                shard.begin(index, row, valid=True)
            else:
                after_a_fault(shard, index, row, mode)
            return None
        except BaseException as again:
            shard.guard(again)
            fault = shard.described(index, command, again)
    return fault
