"""List recipes and runs.

    corral list
    corral list --runs elsewhere/runs

Lists the runs in ./runs, at any depth, and those that you started elsewhere, with --out
or from another directory; with --runs, those in that directory alone.
"""

from __future__ import annotations

import argparse
import statistics
import sys
from collections.abc import Collection, Iterable
from pathlib import Path
from typing import Any

from corral.rollouts.number_format import score
from corral.train.recipes import RECIPES
from corral.train.run.directory import (
    RECENT_EPISODES,
    RUNS_FOLDER,
    RunDirectory,
    every_run,
    register_path,
    registered_runs,
    state_of,
)
from corral.train.sinks import jsonl

SUMMARY = "list recipes and runs"
HEADINGS = ("run", "state", "steps", "return")
# The default of a run's `best_metric`.
RETURN = "eval/return"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `corral list`."""
    text = "list only the runs in this directory"
    parser.add_argument("--runs", type=Path, metavar="DIR", help=text)


def run(arguments: argparse.Namespace) -> int:
    """Print the recipes, then the runs."""
    print("Recipes (corral train NAME):")
    _print_table(RECIPES.items())
    root = arguments.runs or RUNS_FOLDER
    here = list(every_run(root))
    print(f"\nRuns in {root} (corral eval RUN):" if here else f"\nNo runs in {root}.")
    _show(here)
    if arguments.runs is None:
        _show_others(here)
    return 0


def _show_others(here: Iterable[RunDirectory]) -> None:
    """Print the runs that were begun elsewhere."""
    places = {directory.path.resolve() for directory in here}
    try:
        known = list(registered_runs())
    except OSError as error:
        reason = f"{register_path()} cannot be read ({error.strerror})"
        print(f"Runs elsewhere are not listed: {reason}", file=sys.stderr)
        return
    others = [one for one in known if one.path not in places]
    if others:
        print("\nRuns elsewhere:")
        _show(others)


def _show(runs: Iterable[RunDirectory]) -> None:
    rows = [_row(directory) for directory in runs]
    if rows:
        _print_table([HEADINGS, *rows])


def _print_table(rows: Collection[tuple[str, ...]]) -> None:
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        cells = (f"{cell:<{width}}" for cell, width in zip(row, widths, strict=True))
        print(f"  {'  '.join(cells)}".rstrip())


def _row(directory: RunDirectory) -> tuple[str, str, str, str]:
    about = directory.read_about()
    latest = jsonl.latest(directory.metrics, ("step", "episode/return"))
    done, total = latest.get("step", 0), about.get("total_steps")
    steps = f"{done}/{total}" if total else f"{done}"
    shown = _judged(about) or _training(directory, latest)
    return str(directory.path), state_of(directory), steps, shown


def _judged(about: dict[str, Any]) -> str:
    """The return of the best policy on new episodes, else of the best evaluation."""
    final, best = _number(about, "final"), _number(about, "best")
    if final is not None:
        return score(final, _number(about, "final_std"))
    if best is None:
        return ""
    metric = about.get("best_metric", RETURN)
    named = "evaluation" if metric == RETURN else metric
    return f"{score(best, _number(about, 'best_std'))} (best {named})"


def _training(directory: RunDirectory, latest: dict[str, Any]) -> str:
    """The mean return of the latest episodes, and their standard deviation."""
    mean = _number(latest, "episode/return")
    if mean is None:
        return ""
    rows = jsonl.read(directory.episodes, jsonl.LATEST_BYTES)[-RECENT_EPISODES:]
    returns = [value for row in rows if (value := _number(row, "return")) is not None]
    spread = statistics.pstdev(returns) if len(returns) > 1 else None
    return f"{score(mean, spread)} (while training)"


def _number(values: dict[str, Any], name: str) -> float | None:
    value = values.get(name)
    return value if isinstance(value, (int, float)) else None
