"""PyBullet calls that do not say which simulator they are for.

    with watch() as calls:     from here on pybullet's functions note their callers
        ...                    the env is imported, built, played and closed
    calls.found()              file, line, function, and the corrected call

PyBullet keeps its simulators in a table of the process, and a call without
`physicsClientId` goes to number 0. Nothing else can tell: such a call returns normally.

Functions are replaced in the module, so this works for `import pybullet as p` and for
`from pybullet import stepSimulation`, if the env's modules are imported afterwards.
"""

from __future__ import annotations

import ast
import functools
import re
import sys
import types
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from types import FrameType
from typing import Any

from corral.tools.doctor.call_source import (
    call_at,
    call_in,
    corrected,
    name_of,
    target_of,
    value_in,
)

CLIENT = "physicsClientId"
# How a function writes the number of a simulator that it does not have.
TO_PASS = "client"
# What does not depend on a simulator: arithmetic, files, the version; `connect` makes
# one, and the camera is that of the only window that a process can have.
HARMLESS = re.compile(
    "compute(Projection|View)Matrix|(multiply|invert)Transforms?|rotateVector|"
    "get(Euler|Matrix|AxisAngle)FromQuaternion|getQuaternion(From|Slerp)|"
    "get(Axis)?DifferenceQuaternion|calculateVelocityQuaternion|vhacd|"
    "getAPIVersion|isNumpyEnabled|getDebugVisualizerCamera|connect"
)
# Old functions that cannot be told the simulator, and what to call instead.
REPLACED = {
    "renderImage": "getCameraImage",
    "setJointMotorControl": "setJointMotorControl2",
}
# How the parser says that the client was among the positional arguments as well.
GIVEN_TWICE = ("given by name", "takes at most")


@dataclass(frozen=True, slots=True)
class BulletCall:
    """A place in the code.

    Attributes:
        name: Of PyBullet's function.
        function: That calls it.
        corrected: The call with its simulator; "" where the source cannot be read.
    """

    file: str
    line: int
    function: str
    name: str
    corrected: str


@dataclass(frozen=True, slots=True)
class Connection:
    """Where a simulator was opened: by which object, and the name that it got."""

    number: int
    file: str
    line: int
    function: str
    owner: Any
    target: str

    @property
    def expression(self) -> str:
        """The name of the simulator's number there; a new one where it has none."""
        return self.target or (TO_PASS if self.owner is None else f"self.{TO_PASS}")


class WatchedFunction:
    """A function of pybullet that notes its callers.

    `bullet_client.BulletClient` adds the simulator to builtin functions only, so this
    is one by its class.
    """

    def __init__(self, function: Callable[..., Any], note: Callable[..., None]) -> None:
        self.function, self._note = function, note
        functools.update_wrapper(self, function)

    __class__ = property(lambda self: types.BuiltinFunctionType)

    def __call__(self, *arguments: Any, **named: Any) -> Any:
        result = self.function(*arguments, **named)
        self._note(self.function, arguments, named, result, sys._getframe(1))
        return result


class BulletCalls:
    """What was noted."""

    def __init__(self) -> None:
        self._connections: list[Connection] = []
        # Calls that were looked at -> what is wrong, if anything is.
        self._seen: dict[tuple[Any, ...], BulletCall | None] = {}

    def note(
        self,
        function: Callable[..., Any],
        arguments: tuple[Any, ...],
        named: dict[str, Any],
        result: Any,
        frame: FrameType,
    ) -> None:
        """Look at a call, once for each place."""
        name = function.__name__
        if name == "connect":
            self._connections.append(_connection(result, frame))
        elif CLIENT not in named and not HARMLESS.match(name):
            place = (frame.f_code, frame.f_lasti, len(arguments))
            if place not in self._seen:
                lacks = not _has_client(function, arguments, named)
                self._seen[place] = self._call(function, frame) if lacks else None

    def _call(self, function: Callable[..., Any], frame: FrameType) -> BulletCall:
        name = function.__name__
        last = self._connections[-1] if self._connections else None
        client = TO_PASS if last is None else _client_seen_from(frame, last)
        node = _call_of(function, frame)
        text = "" if node is None else corrected(node, CLIENT, client)
        if name in REPLACED:
            text = f"{name} has no {CLIENT}: use {REPLACED[name]}"
        return BulletCall(*_place(frame), name, text)

    def found(self) -> list[BulletCall]:
        """The calls without a simulator, by file and line."""
        found = {call for call in self._seen.values() if call is not None}
        if found:
            found |= {
                BulletCall(one.file, one.line, one.function, "connect", text)
                for one in self._connections
                if (text := _assigned(one))
            }
        return sorted(
            found, key=lambda one: (one.file, one.line, one.name, one.corrected)
        )


@contextmanager
def watch() -> Iterator[BulletCalls]:
    """Note the calls of pybullet's functions."""
    import pybullet

    calls, before = BulletCalls(), dict(vars(pybullet))
    for name, value in before.items():
        if isinstance(value, types.BuiltinFunctionType):
            setattr(pybullet, name, WatchedFunction(value, calls.note))
    try:
        yield calls
    finally:
        vars(pybullet).update(before)


def _has_client(
    function: Callable[..., Any], arguments: tuple[Any, ...], named: dict[str, Any]
) -> bool:
    """Whether a positional argument is the client: then naming it as well is refused.

    The call itself does not happen: no function takes this value for its client.
    """
    try:
        function(*arguments, **named, **{CLIENT: object()})
    except Exception as error:
        return any(words in str(error) for words in GIVEN_TWICE)
    return False


def _call_of(function: Callable[..., Any], frame: FrameType) -> ast.Call | None:
    """The call in its file, under any name; None if something else makes it.

    `map(pybullet.getBaseVelocity, bodies)` is such a call: it takes no more arguments.
    """
    name = function.__name__
    node = call_in(frame)
    if node is None:
        return call_at(frame.f_code.co_filename, frame.f_lineno, name)
    value = value_in(frame, node.func)
    called = value.func if isinstance(value, functools.partial) else value
    it_is = name_of(node.func) == name or getattr(called, "function", 0) is function
    return node if it_is else None


def _place(frame: FrameType) -> tuple[str, int, str]:
    code = frame.f_code
    name = getattr(code, "co_qualname", code.co_name)  # from Python 3.11 on
    return code.co_filename, frame.f_lineno, name


def _connection(number: int, frame: FrameType) -> Connection:
    file, line, function = _place(frame)
    return Connection(
        number, file, line, function, _owner(frame), target_of(file, line, "connect")
    )


def _owner(frame: FrameType) -> Any:
    """The object whose method this is; None if it is a function."""
    return frame.f_locals.get("self")


def _assigned(one: Connection) -> str:
    """The line that keeps a simulator's number, where it is not kept."""
    node = None if one.target else call_at(one.file, one.line, "connect")
    return "" if node is None else f"{one.expression} = {corrected(node)}"


def _client_seen_from(frame: FrameType, connection: Connection) -> str:
    """The simulator's number as this function can write it."""
    owner, there, name = _owner(frame), connection.owner, connection.expression
    file, _, function = _place(frame)
    if file == connection.file and connection.function in (function, "<module>"):
        return name
    if owner is None or not name.startswith("self."):
        return TO_PASS
    if owner is there:
        return name
    inside = getattr(owner, "__dict__", {})
    holders = [name for name, value in inside.items() if value is there]
    return f"self.{holders[0]}.{name.removeprefix('self.')}" if holders else TO_PASS
