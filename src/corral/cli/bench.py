"""How fast can this environment go on this machine?

Measures one bare env, Corral's layouts and other libraries in interleaved rounds, and
recommends a layout.

    corral bench CartPole-v1
    corral bench my_package:make_robot --num-envs 8,64 --against gymnasium,sb3
    corral bench Ant-v5 --policy-ms 0.5 --json ant.json --html ant.html

What the columns mean:

  one bare env  one env in a `for` loop, stepped N times for each call of the policy
  steps/s       env steps per second, the median of the rounds; resets do not count as
                steps
  × loop        speed relative to the bare env in the same rounds
  of limit      share of the highest possible speed: a batch takes the policy's time,
                then the steps' time divided over all cores, and nothing else:
                N / (policy + N × step / min(N, cores)). For an env that waits instead
                of computing, cores / (its share of a core) replaces cores
  start-up      seconds from the call of the constructor until reset returns
  memory        memory that start-up took, worker processes included
  CPU burnt     cores busy with anything but the envs and the policy: spinning, waking,
                copying, and steps that are slower side by side
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from corral.cli.options import add_options, names
from corral.errors import OptionError, WriteFailed
from corral.train.commands import argument_types as types
from corral.train.commands.argument_types import save
from corral.train.commands.requirements import Need

if TYPE_CHECKING:
    from corral.tools.bench.results import BenchReport, BenchSettings

SUMMARY = "measure how fast an environment runs on this machine"
NUM_ENVS = (1, 8, 64)
PEERS = ("gymnasium", "sb3", "agilerl", "supersuit")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Everything `corral bench` takes."""
    env = "a Gymnasium id, module:id or module:function"
    parser.add_argument("env", metavar="ENV", help=env)
    backends = "serial, thread, process, auto (default: all)"
    workers = "numbers of threads or processes (default: one per usable core)"
    peers = f"{', '.join(PEERS)}, all, none"
    add_options(
        parser.add_argument,
        ("--kwargs", "JSON", types.json_object, "arguments for ENV", {}),
        (
            "--num-envs",
            "N,N",
            _counts,
            "numbers of envs, one comparison each",
            NUM_ENVS,
        ),
        ("--backend", "NAME,NAME", names, backends),
        ("--workers", "N,N", _counts, workers, ()),
        ("--against", "NAME,NAME", names, peers, ("gymnasium",)),
    )
    policy = "milliseconds that a simulated policy computes between steps"
    deadline = "seconds allowed for a candidate to start, or for a turn"
    add_options(
        parser.add_argument_group("measuring").add_argument,
        ("--policy-ms", "MS", types.not_negative, policy, 0.0),
        ("--rounds", "N", types.count, "turns of each candidate", 5),
        ("--seconds", "S", types.positive, "seconds of a turn", 0.3),
        ("--seed", "SEED", types.whole, "seed of envs and actions", 0),
        ("--deadline", "S", types.positive, deadline, 300.0),
    )
    add_options(
        parser.add_argument_group("results").add_argument,
        ("--json", "FILE", Path, "write everything as JSON"),
        ("--html", "FILE", Path, "write a report with charts"),
    )


def _counts(text: str) -> tuple[int, ...]:
    return tuple(types.count(part) for part in text.split(","))


def need(arguments: argparse.Namespace) -> Need:
    """What measures and shows; with --html, what draws."""
    pictures = ("matplotlib",) if arguments.html is not None else ()
    return Need(("bench",), ("psutil", "rich", *pictures))


def run(arguments: argparse.Namespace) -> int:
    """Measure, show, write; returns the exit status."""
    _check_files(arguments)
    from corral.tools.bench import benchmark, console
    from corral.train.sinks.console import progress_bar

    with progress_bar() as bar:
        report = benchmark.run(_settings(arguments), bar)
    try:
        console.show(report)
    finally:  # also when stdout was closed, as `| head` does
        _write(report, arguments)
    if arguments.debug:
        _show_tracebacks(report)
    if report.interrupted:
        return 130
    return 1 if report.faulty else 0


def _settings(arguments: argparse.Namespace) -> BenchSettings:
    from corral.tools.bench.results import BenchSettings

    given = vars(arguments)
    taken = {name: given[name] for name in BenchSettings.__slots__ if name in given}
    taken |= {
        "num_envs": tuple(sorted(set(arguments.num_envs))),
        "backends": arguments.backend,
        "against": _against(arguments.against),
    }
    return BenchSettings(**taken)


def _against(chosen: tuple[str, ...]) -> tuple[str, ...]:
    words = {"all": PEERS, "none": ()}
    for word in words.keys() & set(chosen):
        if len(chosen) > 1:
            raise OptionError(f"--against {word} cannot be combined with other names")
        return words[word]
    return chosen


# Files --------------------------------------------------------------------------------


def _check_files(arguments: argparse.Namespace) -> None:
    """Before minutes of measuring: can the results be written at all?"""
    for option in ("json", "html"):
        types.check_file(f"--{option}", getattr(arguments, option))
    pages, data = arguments.html, arguments.json
    if pages is not None and data is not None and _same(data, pages):
        raise OptionError(f"--json and --html name the same file, {pages}")


def _same(one: Path, other: Path) -> bool:
    """Whether they name one file; a device takes both."""
    return one.resolve() == other.resolve() and not one.is_char_device()


def _write(report: BenchReport, arguments: argparse.Namespace) -> None:
    """Write what was asked for; one file that fails does not cost the other."""
    failures = []
    for path, content in _contents(report, arguments):
        try:
            save(path, content.encode())
        except WriteFailed as error:
            failures.append(error)
        except BrokenPipeError:
            pass  # it is written; only the message could not be printed
    if failures:
        raise WriteFailed("; ".join(map(str, failures))) from failures[0]


def _contents(
    report: BenchReport, arguments: argparse.Namespace
) -> Iterator[tuple[Path, str]]:
    command = arguments.line
    if arguments.json is not None:
        from corral.tools.bench.json_report import document

        text = json.dumps(document(report, command), indent=2, allow_nan=False)
        yield arguments.json, text + "\n"
    if arguments.html is not None:
        from corral.tools.bench.html_report import page

        yield arguments.html, page(report, command)


def _show_tracebacks(report: BenchReport) -> None:
    for row in report.rows:
        if row.traceback:
            title = f"{row.candidate.title} ×{row.num_envs}"
            print(f"\n{title}:\n{row.traceback}", file=sys.stderr)
