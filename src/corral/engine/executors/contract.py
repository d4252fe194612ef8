"""What every executor can do, and what the pool tells it."""

from __future__ import annotations

import atexit
import os
import weakref
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, ClassVar, Protocol

import numpy as np
from numpy.typing import NDArray

from corral.core import EnvSpec, Factory
from corral.engine.layout.codec import Codecs
from corral.engine.layout.plan import ControlViews, DataViews
from corral.engine.worker.commands import (
    Ask,
    Job,
    PickledAsk,
    ResumeState,
    ShardOptions,
    Verb,
)
from corral.engine.worker.letters import Letter, Reply
from corral.engine.worker.worker import Worker
from corral.errors import Fault


@dataclass(slots=True)
class Assignment:
    """What an executor runs: the factories, the shards, and what workers are given.

    Attributes:
        needs_processes: The options that only processes support, as the caller wrote
            them.
    """

    factories: Sequence[Factory]
    shards: list[range]
    options: ShardOptions
    worker_init: Callable[[], Any] | None = None
    per_worker: Callable[[], Any] | None = None
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

    @property
    def slots(self) -> int:
        """Number of slots."""
        return len(self.factories)

    @property
    def seed(self) -> int | None:
        """The root seed, where it means anything to the caller."""
        return self.options.root_seed if self.factories else None

    def device(self, worker: int) -> str | None:
        """The worker's device; devices go round robin."""
        return self.devices[worker % len(self.devices)] if self.devices else None

    def job(
        self, worker: int, slots: range, made_of: Sequence[int] | None = None
    ) -> Job:
        """What a worker builds; `made_of` are slots whose factories it uses instead."""
        return Job(
            worker=worker,
            slots=slots,
            factories=[self.factories[slot] for slot in made_of or slots],
            options=self.options,
            worker_init=self.worker_init,
            per_worker=self.per_worker,
            # Views that cannot be written to.
            shared={n: np.broadcast_to(a, np.shape(a)) for n, a in self.shared.items()},
            device=self.device(worker),
        )


class Executor(Protocol):
    """Owns workers; moves commands to them and results back. The pool's loop::

        executor.send_all(mode)
        executor.wait(finished, None, there)   # or an error that says why not
        letters, informed = executor.arrivals()

    Built first, bound once the spaces are known, closed in any state. The methods with
    a body are defaults, for workers that neither die nor run in the caller.

    Attributes:
        survives_deaths: Workers are processes: an env may end its own, and one that
            hangs is ended.
        inline: The caller itself runs the envs: the executor has `step_inline`,
            `run_in_worker`, `mark` and `envs`.
        control: The words of slots and workers that the pool reads, and the seeds of
            resets.
        shared: The arrays that all workers have; the caller may write to them.
        on_return: Called with a worker that has replaced another.
    """

    survives_deaths: ClassVar[bool] = False
    inline: ClassVar[bool] = False

    shards: list[range]
    control: ControlViews
    shared: Mapping[str, NDArray[Any]]
    on_return: Callable[[int], None]

    def build(self) -> list[EnvSpec]:
        """Build every env; return the spec of each."""

    def bind(self, codecs: Codecs) -> DataViews:
        """Lay out the block and start serving."""

    def send_all(self, mode: int) -> None:
        """Have every slot stepped."""

    def send(self, slots: NDArray[np.intp], verb: Verb, mode: int) -> None:
        """Have these slots stepped or reset."""

    def post(self, messages: Sequence[tuple[int, Any]]) -> None:
        """Post messages to workers, without an answer; none if one is not pickled."""

    def ask(self, questions: Mapping[int, Ask | PickledAsk]) -> None:
        """Ask workers; each answers after the commands it already has.

        A worker is no longer waited for with the question before. A question to a
        process may be pickled already.
        """

    def each_asked(self, questions: Mapping[int, Ask | PickledAsk]) -> Iterator[int]:
        """Ask workers in turn; yields each one that was asked, also before a fault."""
        self.ask(questions)
        yield from questions

    def is_asked(self, worker: int, number: int) -> bool:
        """Whether a worker's latest question has this number, and is not answered."""

    def answers(
        self, workers: Collection[int], timeout: float | None
    ) -> dict[int, Reply] | None:
        """Wait for the answers of workers that were asked; None if one is late."""

    def first_answers(
        self, workers: Collection[int], enough: Callable[[], bool]
    ) -> dict[int, Reply]:
        """Wait until one of the workers has answered, or it is `enough`.

        Returns:
            The answers so far, by worker. They stay until `forget_answer`, so that
            Ctrl-C loses none.
        """

    def answered(self, workers: Collection[int]) -> dict[int, Reply]:
        """The answers that are here, as `first_answers` returns them."""

    def forget_answer(self, worker: int) -> None:
        """Forget an answer that was taken."""

    @property
    def present(self) -> list[int]:
        """The workers that can be asked: all that are not being replaced."""
        return [*range(len(self.shards))]

    def is_busy(self, worker: int) -> bool:
        """Whether a worker has something left to do; if not, all answers are here."""
        return False

    def give_up(self, worker: int) -> None:
        """Drop the item that a worker is busy with.

        It runs its next item after this one or, where it can be ended, is replaced.
        """
        return

    def wait(
        self,
        target: int,
        timeout: float | None,
        is_done: Callable[[], bool],
        only_some: bool = False,
    ) -> bool:
        """Wait until `is_done`; False if the timeout passes first.

        Args:
            target: number of slot commands that will have finished since the start by
                then: a hint when to look. Rings can be lost, and an env can make false
                ones.
            timeout: seconds; None for no limit.
            is_done: looks at `control.done`.
            only_some: whether more commands than that were sent. A worker busy with
                the rest may then hold a ring back (see `transport.doorbell`).
        """

    def arrivals(self) -> tuple[list[Letter], bool]:
        """What has arrived beside the block since the last call.

        Letters, and whether any slot wrote info columns. The caller clears the list of
        letters when it has stored them, so that Ctrl-C loses none.
        """

    def close(self, timeout: float | None) -> None:
        """End every worker; bounded, idempotent, never raises.

        Args:
            timeout: seconds for envs that are busy closing; None for the assignment's
                own. A worker that does not react is ended sooner.
        """

    def step_inline(self, mode: int) -> None:
        """Step every slot right now: `send_all` and `wait`; only where inline."""
        raise AssertionError("workers step their envs, not the caller")

    def run_in_worker(self, work: Callable[[Worker], None]) -> None:
        """Call a function as code of the worker; only where inline."""
        raise AssertionError("the caller is no worker")

    def mark(self, command: int) -> None:
        """Let the parent see what a site does, from now on; only where inline."""
        raise AssertionError("sites are with the workers")

    @property
    def envs(self) -> list[Any]:
        """The environments themselves; only where inline."""
        raise AssertionError("the envs are with the workers")

    def pids(self) -> list[int]:
        """The process of each worker."""
        return [os.getpid()] * len(self.shards)

    def check_workers(self) -> None:
        """Raise if a worker has died or is late; put replacements in place.

        `on_return` is called with each worker that was replaced.
        """
        return

    def replace(self, worker: int, resume: ResumeState | None, delay: float) -> None:
        """Start a worker in the place of one that ended; does not wait for it.

        Until it is there, commands to its slots are dropped. The pool sends them again
        when it has returned.
        """
        raise AssertionError("only processes can be replaced")

    def ended_workers(self) -> list[Fault]:
        """The faults of all workers that have ended and are not being replaced."""
        return []

    def last_letters(self, worker: int) -> Sequence[Letter]:
        """What a worker that ended has left in its mailbox, and what others sent."""
        return ()

    def rings(self) -> int:
        """How often results were announced so far, modulo 2**32."""
        raise AssertionError("results are announced by workers, not by the caller")

    def output(self, worker: int) -> str:
        """The last output of a worker; "" where it prints to the caller's own."""
        return ""


@contextmanager
def closed_on_error(owner: Any, timeout: float = 2.0) -> Iterator[None]:
    """Close an executor or a pool if anything is raised in here, Ctrl-C too."""
    try:
        yield
    except BaseException:
        owner.close(timeout)
        raise


open_executors: weakref.WeakSet[Executor] = weakref.WeakSet()


@atexit.register
def _close_all() -> None:
    """Close envs while all modules can still be used; threads are daemons."""
    for executor in list(open_executors):
        executor.close(None)


if hasattr(os, "register_at_fork"):
    # A forked child has none of the workers; the parent closes the envs.
    os.register_at_fork(after_in_child=open_executors.clear)
