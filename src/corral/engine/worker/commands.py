"""What a worker can be asked to do.

Frequent commands are one 32-bit entry in the worker's queue: verb, autoreset mode and
slot. Everything else is a message in the mailbox, announced by a MAIL entry so that it
keeps its place in the order::

    entry   | verb : 4 | mode : 4 | index : 24 |
"""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import Any

from corral.core import NO_TASK

INDEX_BITS = 24
INDEX_MASK = (1 << INDEX_BITS) - 1


WIDE_ACTIONS = 4
"""Added to the mode of a step: the actions are in the block's wide rows."""
MORE_FOLLOWS = 8
"""Added to the mode where a shard is one batch: the next entry belongs to this one."""


class Verb(enum.IntEnum):
    """The frequent commands."""

    STEP = 1
    STEP_ALL = 2
    RESET = 3
    MAIL = 4


def entry(verb: Verb, mode: int = 0, index: int = 0) -> int:
    """Pack one queue entry; `index` counts from the shard's first slot."""
    return verb << 28 | mode << INDEX_BITS | index


MORE_FOLLOWS_BIT = MORE_FOLLOWS << INDEX_BITS
"""MORE_FOLLOWS in an entry."""


def as_one_command(entries: list[int]) -> list[int]:
    """Entries to one worker, as one command to its batch."""
    return [*(one | MORE_FOLLOWS_BIT for one in entries[:-1]), *entries[-1:]]


# Made once: arithmetic on an IntEnum costs 0.3 µs, which a batch of CartPoles notices.
ENTRIES = {
    verb: tuple(entry(verb, mode) for mode in range(2 * WIDE_ACTIONS)) for verb in Verb
}
"""By verb and mode, of index 0."""
STEP_ALL_ENTRIES = ENTRIES[Verb.STEP_ALL]
MAIL_ENTRY = entry(Verb.MAIL)


@dataclass(frozen=True, slots=True)
class Ask:
    """A question; the worker answers with a Reply."""

    verb: str
    """call | get_attr | set_attr | apply | run | close"""
    indexes: tuple[int, ...] = ()
    payload: Any = None


@dataclass(frozen=True, slots=True)
class NewColumns:
    """New info columns, for all workers."""

    columns: list[Any]


@dataclass(frozen=True, slots=True)
class NextEpisode:
    """About the next episode of a slot: what did not fit into the queue."""

    index: int
    options: dict[str, Any] | None = None
    task: Any = NO_TASK
    seed: int | None = None


@dataclass(frozen=True, slots=True)
class MailedAction:
    """The mailed leaves of a slot's next action."""

    index: int
    values: list[Any]


@dataclass(frozen=True, slots=True)
class RawAction:
    """A slot's next action, as the caller gave it."""

    index: int
    value: Any


@dataclass(frozen=True, slots=True)
class NewRootSeed:
    """A new root seed: episodes are counted from the start again."""

    seed: int
