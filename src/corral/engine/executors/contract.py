"""What every executor can do, and what the pool tells it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from corral.core import EnvSpec, Factory
from corral.engine.layout.codec import Codecs
from corral.engine.layout.plan import DataViews
from corral.engine.worker.commands import Ask, ResumeState, ShardOptions, Verb
from corral.engine.worker.letters import Letter, Reply


@dataclass(frozen=True, slots=True)
class Capabilities:
    """What an executor can promise."""

    survives_deaths: bool
    """An env may take its worker down and not the caller."""
    deadlines: bool
    """A hung env can be given up."""
    own_globals: bool
    """Global generators and thread counts are the worker's, not the caller's."""
    inline: bool = False
    """The caller itself runs the envs: it has `step_inline` and `envs`."""


@dataclass(frozen=True, slots=True)
class Vitals:
    """A worker's signs of life."""

    pid: int
    busy_seconds: float | None
    """Spent obeying commands, since the start; None for the caller itself."""


@dataclass(slots=True)
class Assignment:
    """Who runs what, and what they are given to run it with."""

    factories: Sequence[Factory]
    shards: list[range]
    options: ShardOptions
    worker_init: Callable[[], Any] | None = None
    per_worker: Callable[[], Any] | None = None
    function: Callable[[Any], Any] | None = None
    shared: dict[str, NDArray[Any]] = field(default_factory=dict)
    threads_per_worker: int | None = 1
    devices: Sequence[str] = ()
    cores: int = 1
    start_timeout: float | None = None
    step_timeout: float | None = None
    reset_timeout: float | None = None
    item_timeout: float | None = None
    close_timeout: float = 10.0
    needs_processes: str = ""
    """What was asked for that only processes can give, in the caller's words."""

    @property
    def slots(self) -> int:
        """How many slots there are."""
        return len(self.factories)

    @property
    def seed(self) -> int | None:
        """The root seed, where it means anything to the caller."""
        return self.options.root_seed if self.function is None else None

    def device(self, worker: int) -> str | None:
        """Devices go round robin."""
        return self.devices[worker % len(self.devices)] if self.devices else None


class Executor(Protocol):
    """Owns workers; moves commands to them and results back. The pool's loop::

        executor.send_all(mode)
        executor.wait(finished, None, there)   # or an error that says why not
        letters, informed = executor.arrivals()

    Built first, bound once the spaces are known, closed in any state.
    """

    capabilities: Capabilities
    shards: list[range]
    done: NDArray[np.uint32]
    """The ticket of the last finished command, by slot."""
    reset_seed: NDArray[np.int64]
    """The seed for a slot's reset command; -1 for none."""
    times: NDArray[np.void]
    """How long each slot's steps and resets took, as `layout.plan.DURATIONS_DTYPE`."""
    episode: NDArray[np.int64]
    """What can be told of each slot's episode: the words of `layout.plan`."""
    on_return: Callable[[int], None]
    """Called with a worker that has taken another's place."""

    def build(self) -> list[EnvSpec]:
        """Build every env; returns what each said about itself."""

    def bind(self, codecs: Codecs) -> DataViews:
        """Lay out the block and start serving."""

    def send_all(self, mode: int) -> None:
        """Have every slot stepped."""

    def send(self, slots: NDArray[np.intp], verb: Verb, mode: int) -> None:
        """Have these slots stepped or reset."""

    def step_inline(self, mode: int) -> None:
        """Step every slot right now: `send_all` and `wait`; only where inline."""

    @property
    def envs(self) -> list[Any]:
        """The environments themselves; only where inline."""

    def post(self, worker: int, message: Any) -> None:
        """Post a message that wants no answer."""

    def post_each(self, messages: Sequence[tuple[int, Any]]) -> None:
        """Post messages about slots; none of them if one cannot be packed."""

    def ask(self, questions: dict[int, Ask]) -> None:
        """Ask workers; each of them answers in its turn."""

    def answers(
        self, workers: Iterable[int], timeout: float | None
    ) -> dict[int, Reply]:
        """Wait for the answers of workers that were asked; TimeoutError if late."""

    def first_answers(self, enough: Callable[[], bool]) -> dict[int, Reply]:
        """Wait until an item was run, or it is `enough`; the answers so far, by worker.

        For workers without slots, which have answered nothing but `run`.
        """

    def answered(self) -> dict[int, Reply]:
        """The answers that are here, by worker; each is given once."""

    def wait(
        self,
        target: int,
        timeout: float | None,
        is_done: Callable[[], bool],
        only_some: bool = False,
    ) -> bool:
        """Wait until what the caller waits for is `is_done`; False if it is late.

        Args:
            target: how many slot commands will have finished since the start by then:
                a hint when to look. Rings can be lost, and an env can make false ones.
            timeout: seconds; None for ever.
            is_done: looks at `done`.
            only_some: whether more than that is under way, in which case a ring may be
            held
                back (see `transport.doorbell`) by a worker that is busy with the rest.
        """

    def check_workers(self) -> None:
        """See whether all workers are there and in time, and raise if not.

        One that was replaced is put in its place, and `on_return` called.
        """

    def replace(self, worker: int, resume: ResumeState | None, delay: float) -> None:
        """Start another in the place of a worker that ended; does not wait for it.

        Until it is there, commands to its slots are dropped: who sent them sends them
        again when it has returned.
        """

    def retirement_stage(self, worker: int) -> int:
        """Whether a worker that ended made room for another, and at which stage."""

    def last_letters(self, worker: int) -> Sequence[Letter]:
        """What a worker that ended has left in its mailbox, and what others sent."""

    def arrivals(self) -> tuple[Sequence[Letter], bool]:
        """What has arrived beside the block since the last call.

        Letters, and whether any slot wrote info columns.
        """

    def output(self, worker: int) -> str:
        """The last that a worker printed; "" where that is nobody's to keep."""

    def vitals(self) -> list[Vitals]:
        """The process of each worker, and how long it has been busy."""

    def close(self, timeout: float | None) -> None:
        """End every worker; bounded, idempotent, never raises.

        None for the assignment's own timeout. That is for envs which are busy; a worker
        that does nothing about it has less.
        """
