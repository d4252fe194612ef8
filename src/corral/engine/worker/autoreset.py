"""What follows the end of an episode; the only code that begins one unasked.

    next_step   the step after the end resets instead of stepping: a filler row
    same_step   the step that ends an episode returns the next one's first observation
    off         nothing; the caller resets

In every mode the last observation is copied to `final_obs` before anything is reset,
since an env may reuse its observation buffer.
"""

from __future__ import annotations

from typing import Any, Protocol

from corral.engine.layout.plan import AFTER_STEP, BEFORE_RESET
from corral.engine.worker.info_writer import InfoWriter
from corral.engine.worker.record import EPISODE_LOST, EPISODE_OVER, NEXT_EPISODE_DUE
from corral.errors import EpisodeOver

NEXT_STEP, SAME_STEP, OFF = range(3)
MODES = {"next_step": NEXT_STEP, "same_step": SAME_STEP, "off": OFF}


class ShardEpisodes(Protocol):
    """What the end of an episode asks of a shard, which is a `shard.Shard`."""

    care: bytearray
    info_writer: InfoWriter

    def begin(self, index: int, row: int) -> None: ...

    def begin_next(self, index: int, row: int) -> None: ...

    def break_off(self, index: int) -> None: ...

    def cut(self, index: int, row: int) -> None: ...

    def retire_if_outgrown(self, stage: int) -> None: ...

    def write_final(self, index: int, obs: Any) -> None: ...

    def write_started(self, index: int, row: int, valid: bool) -> None: ...


def instead_of_stepping(shard: ShardEpisodes, index: int, row: int, mode: int) -> None:
    """Obey a step command in a slot whose episode is over or lost."""
    care = shard.care[index]
    if care & EPISODE_LOST:
        shard.break_off(index)
        after_a_fault(shard, index, row, mode)
        return
    if care & NEXT_EPISODE_DUE:
        shard.begin_next(index, row)
        return
    if mode == OFF:
        raise EpisodeOver(
            "the episode has ended; with autoreset off, reset the slot before a step"
        )
    shard.retire_if_outgrown(BEFORE_RESET)
    # An episode that ended under `off` or `next_step` is restarted in either mode.
    shard.begin(index, row)
    shard.write_started(index, row, valid=False)


def after_the_end(
    shard: ShardEpisodes,
    index: int,
    row: int,
    mode: int,
    obs: Any,
    info: dict[str, Any],
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


def after_a_fault(shard: ShardEpisodes, index: int, row: int, mode: int) -> None:
    """Truncate an episode that broke off, and begin the next one as the mode says."""
    if shard.care[index] & EPISODE_OVER:  # one had ended, and the next could not begin
        shard.begin(index, row)
        shard.write_started(index, row, valid=False)
        return
    shard.cut(index, row)
    if mode == SAME_STEP:
        shard.begin_next(index, row)
    else:
        shard.care[index] |= EPISODE_OVER
