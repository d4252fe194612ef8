"""What is wrong with this environment?

Runs the episode of a fault again, as `fault.save(path)` has written it, up to and
including the step that failed, and says whether it failed again.

    corral doctor --replay fault.zip
    corral doctor --replay fault.zip --debugger

An episode that took its process down, or hung, is run in a process of its own. Files
that somebody else owns, or may write to, are not opened: they hold code.
"""

from __future__ import annotations

import argparse
import traceback
from pathlib import Path
from typing import TYPE_CHECKING

from corral.errors import OptionError

if TYPE_CHECKING:
    from corral.doctor.replay import Replay

SUMMARY = "what is wrong with this environment?"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Everything `corral doctor` takes."""
    add = parser.add_argument
    add(
        "--replay",
        type=Path,
        metavar="FILE",
        help="run the episode of a saved fault again",
    )
    add(
        "--debugger",
        action="store_true",
        help="look at what it raises in pdb",
    )
    add(
        "--timeout",
        type=float,
        metavar="S",
        help="seconds for what failed, where it had hung (what it was given then)",
    )


def run(arguments: argparse.Namespace) -> int:
    """Replay and show; 0 if the fault was reproduced."""
    if arguments.replay is None:
        raise OptionError("name a saved fault: corral doctor --replay FILE")
    if not arguments.replay.is_file():
        raise OptionError(f"there is no file {arguments.replay}")
    from corral.doctor.replay import replay
    from corral.supervision.report import message_for
    from corral.supervision.saving import load

    print(f"Then:\n{_indented(message_for(load(arguments.replay)))}\n")
    with replay(
        arguments.replay, debugger=arguments.debugger, timeout=arguments.timeout
    ) as replayed:
        _show(replayed)
    return 0 if replayed.reproduced else 1


def _show(replayed: Replay) -> None:
    print(f"Now:\n{_indented(str(replayed))}")
    error = replayed.error
    if error is not None and error.__traceback__ is not None:
        print(f"\n{''.join(traceback.format_exception(error)).rstrip()}")


def _indented(text: str) -> str:
    return "\n".join(f"    {line}" for line in text.splitlines())
