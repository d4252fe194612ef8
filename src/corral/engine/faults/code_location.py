"""The line of the user's code that failed, read from a traceback's text."""

from __future__ import annotations

import linecache
import os
import re
import sysconfig
import traceback
from dataclasses import dataclass
from pathlib import Path

from corral.errors import Fault

# As tracebacks have it, and, without the comma, faulthandler.
_FRAME = re.compile(r'File "([^"]+)", line (\d+),? in (\S+)')
_OURS = str(Path(__file__).parents[2])
_STDLIB = f"{sysconfig.get_path('stdlib')}{os.sep}"
_LIBRARIES = tuple(
    f"{sysconfig.get_path(name)}{os.sep}" for name in ("purelib", "platlib")
)
# Envs that come with Corral.
_EXAMPLES = tuple(f"{_OURS}{os.sep}{name}{os.sep}" for name in ("zoo", "testing"))


@dataclass(frozen=True, slots=True)
class CodeLocation:
    """A line of a file."""

    file: str
    line: int
    function: str

    @property
    def short(self) -> str:
        """File and line."""
        near = os.path.relpath(self.file)
        return f"{self.file if near.startswith('..') else near}, line {self.line}"

    def __str__(self) -> str:
        text = linecache.getline(self.file, self.line).strip()
        code = f": {text[:80]}" if text else ""
        return f"{self.short}, in {self.function}{code}"


def location_of_fault(fault: Fault) -> CodeLocation | None:
    """Where an env raised, hung or crashed; None where that is not known."""
    if fault.traceback:
        frames = _frames(fault.traceback)[::-1]
    else:  # these have the innermost call first
        frames = _frames(fault.stack or fault.output.rpartition("Current thread")[2])
    return _users(frames) or next(iter(frames), None)


def location_of_error(error: BaseException) -> CodeLocation | None:
    """Where in the user's code an exception was raised, here or in a worker."""
    fault = getattr(error, "fault", None)
    if isinstance(fault, Fault):
        return location_of_fault(fault)
    return _users(_frames("".join(traceback.format_exception(error)))[::-1])


def _frames(text: str) -> list[CodeLocation]:
    """All that are neither Corral's nor Python's own."""
    found = _FRAME.findall(text)
    return [
        CodeLocation(f, int(line), name) for f, line, name in found if not _is_ours(f)
    ]


def _users(frames: list[CodeLocation]) -> CodeLocation | None:
    """The first that is in no library either."""
    return next((one for one in frames if not one.file.startswith(_LIBRARIES)), None)


def _is_ours(file: str) -> bool:
    # Libraries may lie within the standard library's folder.
    outside = file.startswith((*_LIBRARIES, *_EXAMPLES))
    return not outside and file.startswith((f"{_OURS}{os.sep}", "<", _STDLIB))
