"""`corral COMMAND ...`: find the command, run it, and end with a status.

    0  done        1  a fault        2  a mistake in what was asked        130  Ctrl-C

A command is a module of this room with

    SUMMARY                           its line in `corral --help`
    add_arguments(parser)             what it takes
    need(arguments) -> Need           (if any) the optional packages that it imports,
                                      checked before it runs
    run(arguments) -> status          imports what it needs only now; finds the whole
                                      command in `arguments.line`
"""

from __future__ import annotations

import argparse
import os
import shlex
import sys
import traceback
from collections.abc import Sequence
from importlib.metadata import version
from types import ModuleType

from corral.cli import bench, config, doctor, export, replay, train
from corral.cli import eval as evaluate
from corral.cli import list as listing
from corral.errors import CorralError, UnsafeFile, UsageError

COMMANDS: dict[str, ModuleType] = {
    "train": train,
    "eval": evaluate,
    "export": export,
    "config": config,
    "list": listing,
    "bench": bench,
    "doctor": doctor,
    "replay": replay,
}

FAULT, MISTAKE, INTERRUPTED = 1, 2, 130


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; returns the exit status."""
    given = sys.argv[1:] if argv is None else list(argv)
    arguments = _parsed(given)
    arguments.line = ["corral", *given]
    try:
        if arguments.need is not None:
            arguments.need(arguments).check()
        status: int = arguments.run(arguments)
        sys.stdout.flush()
        return status
    except KeyboardInterrupt:
        return INTERRUPTED
    except BrokenPipeError:
        # The reader went away (`| head`); nothing more can be said to it, not even
        # by the interpreter at its end.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return FAULT
    except CorralError as error:
        said = str(error)
        if isinstance(error, UnsafeFile) and error.said:
            said = f"{error.said}: {shlex.join([*arguments.line, '--trust'])}"
        if arguments.debug:
            traceback.print_exception(error)
        else:
            print(f"corral {arguments.command}: {said}", file=sys.stderr)
        return MISTAKE if isinstance(error, UsageError) else FAULT


def _parsed(given: list[str]) -> argparse.Namespace:
    reader = parser()
    arguments, unknown = reader.parse_known_args(given)
    if unknown:
        bare = [one for one in unknown if "=" in one and not one.startswith("-")]
        train = bare and given[0] == "train"
        hint = f"; a setting is written --set {bare[0]}" if train else ""
        reader.error(f"unrecognized arguments: {' '.join(unknown)}{hint}")
    return arguments


def parser() -> argparse.ArgumentParser:
    """What `corral` understands."""
    top = argparse.ArgumentParser(
        prog="corral",
        description="Many reinforcement-learning environments in parallel.",
    )
    top.add_argument("--version", action="version", version=version("corral"))
    commands = top.add_subparsers(dest="command", required=True, metavar="COMMAND")
    for name, module in COMMANDS.items():
        command = commands.add_parser(
            name,
            help=module.SUMMARY,
            description=module.__doc__,
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )
        module.add_arguments(command)
        command.add_argument(
            "--debug", action="store_true", help="show the whole traceback of an error"
        )
        command.set_defaults(need=getattr(module, "need", None), run=module.run)
    return top
