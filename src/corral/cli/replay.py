"""Why did this environment fail?

Runs the episode of a saved fault (`fault.save(path)`) again, up to and including the
step that failed, and says whether it failed again.

    corral replay fault.zip
    corral replay fault.zip --debugger

An episode that ended its process, or hung, runs in a process of its own. If the env
shared its process and does not fail alone, it also runs beside the env before it and
beside the one after it, to find out whether they interfere with each other. The exit
status is 0 if it failed again. Files that you did not sign are not opened, because they
contain code.
"""

from __future__ import annotations

import argparse
import traceback
from collections.abc import Callable
from pathlib import Path
from textwrap import indent
from typing import Any

from corral.errors import OptionError
from corral.train.commands import argument_types

SUMMARY = "replay the episode of a saved fault"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Everything `corral replay` takes."""
    parser.add_argument("file", type=Path, metavar="FILE", help="a saved fault")
    text = "seconds allowed for the step that failed, in a process of its own "
    add_replay_options(parser.add_argument, text + "(default: the limit it had, or 60)")


def add_replay_options(add: Callable[..., Any], timeout: str) -> None:
    """What `corral doctor --replay` takes as well."""
    add("--debugger", action="store_true", help="open pdb where it raises")
    argument_types.add_trust(add, "open a fault that you did not sign; this runs code")
    add("--timeout", type=argument_types.positive, metavar="S", help=timeout)


def run(arguments: argparse.Namespace) -> int:
    """Replay and show; 0 if the fault was reproduced, alone or beside another env."""
    if not arguments.file.is_file():
        raise OptionError(f"there is no file {arguments.file}")
    from corral.engine.faults.fault_file import load
    from corral.engine.faults.report import message_for
    from corral.tools.doctor.replay import refuse_debugger, replay_fault

    fault = load(arguments.file, arguments.trust)
    if arguments.debugger:
        refuse_debugger(fault)
    print(f"Then:\n{indent(message_for(fault, None), '    ')}\n")
    options = {"timeout": arguments.timeout, "debugger": arguments.debugger}
    options["path"] = str(arguments.file)
    with replay_fault(fault, **options) as replayed:
        print(f"Now:\n{indent(str(replayed), '    ')}")
        error = replayed.error
        if error is not None and error.__traceback__ is not None:
            print(f"\n{''.join(traceback.format_exception(error)).rstrip()}")
    beside = replayed.neighbours
    failed = replayed.reproduced or (beside is not None and beside.interferes)
    return 0 if failed else 1
