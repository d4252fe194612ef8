"""What a worker posts, letters about a slot and replies, and through what."""

from __future__ import annotations

import io
import os
import pickle
import sys
import traceback
from collections.abc import Callable
from copy import copy
from dataclasses import dataclass, replace
from types import TracebackType
from typing import Any

import cloudpickle
import numpy as np

from corral.engine.faults.report import (
    MAX_TEXT_CHARACTERS,
    MAX_TRACEBACK_CHARACTERS,
    shortened,
)
from corral.engine.layout.info_copy import owned_info
from corral.engine.layout.plan import WORD_MASK, ControlViews
from corral.engine.transport.doorbell import Doorbell
from corral.errors import CorralError, Fault

# What calls the user's code in a worker.
_OWN_MODULES = (
    "corral.engine.worker",
    "corral.engine.executors",
    "corral.engine.adapters",
    "corral.engine.pool.local",
    "corral.tools.doctor",
)
# Of an exception that is sent; of a bigger one, only text and traceback are.
MAX_EXCEPTION_BYTES = 1 << 20


@dataclass(slots=True)
class Letter:
    """What a slot's outcome holds beyond its fields in the block.

    Attributes:
        restarted: What went wrong before the env was built again.
        ticket: The command that it is an outcome of, as a word of the block; None if
            the caller wrote the letter itself.
    """

    slot: int
    info: dict[str, Any] | None = None
    final_info: dict[str, Any] | None = None
    obs: list[Any] | None = None
    final_obs: list[Any] | None = None
    fault: Fault | None = None
    restarted: Fault | None = None
    ticket: int | None = None

    def prepare(self) -> None:
        """Make its faults fit to travel."""
        self.fault = self.fault and for_travel(self.fault)
        self.restarted = self.restarted and for_travel(self.restarted)

    def unsendable(self) -> tuple[int | None, str]:
        """The slot of what cannot be pickled, and how a fault names the sending."""
        return self.slot, "sending an info to the caller"

    def failed(self, fault: Fault) -> Letter:
        """What is sent instead."""
        return Letter(self.slot, fault=fault, ticket=self.ticket)


def merged(letter: Letter, earlier: Letter) -> Letter:
    """Join two letters about the same result, begun by a worker that was replaced."""
    for name in ("info", "final_info", "obs", "final_obs", "fault", "restarted"):
        if getattr(letter, name) is None:
            setattr(letter, name, getattr(earlier, name))
    return letter


def unpickled_copy(letter: Letter) -> Letter:
    """The letter for a reader in the env's own process, where nothing is pickled."""
    # Together: what is one object in both stays one, as when it is pickled. The other
    # parts were copied before the reset that followed them.
    letter.obs, letter.info = owned_info((letter.obs, letter.info))
    return letter


@dataclass(slots=True)
class Reply:
    """The answer to a question: one value per slot asked, or one for the worker.

    Attributes:
        slots: Whose values they are.
        rings: How often the bell announces it, where it does.
        number: The question's.
    """

    values: list[Any]
    faults: list[Fault]
    slots: tuple[int, ...] = ()
    rings: int = 1
    number: int = 0

    def prepare(self) -> None:
        """Make its faults fit to travel; the caller gets them instead of values."""
        self.faults = [for_travel(fault) for fault in self.faults]
        self.values = [] if self.faults else self.values

    def unsendable(self) -> tuple[int | None, str]:
        """The first slot whose value cannot be pickled, and what a fault calls that."""
        pairs = zip(self.slots, self.values, strict=False)
        bad = (slot for slot, value in pairs if not _can_be_sent(value))
        return next(bad, None), "sending a result to the caller"

    def failed(self, fault: Fault) -> Reply:
        """What is sent instead."""
        return Reply([], [fault], number=self.number)


@dataclass(slots=True)
class WorkerEndpoint:
    """Where a worker meets the parent: bell, queue, words of the block, mailbox.

    The same for every executor; one that runs envs in the caller's thread has no bells.

    Attributes:
        fetch: Returns the next message to this worker.
        post: Sends what `pack` has made of a message.
        pack: Makes what is sent (default: the message itself).
    """

    index: int
    control: ControlViews
    fetch: Callable[[], Any]
    post: Callable[[Any], None]
    bell: Doorbell | None = None
    parent_bell: Doorbell | None = None
    spin: float = 0.0
    pack: Callable[[Letter | Reply], Any] | None = None

    @property
    def ring(self) -> Callable[..., object] | None:
        """Called once per finished slot, or with a count; None without bells."""
        return None if self.parent_bell is None else self.parent_bell.ring

    def informer(self) -> Callable[[], None]:
        """Return what is called when infos were written to columns."""
        informed, index = self.control.informed.data, self.index

        def inform() -> None:
            informed[index] = informed[index] + 1 & WORD_MASK

        return inform

    def send(self, message: Letter | Reply) -> None:
        """Announce, then post: the parent fetches as many messages as were announced.

        In this order, since a message that is bigger than the mailbox can only be
        posted while the parent reads it. It is packed before both: the parent stops to
        wait for a message that was announced, even if other workers have answered.
        """
        packed = message if self.pack is None else self.pack(message)
        posted, index = self.control.posted.data, self.index
        posted[index] = posted[index] + 1 & WORD_MASK
        self.post(packed)


def describe(
    error: BaseException,
    command: str,
    slot: int | None,
    worker: int,
    pid: int | None = None,
    **details: Any,
) -> Fault:
    """An exception as a fault, its traceback cut to what the user wrote.

    Args:
        error: what was raised.
        command: what was being done.
        slot: whose env raised it, if any one did.
        worker: where.
        pid: of the process that raised it, if not this one.
        details: more fields of the fault.
    """
    return Fault(
        kind="raised",
        command=command,
        slot=slot,
        worker=worker,
        pid=os.getpid() if pid is None else pid,
        error_type=type(error).__qualname__,
        error_text=_text(error),
        traceback=_readable(error),
        exception=error,
        **details,
    )


# Corral's own calls of a pool, in an env: one that the env has inside.
_POOLS = ("corral.engine.pool", "corral.engine.executors", "corral.api")


def is_raised_by_env(error: BaseException) -> bool:
    """Whether a UsageError is of the env that was called, and not of its worker.

    Its own code raised it, or a pool that it has inside.
    """
    frames = [frame for frame, _ in traceback.walk_tb(error.__traceback__)]
    modules = [str(frame.f_globals.get("__name__", "")) for frame in frames]
    by_corral = bool(modules) and modules[-1].startswith("corral.")
    return not by_corral or any(name.startswith(_POOLS) for name in modules)


def _text(error: BaseException) -> str:
    try:
        return shortened(str(error))
    except BaseException as failure:  # else this would be the worker's death
        return f"<no text: {type(failure).__name__} in __str__>"


def users_part(error: BaseException) -> TracebackType | None:
    """Its traceback without the frames on top, which are ours and not the env's."""
    trace = error.__traceback__
    while not isinstance(error, CorralError) and trace is not None and trace.tb_next:
        module = trace.tb_frame.f_globals.get("__name__", "")
        if not module.startswith(_OWN_MODULES):
            break
        trace = trace.tb_next
    return trace


def _readable(error: BaseException) -> str:
    trace = users_part(error)
    # Piece by piece: one of them may be an exception's text of many megabytes.
    report = traceback.TracebackException(type(error), error, trace)
    return shortened(
        "".join(shortened(piece) for piece in report.format()), MAX_TRACEBACK_CHARACTERS
    )


class Packed:
    """A value as bytes, which is that value again when it is unpickled."""

    __slots__ = ("_data", "_open")

    def __init__(
        self, data: bytes, unpickle: Callable[[bytes], Any] = pickle.loads
    ) -> None:
        self._data, self._open = data, unpickle

    def __reduce__(self) -> tuple[Any, ...]:
        return self._open, (self._data,)


def _exception_or_none(data: bytes) -> BaseException | None:
    """The exception, if it can be unpickled here."""
    try:
        error = pickle.loads(data)
    except BaseException:  # its module may be importable in the worker alone
        return None
    return error if isinstance(error, BaseException) else None


def _packed(error: BaseException | None) -> Any:
    """The exception, if it can be pickled and is the same again when unpickled."""
    try:
        data: bytes = cloudpickle.dumps(_trimmed(error)) if error is not None else b""
        copy = pickle.loads(data) if 0 < len(data) <= MAX_EXCEPTION_BYTES else None
    except BaseException:  # SystemExit in a __reduce__ must not end the worker
        return None
    same = type(copy) is type(error) or (
        # A class of `__main__` is rebuilt by value here, but found again by the parent.
        type(copy).__qualname__ == type(error).__qualname__
        and sys.modules.get(type(error).__module__) is not None
    )
    return Packed(data, _exception_or_none) if same and data else None


def _trimmed(error: BaseException) -> BaseException:
    """The exception; a copy of it with less to say, if its text is very long."""
    texts = [argument for argument in error.args if isinstance(argument, str)]
    if all(len(text) <= MAX_TEXT_CHARACTERS for text in texts):
        return error
    less = copy(error)
    less.args = tuple(
        shortened(argument) if isinstance(argument, str) else argument
        for argument in error.args
    )
    return less


def for_travel(fault: Fault) -> Fault:
    """Return the fault with its exception packed, or without one that cannot be."""
    return replace(
        fault,
        task=_sendable(fault.task),
        options=_sendable(fault.options),
        exception=_packed(fault.exception),
    )


def _sendable(value: Any) -> Any:
    """The value or, where it cannot be pickled, the name of its type."""
    if value is None or _can_be_sent(value):
        return value
    return Unsendable(f"<{type(value).__qualname__} that cannot be pickled>")


def _can_be_sent(value: Any) -> bool:
    try:
        cloudpickle.dumps(value)
    except BaseException:  # SystemExit in a __reduce__ too
        return False
    return True


class Unsendable(str):
    """The text in place of a value that could not be sent."""

    def __repr__(self) -> str:
        return str(self)


class NotSent(Exception):
    """What an env returned cannot be pickled; its `__cause__` says why."""


def packed_part(value: Any) -> Packed:
    """A part of a letter as bytes: what cannot be sent shows while the env runs."""
    try:
        return Packed(cloudpickle.dumps(value))
    except BaseException as error:
        raise NotSent from error


def _as_bytes(array: np.ndarray[Any, Any]) -> Any:
    """What makes an equal array, opened in a third of the time."""
    dtype = array.dtype
    if dtype.kind not in "biuf":
        return array.__reduce_ex__(pickle.HIGHEST_PROTOCOL)
    return np.ndarray, (array.shape, dtype.str, bytearray(array.tobytes()))


def _plainly(message: Any) -> bytes:
    """A message that has nothing in it that users wrote, as bytes."""
    data = io.BytesIO()
    pickler = pickle.Pickler(data, pickle.HIGHEST_PROTOCOL)
    pickler.dispatch_table = {np.ndarray: _as_bytes}
    pickler.dump(message)
    return data.getvalue()


class SealedMessage:
    """A letter or reply as bytes, so that one that cannot be opened names its slot.

    What an env sends may unpickle in the worker alone: a module found only there, a
    constructor that refuses. Unsealed it would be lost, and the pool would wait for it.
    """

    __slots__ = ("_about", "_data", "_number", "_pid")

    def __init__(self, message: Letter | Reply) -> None:
        self._about: int | tuple[int, ...]
        self._number: int | None
        if isinstance(message, Letter):
            self._about, self._number = message.slot, message.ticket
        else:
            self._about, self._number = message.slots, message.number
        self._pid = os.getpid()
        plain = getattr(message, "plain", False)
        self._data = _plainly(message) if plain else cloudpickle.dumps(message)

    def open(self, worker: int) -> Letter | Reply:
        """What was sealed, or the fault of opening it."""
        try:
            message: Letter | Reply = pickle.loads(self._data)
        except (Exception, SystemExit) as error:
            what, about = "unpickling what it sent", self._about
            if isinstance(about, int):
                fault = describe(error, what, about, worker, self._pid)
                return Letter(about, fault=fault, ticket=self._number)
            slot = about[0] if len(about) == 1 else None
            fault = describe(error, what, slot, worker, self._pid)
            return Reply([], [fault], number=self._number or 0)
        return message
