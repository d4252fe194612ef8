"""The commands and questions that a worker obeys and answers.

Until it serves, a worker process reads messages from its mailbox: ProcessSetup,
ProbeEnvs*, BuildShard, BindBlock. From then on, a frequent command is one 32-bit entry
in its queue: verb, autoreset mode and slot. Everything else is a message in the
mailbox, announced by a MAIL entry so that it keeps its place::

    entry   | verb : 4 | mode : 4 | index : 24 |
"""

from __future__ import annotations

import enum
import itertools
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from corral.core import NO_TASK
from corral.engine.adapters.task_delivery import TaskBy
from corral.engine.faults.restart_limits import RestartBudget
from corral.engine.layout.plan import ControlPlan, DataPlan
from corral.engine.transport import doorbell
from corral.engine.transport.segment import SegmentAddress

# An entry of a queue: a verb, a mode and an index, from the highest bits down.
INDEX_BITS, MODE_BITS = 24, 4
VERB_SHIFT = INDEX_BITS + MODE_BITS
INDEX_MASK, MODE_MASK = (1 << INDEX_BITS) - 1, (1 << MODE_BITS) - 1


# Added to the mode of a step: the actions are in the block's wide rows.
WIDE_ACTIONS = 4
# Added to the mode where a shard is one batch: the next entry belongs to this one.
MORE_FOLLOWS = 8


class Verb(enum.IntEnum):
    """The frequent commands."""

    STEP = 1
    STEP_ALL = 2
    RESET = 3
    MAIL = 4


def entry(verb: Verb, mode: int = 0, index: int = 0) -> int:
    """Pack one queue entry; `index` counts from the shard's first slot."""
    return verb << VERB_SHIFT | mode << INDEX_BITS | index


# MORE_FOLLOWS in an entry.
MORE_FOLLOWS_BIT = MORE_FOLLOWS << INDEX_BITS


def as_one_command(entries: list[int]) -> list[int]:
    """Entries to one worker, as one command to its batch."""
    return [*(one | MORE_FOLLOWS_BIT for one in entries[:-1]), *entries[-1:]]


# Made once: arithmetic on an IntEnum costs 0.3 µs, which a batch of CartPoles notices.
# By verb and mode, of index 0.
ENTRIES = {
    verb: tuple(entry(verb, mode) for mode in range(2 * WIDE_ACTIONS)) for verb in Verb
}
STEP_ALL_ENTRIES = ENTRIES[Verb.STEP_ALL]
MAIL_ENTRY = entry(Verb.MAIL)


# From 1.
next_question_number = itertools.count(1).__next__


@dataclass(frozen=True, slots=True)
class Ask:
    """A question; the worker answers with a Reply.

    Attributes:
        verb: call | get_attr | set_attr | apply | run | site | close
        number: Comes back with the answer. The caller waits for the answer to its
            latest question and drops others, for instance after Ctrl-C.
    """

    verb: str
    indexes: tuple[int, ...] = ()
    payload: Any = None
    number: int = field(default_factory=next_question_number)


class PickledAsk(NamedTuple):
    """A question that is pickled already, once for many workers."""

    number: int
    data: bytes


@dataclass(frozen=True, slots=True)
class MapCall:
    """What a worker has to know for the items of one `map`.

    Attributes:
        function: What is mapped: a callable, or bytes that open to one.
        version: How often the shared arrays were changed.
        segments: Where arrays are that were shared after the worker was started.
        arrays: The same where no memory is shared.
    """

    function: Any
    version: int = 0
    segments: tuple[SegmentAddress, ...] = ()
    arrays: Mapping[str, NDArray[Any]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class MapItem:
    """What a worker is asked to `run`; with its first item of a `map`, the call."""

    item: Any
    call: MapCall | None


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


@dataclass(frozen=True, slots=True)
class NewSampleTask:
    """Another function that draws tasks, from the next episode on."""

    sample_task: Any


# Before it serves --------------------------------------------------------------------

# Seconds to find out whether envs may share a process, once the first is built.
SHARING_PROBE_SECONDS = 0.5
# Seconds of a constructor, imports left out: three of these take most of that.
LONG_BUILD_SECONDS = 0.1


@dataclass(slots=True)
class ProcessSetup:
    """The first message: what the process should look like."""

    argv: list[Any]
    log_levels: dict[str, int]
    registry: list[bytes]
    control: ControlPlan
    bell_kind: doorbell.Kind


@dataclass(slots=True)
class ShardOptions:
    """How a shard treats its episodes.

    Attributes:
        seeded: Whether episodes get seeds from (root seed, slot, episode), or start
            bare.
        task_by: How envs are told their tasks; None for the first way that an env has.
        repeat: Neighbouring slots whose episodes have one seed and one task.
        restarts: How often an env that raised may be built again; None for never.
        memory_limit: Bytes; a worker that holds more ends at the end of its slot's
            episode.
        batched: Whether one vector of environments is the whole shard: see
            `batched_shard`.
        checks_sharing: Whether envs share a process here, and one that must not is to
            be refused.
        first_slot: The number of slot 0 in seeds and tasks, where the pool has a part
            of the slots of a cluster.
    """

    root_seed: int = 0
    seeded: bool = True
    infos: str | tuple[str, ...] = "all"
    sample_task: Callable[[int, int, np.random.Generator], Any] | None = None
    task_by: TaskBy | None = None
    repeat: int = 1
    isolate_rng: bool = False
    restarts: RestartBudget | None = None
    memory_limit: int | None = None
    batched: bool = False
    checks_sharing: bool = False
    first_slot: int = 0

    def group(self, slot: int) -> int:
        """The number that a slot's seeds and tasks are drawn from."""
        return (self.first_slot + slot) // self.repeat


@dataclass(slots=True)
class Job:
    """All that a worker needs to start.

    Attributes:
        factories: One per slot; callables, or bytes that open to them.
        owns_process: Whether global generators and thread counts are the worker's to
            set.
        generation: How many workers have run these slots before.
    """

    worker: int
    slots: range
    factories: Any
    options: ShardOptions
    worker_init: Any = None
    per_worker: Any = None
    shared: dict[str, Any] = field(default_factory=dict)
    device: str | None = None
    owns_process: bool = False
    threads: int | None = None
    generation: int = 0

    @property
    def seed(self) -> int | None:
        """The root seed, where it means anything to the caller."""
        return self.options.root_seed if self.slots else None


@dataclass(frozen=True, slots=True)
class ProbeRequest:
    """What a probe shall find out.

    Attributes:
        seconds: Seconds for timing; 0 to time only the steps of the recording.
        judges: Whether envs may share a process.
        limit: Seconds for that.
        long_to_build: Seconds of a constructor above which no second env is built.
        seeded: Whether every episode of a recording gets a seed, or only the first.
        thorough: Whether to ignore what the env declares, allow longer episodes, and
            build another env after one was closed: for `corral doctor`.
        threads: Whether to run two envs in a thread each, also if they do not wait.
    """

    seconds: float = 0.0
    judges: bool = True
    limit: float = SHARING_PROBE_SECONDS
    long_to_build: float = LONG_BUILD_SECONDS
    seeded: bool = False
    thorough: bool = False
    threads: bool = False


@dataclass(slots=True)
class ProbeEnvs:
    """Try some envs before the shard is built, and close them.

    Attributes:
        recorded: What envs did elsewhere, to be repeated alone: see `probe.Doubt`.
    """

    job: Job
    question: ProbeRequest = field(default_factory=ProbeRequest)
    recorded: bytes | None = None


@dataclass(slots=True)
class BuildShard:
    """Build the shard."""

    job: Job


@dataclass(slots=True)
class ResumeState:
    """Where a worker that takes another's place continues.

    Attributes:
        tickets: The last command that each slot has finished.
        columns: The info columns defined so far.
        tasks: What each slot's episode was about, for those that are begun again.
    """

    tickets: list[int]
    care: bytes
    columns: list[Any]
    tasks: list[Any]


@dataclass(slots=True)
class BindBlock:
    """Take your part of the block and start serving.

    Attributes:
        resume: (of a worker that takes another's place)
    """

    plan: DataPlan
    codecs: bytes
    spin: float
    resume: ResumeState | None = None
