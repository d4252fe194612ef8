"""What is wrong with this environment?

Finds out what an environment needs to run in parallel, and recommends a line of code.
Everything is measured in worker processes: an environment that raises, hangs or crashes
there is reported as a problem.

    corral doctor CartPole-v1
    corral doctor my_package:make_robot --kwargs '{"gui": false}' --save

ENV is a registered id or module:function, of Gymnasium or PettingZoo. With --save,
`corral.make` uses what was found about sharing a process, until the version of the
environment's package changes. The exit status is 0 if no problem was found, 3 if
there are warnings, 1 if there are problems.

`corral doctor --cluster auto` examines a Ray cluster: nodes, versions, how soon a dead
node is noticed, and whether connections need a token.

`corral doctor --replay FILE` is the same as `corral replay FILE`: it runs the episode
of a saved fault again.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import TYPE_CHECKING

from corral.cli import replay
from corral.cli.options import add_options, names
from corral.errors import OptionError
from corral.train.commands import argument_types as types
from corral.train.commands.requirements import Need

if TYPE_CHECKING:
    from corral.tools.doctor.report import Report

SUMMARY = "check an environment for problems"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Everything `corral doctor` takes."""
    parser.add_argument("env", nargs="?", metavar="ENV", help="id, or module:function")
    add = parser.add_argument_group("examine an environment").add_argument
    add_options(
        add,
        ("--kwargs", "JSON", types.json_object, "arguments for ENV", {}),
        ("--num-envs", "N", types.count, "number of envs in the recommended line", 8),
        ("--seed", "SEED", types.whole, "seed of episodes and actions", 0),
        ("--only", "NAME,NAME", names, "checks, such as isolation (default: all)", ()),
        ("--json", "FILE", Path, "write everything as JSON"),
    )
    text = "store what was found about sharing a process, for corral.make"
    add("--save", action="store_true", help=text)
    add = parser.add_argument_group("replay a failed episode").add_argument
    add_options(add, ("--replay", "FILE", Path, "replay the episode of a saved fault"))
    text = "seconds allowed for one measurement (default: 60), or for the step that "
    replay.add_replay_options(add, text + "failed (default: the limit it had, or 60)")
    add = parser.add_argument_group("examine a cluster").add_argument
    text = "examine a Ray cluster: auto (the default), HOST:PORT, local"
    add("--cluster", metavar="ADDRESS", nargs="?", const="auto", help=text)


def need(arguments: argparse.Namespace) -> Need:
    """An examination counts and prints; a replay needs nothing."""
    return Need() if arguments.env is None else Need(("bench",), ("psutil", "rich"))


def run(arguments: argparse.Namespace) -> int:
    """Examine, or replay; returns the status."""
    asked = (arguments.env, arguments.replay, arguments.cluster)
    if sum(one is not None for one in asked) != 1:
        raise OptionError(
            "name an environment (corral doctor ENV), a saved fault "
            "(corral doctor --replay FILE) or a cluster (corral doctor --cluster auto)"
        )
    if arguments.cluster is not None:
        return _examine_cluster(arguments.cluster)
    if arguments.env is None:
        arguments.file = arguments.replay
        return replay.run(arguments)
    from corral.tools.doctor import console
    from corral.tools.doctor.examination import examine, subject_for
    from corral.tools.doctor.report import EXIT_STATUS

    types.check_file("--json", arguments.json)
    subject = subject_for(arguments.env, arguments.kwargs, arguments.seed, "command")
    wanted = arguments.num_envs, arguments.only, arguments.timeout
    with console.progress(subject.name) as progress:
        report = examine(subject, *wanted, progress)
    console.show(report)
    if arguments.json is not None:
        text = json.dumps(report.document(), indent=2) + "\n"
        types.save(arguments.json, text.encode())
    if arguments.save:
        _save(report)
    return 130 if report.interrupted else EXIT_STATUS[report.severity]


def _examine_cluster(address: str) -> int:
    from corral.cluster.examination import examine

    found = []
    for severity, line in examine(address):
        found.append(severity)
        print(f"{severity:8} {line}", flush=True)
    return 1 if "problem" in found else 3 if "warning" in found else 0


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
