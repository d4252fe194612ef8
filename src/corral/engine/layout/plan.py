"""The plan of a pool's block: a control part first, then the data.

    control   parent's bell | one bell, queue and words per worker | per-slot words
    data      records | obs leaves | action leaves | final_obs leaves | info columns

The control part depends on slots and workers alone, so it exists before any env does.
The data part is appended once the workers have reported their spaces.

Rows. A slot's ticket counts the commands it was sent. Command t writes observation and
record row `t & ROW_MASK`, so what the previous command returned stays intact, and reads
action row `t % action_rows`, so the actions of an episode, or the last of a long one,
are in the block even after a SIGKILL.

The ticket of slot i is `base + offsets[i]`, counted alike by pool and worker: a command
to all slots moves the base alone.
"""

from __future__ import annotations

import math
from copy import copy
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from corral.engine.layout.codec import Codec
from corral.engine.layout.columns import ARENA_BYTES_PER_SLOT, INFO_ROWS, MAX_COLUMNS
from corral.engine.layout.contract import widened
from corral.engine.layout.durations import BUCKETS
from corral.engine.layout.fields import Field, Planner

BLOCK_ROWS = 2
# `ticket & ROW_MASK` is the row of observations and records that a command writes.
ROW_MASK = BLOCK_ROWS - 1
MIN_ACTION_ROWS, MAX_ACTION_ROWS = 8, 1024
# Room for the actions of all slots; rows that were never written cost nothing.
ACTION_BYTES = 16 << 20
# Tickets, rings and messages are counted without bound; the block has such counts as
# words of 32 bits, and they are compared as these.
WORD_MASK = 0xFFFFFFFF
# Of two such words the later one is less than this ahead.
HALF_RANGE = 1 << 31
CACHE_LINE_BYTES = 64

# One cache line per slot and row: two workers never write to the same line, and the C
# recorder finds every scalar at a fixed offset from one address.
_FLAGS = ("terminated", "truncated", "started", "valid")
_NUMBERS = ("reward", "episode_return", "seed", "step_time", "episode_length")
RECORD_DTYPE = np.dtype(
    {
        "names": _NUMBERS + _FLAGS,
        "formats": ["f8", "f8", "i8", "f8", "i4", "?", "?", "?", "?"],
        "offsets": [0, 8, 16, 24, 32, 36, 37, 38, 39],
        "itemsize": CACHE_LINE_BYTES,
    }
)
# The fields of a record that a Step shows, under the same names.
SCALAR_FIELDS = ("reward", *_FLAGS, "episode_return", "episode_length", "seed")

# The words of a worker's line of vitals, which its parent reads.
# Seconds spent on commands; when its current command began, by time.perf_counter, 0
# while it waits; READING, STEPPING, RESETTING, CONSTRUCTING, ANSWERING, CLOSING or
# DECIDING; when it ended to be replaced, BEFORE_RESET, AFTER_STEP or AFTER_SITE_CALL,
# 0 if it did not; the slot it is at, counted from its shard's first (while its first
# envs are built, from the pool's first), NO_SLOT between two; 1 from the beginning of a
# site's call until its parent has the reply; the number of its latest question.
BUSY_SECONDS, BUSY_SINCE, CURRENT_COMMAND, RETIREMENT_STAGE, CURRENT_SLOT = range(5)
SITE_CALLED, QUESTION_NUMBER = 5, 6
NO_SLOT = -1
READING, STEPPING, RESETTING, CONSTRUCTING, ANSWERING, CLOSING, DECIDING = range(7)
BEFORE_RESET, AFTER_STEP, AFTER_SITE_CALL = 1, 2, 3

# A worker's stop word: it is asked to end; it has ended its own children, which is the
# last thing it does. A worker that was killed, or called os._exit, never writes it.
CLOSE_ASKED, WORKER_ENDED = 1, 2

# The words that tell of a slot's episode, written before its env is reset.
# Number of the episode in its slot; how often it was restarted; its seed, -1 for none;
# the tickets of the commands in which it began, and began for the first time.
EPISODE_NUMBER, EPISODE_RESTARTS, EPISODE_SEED, BEGIN_TICKET, FIRST_BEGIN_TICKET = (
    range(5)
)

# How long a slot's steps and resets took, counted by length (see `layout.durations`).
DURATIONS_DTYPE = np.dtype(
    [
        ("step", "u4", (BUCKETS,)),
        ("reset", "u4", (BUCKETS,)),
        ("step_seconds", "f8"),
        ("reset_seconds", "f8"),
        ("", "u1", (CACHE_LINE_BYTES - 16,)),
    ]
)


# Where commands and wake-ups live; `ControlViews` says what the fields are.
ControlPlan = Planner


@dataclass(frozen=True, slots=True)
class DataPlan:
    """Where observations, actions and records live.

    Attributes:
        action_rows: A power of two.
        wide_action: For actions that do not fit the space's dtype without loss.
    """

    size: int
    record: Field
    obs: tuple[Field, ...]
    action: tuple[Field, ...]
    action_rows: int
    wide_action: tuple[Field, ...]
    final_obs: tuple[Field, ...]
    arena: Field
    presence: Field

    @property
    def touched(self) -> int:
        """Bytes that are certainly written to; most of the others never are."""
        fields = (self.record, *self.obs, *self.action, *self.final_obs)
        return sum(field.nbytes for field in fields)


def plan_control(slots: int, workers: int, largest_shard: int) -> ControlPlan:
    """Plan the part that does not depend on spaces."""
    planner, line = Planner(), CACHE_LINE_BYTES
    # A slot has at most one pending command; the rest is room for mail. A power of
    # two, so that positions stay right when the count of commands wraps around.
    capacity = 1 << (2 * largest_shard + 64).bit_length()
    planner.add("bells", "u1", (1 + workers, line))
    planner.add("queue", "u4", (workers, capacity))
    for name in ("posted", "informed"):
        planner.add(name, "u4", (workers,))
    for name in ("consumed", "stop"):
        planner.add(name, "u4", (workers, line // 4))
    planner.add("done", "u4", (slots,))
    planner.add("reset_seed", "i8", (slots,))
    planner.add("times", DURATIONS_DTYPE, (slots,))
    planner.add("vitals", "f8", (workers, line // 8))
    planner.add("episode", "i8", (slots, line // 8))
    return planner


def plan_data(slots: int, observation: Codec, action: Codec, start: int) -> DataPlan:
    """Plan the rest, from offset `start` on."""
    planner, action_rows = Planner(start), count_action_rows(slots, action)

    def leaves(name: str, codec: Codec, rows: int) -> tuple[Field, ...]:
        typed = widened if name == "wide_action" else np.dtype
        return tuple(
            planner.add(
                f"{name}{list(one.path)}", typed(one.dtype), (rows, slots, *one.shape)
            )
            for one in codec.leaves
        )

    return DataPlan(
        record=planner.add("record", RECORD_DTYPE, (BLOCK_ROWS, slots)),
        obs=leaves("obs", observation, BLOCK_ROWS),
        action=leaves("action", action, action_rows),
        action_rows=action_rows,
        wide_action=leaves("wide_action", action, action_rows),
        final_obs=leaves("final_obs", observation, 1),
        # The system gives memory to a page of the arena when it is written.
        arena=planner.add("arena", "u1", (INFO_ROWS * slots * ARENA_BYTES_PER_SLOT,)),
        presence=planner.add("presence", "u1", (INFO_ROWS, slots, MAX_COLUMNS)),
        size=planner.size,
    )


def count_action_rows(slots: int, action: Codec) -> int:
    """Actions that the block keeps of each slot: a power of two, as many as fit.

    >>> from gymnasium.spaces import Box, Discrete
    >>> from corral.engine.layout.codec import codec_for
    >>> count_action_rows(64, codec_for(Discrete(4)))
    1024
    >>> count_action_rows(64, codec_for(Box(0, 1, (1000,))))
    16
    """
    row = slots * sum(
        math.prod(leaf.shape) * (leaf.dtype.itemsize + widened(leaf.dtype).itemsize)
        for leaf in action.leaves
    )
    rows = min(MAX_ACTION_ROWS, ACTION_BYTES // row if row else MAX_ACTION_ROWS)
    return max(MIN_ACTION_ROWS, 1 << max(0, rows.bit_length() - 1))


class ControlViews:
    """The control part as arrays.

    Attributes:
        bells: (1 + workers, CACHE_LINE_BYTES) bytes: the parent's bell, then one per
            worker.
        queue: (workers, capacity): what each worker is asked to do, in order.
        posted: (workers,): messages each worker has put into its mailbox.
        informed: (workers,): steps of each worker that wrote info columns.
        consumed: (workers, 16): commands each worker has taken; a cache line each.
        stop: (workers, 16): CLOSE_ASKED, also by the lifeline; or WORKER_ENDED.
        done: (slots,): the ticket of the last command each slot has finished.
        reset_seed: (slots,): the seed of a reset command; -1 for none.
        times: (slots,) of DURATIONS_DTYPE: how long each slot's steps and resets took.
        vitals: (workers, 8): BUSY_SECONDS to QUESTION_NUMBER of each worker; a cache
            line each.
        episode: (slots, 8): EPISODE_NUMBER, ... of each slot's episode; a cache line
            each.
    """

    bells: NDArray[Any]
    queue: NDArray[Any]
    posted: NDArray[Any]
    informed: NDArray[Any]
    consumed: NDArray[Any]
    stop: NDArray[Any]
    done: NDArray[Any]
    reset_seed: NDArray[Any]
    times: NDArray[Any]
    vitals: NDArray[Any]
    episode: NDArray[Any]

    def __init__(self, plan: ControlPlan, memory: memoryview) -> None:
        self.plan = plan
        self.memory = memory
        for name, field in plan.fields.items():
            setattr(self, name, field.view(memory))

    def bell_offset(self, worker: int | None) -> int:
        """The offset of a worker's bell; None for the parent's."""
        line = 0 if worker is None else 1 + worker
        return self.plan.fields["bells"].offset + CACHE_LINE_BYTES * line

    def part(self, worker: int, slots: range) -> ControlViews:
        """The words of one worker and its slots, for a pool of these slots alone.

        What is posted and informed there stays there.
        """
        part = copy(self)
        for name in ("done", "reset_seed", "times", "episode"):
            setattr(part, name, getattr(self, name)[slots.start : slots.stop])
        for name in ("stop", "vitals"):
            setattr(part, name, getattr(self, name)[worker : worker + 1])
        part.posted, part.informed = np.zeros((2, 1), np.uint32)
        return part


class DataViews:
    """The data part as arrays."""

    def __init__(self, plan: DataPlan, memory: memoryview) -> None:
        self.record = plan.record.view(memory)
        self.obs = [field.view(memory) for field in plan.obs]
        self.action = [field.view(memory) for field in plan.action]
        # A ticket's action row is `ticket & action_mask`.
        self.action_mask = plan.action_rows - 1
        self.wide_action = [field.view(memory) for field in plan.wide_action]
        self.final_obs = [field.view(memory) for field in plan.final_obs]
        self.arena = plan.arena.view(memory)
        self.presence = plan.presence.view(memory)

    def part(self, slots: range) -> DataViews:
        """The rows of these slots, with info columns of their own."""
        part, here = copy(self), slice(slots.start, slots.stop)
        part.record = self.record[:, here]
        for name in ("obs", "action", "wide_action", "final_obs"):
            setattr(part, name, [array[:, here] for array in getattr(self, name)])
        part.arena = np.zeros(INFO_ROWS * len(slots) * ARENA_BYTES_PER_SLOT, np.uint8)
        part.presence = np.zeros((INFO_ROWS, len(slots), MAX_COLUMNS), np.uint8)
        return part


def is_later(count: int, than: int) -> bool:
    """Whether one of two counts, whole or as words of the block, is the later one."""
    return 0 < (count - than & WORD_MASK) < HALF_RANGE


def steps_since(began: int, ticket: int) -> int:
    """The steps of an episode from the command that began it to another one."""
    return ticket - began & WORD_MASK


class Tickets:
    """The tickets of `count` slots: of a whole pool, or of one worker's shard.

    They grow without bound here; in the block they are words of 32 bits.
    """

    __slots__ = ("_words", "base", "even", "offsets")

    def __init__(self, count: int) -> None:
        self.base = 0
        self.offsets = np.zeros(count, np.int64)
        # Whether all offsets are known to be 0; if not, `level` looks.
        self.even = True
        # The same memory: one item costs a third of what numpy takes for it.
        self._words = self.offsets.data

    def level(self) -> bool:
        """Whether all slots have the same ticket, which is then the base."""
        if not self.even and (self.offsets == self._words[0]).all():
            self.base += self._words[0]
            self.offsets[:] = 0
            self.even = True
        return self.even

    def advance(self, slot: int) -> int:
        """Count a command to one slot; returns its ticket."""
        self._words[slot] += 1
        self.even = False
        return self.base + self._words[slot]

    def of(self, slot: int) -> int:
        """The ticket of a slot's last command."""
        return self.base + self._words[slot]

    def word(self, slot: int) -> int:
        """The same as a word of the block."""
        return self.base + self._words[slot] & WORD_MASK

    def words(self) -> NDArray[np.int64]:
        """The same for every slot."""
        return self.base + self.offsets & WORD_MASK

    def whole(self, slot: int, word: int) -> int:
        """The ticket of a slot that is this word of the block.

        The nearest to its last command: workers have done less or, for a site, more.
        """
        last = self.of(slot)
        return last + ((word - last + HALF_RANGE & WORD_MASK) - HALF_RANGE)

    def take_over(self, words: list[int]) -> None:
        """Continue from the tickets of a worker that ended."""
        self.base = 0
        self.offsets[:] = words
        self.even = False
