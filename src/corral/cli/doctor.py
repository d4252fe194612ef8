"""What is wrong with this environment?

Finds out what an environment needs to run in parallel, and recommends a line of code.
Everything is measured in worker processes: an environment that raises, hangs or crashes
there gives a finding.

    corral doctor CartPole-v1
    corral doctor my_package:make_robot --kwargs '{"gui": false}' --save

ENV is a registered id or module:function, of Gymnasium or PettingZoo. With --save,
`corral.make` uses what was found about sharing a process, until the version of the
environment's package changes. The exit status is 0 if there is nothing to do, 3 if
there are warnings, 1 if there are problems.

`corral doctor --replay FILE` is the same as `corral replay FILE`: it runs the episode
of a saved fault again.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import TYPE_CHECKING

from corral.cli import replay
from corral.cli.options import adder, names
from corral.errors import OptionError
from corral.train.commands import argument_types as types
from corral.train.commands.argument_types import save
from corral.train.commands.requirements import Need

if TYPE_CHECKING:
    from corral.tools.doctor.report import Report

SUMMARY = "check an environment for problems"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Everything `corral doctor` takes."""
    parser.add_argument("env", nargs="?", metavar="ENV", help="an id, module:function")
    group = parser.add_argument_group("an examination")
    option = adder(group.add_argument)
    option("--kwargs", "JSON", types.json_object, "arguments for ENV", {})
    text = "number of envs in the recommended line (default: 8)"
    option("--num-envs", "N", types.count, text, 8)
    text = "seed of episodes and actions (default: 0)"
    option("--seed", "SEED", types.whole, text, 0)
    text = "names of checks, such as isolation (default: all)"
    option("--only", "NAME,NAME", names, text, ())
    option("--json", "FILE", Path, "write everything as JSON")
    text = "store what was found about sharing a process, for corral.make"
    group.add_argument("--save", action="store_true", help=text)
    add = parser.add_argument_group("an episode that failed").add_argument
    option = adder(add)
    option("--replay", "FILE", Path, "run the episode of a saved fault again")
    replay.add_options(add)
    text = "seconds allowed for one measurement (default: 60), or for the step that "
    text += "hung (default: its limit then)"
    option("--timeout", "S", types.positive, text)


def need(arguments: argparse.Namespace) -> Need:
    """An examination counts and prints; a replay needs nothing."""
    return Need() if arguments.env is None else Need(("bench",), ("psutil", "rich"))


def run(arguments: argparse.Namespace) -> int:
    """Examine, or replay; returns the status."""
    if (arguments.env is None) == (arguments.replay is None):
        raise OptionError(
            "name an environment (corral doctor ENV) or a saved fault "
            "(corral doctor --replay FILE)"
        )
    if arguments.env is None:
        arguments.file = arguments.replay
        return replay.run(arguments)
    return _examine(arguments)


# An examination -----------------------------------------------------------------------


def _examine(arguments: argparse.Namespace) -> int:
    """0 if there is nothing to do, 3 with warnings, 1 with problems."""
    from corral.tools.doctor import console
    from corral.tools.doctor.examination import examine, subject_for
    from corral.tools.doctor.report import EXIT_STATUS

    path = arguments.json
    types.check_file("--json", path)
    subject = subject_for(
        arguments.env, arguments.kwargs, arguments.seed, syntax="command"
    )
    with console.progress(subject.name) as progress:
        report = examine(
            subject,
            arguments.num_envs,
            arguments.only,
            arguments.timeout,
            progress,
        )
    console.show(report)
    if path is not None:
        save(path, (json.dumps(report.document(), indent=2) + "\n").encode())
    if arguments.save:
        _save(report)
    return 130 if report.interrupted else EXIT_STATUS[report.severity]


def _save(report: Report) -> None:
    from corral.engine.adapters.isolation import FOLDER_VARIABLE, folder, save_verdict

    verdict = report.verdict
    if verdict is None:
        raise OptionError(
            "nothing to save: it is not known whether it may share a process"
        )
    if not verdict.edition:
        raise OptionError(
            f"not saved: {verdict.subject} belongs to no package and no file, so "
            "Corral could not see when it changes"
        )
    try:
        print(f"Saved for {verdict.edition}: {save_verdict(verdict)}")
    except OSError as error:
        raise OptionError(
            f"not saved: {folder()} cannot be written to ({error.strerror}); "
            f"set {FOLDER_VARIABLE} to another directory"
        ) from None
