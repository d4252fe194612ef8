"""How fast can this environment go on this machine?

Measures one bare env, every layout of Corral's and the peers that are installed, in
interleaved rounds, and recommends a layout.

    corral bench CartPole-v1
    corral bench my_package:make_robot --num-envs 8,64 --against gymnasium,sb3
    corral bench Ant-v5 --policy-ms 0.5 --json ant.json --html ant.html

What the columns mean:

  one bare env  one env in a `for` loop, stepped N times for each call of the policy
  steps/s       env steps per second, the median of the rounds; resets come on top and
                are not counted as steps
  × loop        over the bare env in the same rounds
  of limit      the limit is a batch of nothing but the policy and then the steps, side
                by side on all cores: N / (policy + N × step / min(N, cores)). For an
                env that waits instead of computing, cores / (its share of a core)
                takes the place of cores
  start-up      from the constructor until reset has returned
  memory        what came with that, worker processes included
  CPU burnt     cores kept busy beyond the envs' own work and the policy's: spinning,
                waking, copying, and what steps cost more side by side
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from corral.errors import OptionError, WriteFailed
from corral.train.commands import argument_types
from corral.train.commands.output_files import save
from corral.train.commands.requirements import Need

if TYPE_CHECKING:
    from corral.tools.bench.results import BenchReport, BenchSettings

SUMMARY = "how fast can this environment go on this machine?"
NUM_ENVS = (1, 8, 64)
PEERS = ("gymnasium", "sb3", "agilerl", "supersuit")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Everything `corral bench` takes."""
    add = parser.add_argument
    add("env", metavar="ENV", help="a Gymnasium id, module:id or module:function")
    add(
        "--kwargs",
        type=argument_types.json_object,
        default={},
        metavar="JSON",
        help="arguments for ENV",
    )
    add(
        "--num-envs",
        type=_counts,
        default=NUM_ENVS,
        metavar="N,N",
        help="how many envs, one comparison for each (1,8,64)",
    )
    add(
        "--backend",
        type=_names,
        metavar="NAME,NAME",
        help="serial, thread, process, auto (those that make sense, auto's choice "
        "marked)",
    )
    add(
        "--workers",
        type=_counts,
        default=(),
        metavar="N,N",
        help="threads or processes (as many as usable cores)",
    )
    add(
        "--against",
        type=_names,
        default=("gymnasium",),
        metavar="NAME,NAME",
        help=f"{', '.join(PEERS)}, all, none (gymnasium)",
    )
    _add_measuring(parser)
    _add_results(parser)


def _add_measuring(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument_group("measuring").add_argument
    add(
        "--policy-ms",
        type=argument_types.not_negative,
        default=0.0,
        metavar="MS",
        help="a policy that computes this long between two steps (0)",
    )
    add(
        "--rounds",
        type=argument_types.count,
        default=5,
        metavar="N",
        help="turns for each (5)",
    )
    add(
        "--seconds",
        type=argument_types.positive,
        default=0.3,
        metavar="S",
        help="how long a turn takes (0.3)",
    )
    add("--seed", type=argument_types.whole, default=0, help="of envs and actions (0)")
    add(
        "--deadline",
        type=argument_types.positive,
        default=300.0,
        metavar="S",
        help="give up one that does not start, or end its turn, within this (300)",
    )


def _add_results(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument_group("results").add_argument
    add("--json", type=Path, metavar="FILE", help="write everything as JSON")
    add("--html", type=Path, metavar="FILE", help="write a report with pictures")


def need(arguments: argparse.Namespace) -> Need:
    """What measures and shows; with --html, what draws."""
    pictures = ("matplotlib",) if arguments.html is not None else ()
    return Need(("bench",), ("psutil", "rich", *pictures))


def run(arguments: argparse.Namespace) -> int:
    """Measure, show, write; returns the exit status."""
    _check_files(arguments)
    from corral.tools.bench import benchmark, console
    from corral.train.sinks import progress

    with progress.bar() as bar:
        report = benchmark.run(_settings(arguments), bar)
    try:
        console.show(report)
    finally:  # also when nobody reads any more: `| head`, `| less` and away
        _write(report, arguments)
    if arguments.debug:
        _show_tracebacks(report)
    if report.interrupted:
        return 130
    return 1 if report.faulty else 0


def _settings(arguments: argparse.Namespace) -> BenchSettings:
    from corral.tools.bench.results import BenchSettings

    return BenchSettings(
        env=arguments.env,
        kwargs=arguments.kwargs,
        num_envs=tuple(sorted(set(arguments.num_envs))),
        backends=arguments.backend,
        workers=arguments.workers,
        against=_against(arguments.against),
        policy_ms=arguments.policy_ms,
        rounds=arguments.rounds,
        seconds=arguments.seconds,
        seed=arguments.seed,
        deadline=arguments.deadline,
    )


def _against(names: tuple[str, ...]) -> tuple[str, ...]:
    words = {"all": PEERS, "none": ()}
    for word in words.keys() & set(names):
        if len(names) > 1:
            raise OptionError(f"--against {word} stands alone, without other names")
        return words[word]
    return names


# Files --------------------------------------------------------------------------------


def _check_files(arguments: argparse.Namespace) -> None:
    """Before minutes of measuring: can the results be written at all?"""
    for option in ("json", "html"):
        argument_types.check_file(f"--{option}", getattr(arguments, option))
    pages, data = arguments.html, arguments.json
    if pages is not None and data is not None and _same(data, pages):
        raise OptionError(f"--json and --html are one file, {pages}")


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
            pass  # it is written, only nobody could be told
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
    for group in report.groups:
        for row in group.rows:
            if row.traceback:
                title = f"{row.candidate.title} ×{group.num_envs}"
                print(f"\n{title}:\n{row.traceback}", file=sys.stderr)


# Kinds of arguments -------------------------------------------------------------------


def _counts(text: str) -> tuple[int, ...]:
    return tuple(argument_types.count(part) for part in text.split(","))


def _names(text: str) -> tuple[str, ...]:
    return tuple(part.strip() for part in text.split(",") if part.strip())
