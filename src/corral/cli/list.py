"""What can be trained, and what has been.

corral list
corral list --runs elsewhere/runs
"""

from __future__ import annotations

import argparse
from pathlib import Path

SUMMARY = "recipes, and the runs there are"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Everything `corral list` takes."""
    parser.add_argument(
        "--runs",
        type=Path,
        default=Path("runs"),
        metavar="DIR",
        help="where runs are kept (runs)",
    )


def run(arguments: argparse.Namespace) -> int:
    """Print both lists."""
    from corral.recipes import RECIPES
    from corral.run.directory import every_run

    print("Recipes (corral train NAME):")
    width = max(map(len, RECIPES))
    for name, summary in RECIPES.items():
        print(f"  {name:<{width}}  {summary}")
    runs = list(every_run(arguments.runs))
    print(f"\nRuns in {arguments.runs}:" if runs else f"\nNo runs in {arguments.runs}.")
    for directory in runs:
        told = directory.told()
        print(
            f"  {directory.path}  {told.get('state', 'began')}  {_best(told)}".rstrip()
        )
    return 0


def _best(told: dict[str, object]) -> str:
    from corral.digits import score

    final, spread, best = (told.get(name) for name in ("final", "final_std", "best"))
    if isinstance(final, float):
        return score(final, spread if isinstance(spread, float) else None)
    return score(best) if isinstance(best, float) else ""
