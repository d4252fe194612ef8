"""How good is a policy that was trained?

Runs exactly as many episodes as asked, with the policy's most likely actions, and
prints their mean return.

    corral eval runs/cartpole/2026-01-31_12-00-00
    corral eval runs/cartpole/2026-01-31_12-00-00 --checkpoint last --episodes 500
    corral eval RUN --video episode.gif
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

from corral.cli.kinds import count, whole

SUMMARY = "how good is a policy that was trained?"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Everything `corral eval` takes."""
    add = parser.add_argument
    add("run_path", type=Path, metavar="RUN", help="a run's directory, or a checkpoint")
    add(
        "--checkpoint",
        choices=("best", "last"),
        default="best",
        help="which one of a run's directory (best)",
    )
    add("--episodes", type=count, default=100, metavar="N", help="exactly (100)")
    add("--seed", type=whole, default=1_000_000, help="of the episodes (1000000)")
    add("--num-envs", type=count, metavar="N", help="at the same time (the run's)")
    add("--workers", type=count, metavar="N", help="threads or processes (the run's)")
    add("--stochastic", action="store_true", help="draw actions as while training")
    add("--json", type=Path, metavar="FILE", help="write returns and lengths as JSON")
    add("--video", type=Path, metavar="FILE", help="write one episode as a GIF")


def run(arguments: argparse.Namespace) -> int:
    """Evaluate, show, write; returns the exit status."""
    from corral.run.revisit import Revisit

    with Revisit(
        arguments.run_path,
        which=arguments.checkpoint,
        num_envs=arguments.num_envs,
        workers=arguments.workers,
    ) as revisit:
        print(f"{revisit.path}: {revisit.config.env}, update {revisit.update}")
        result = revisit.evaluate(
            arguments.episodes, arguments.seed, stochastic=arguments.stochastic
        )
        print(
            f"return {result.mean:,.2f} ± {result.std:,.2f} over "
            f"{len(result.returns)} episodes"
        )
        if arguments.json is not None:
            table = {
                "returns": [float(value) for value in result.returns],
                "lengths": [int(value) for value in result.lengths],
            }
            arguments.json.write_text(json.dumps(table) + "\n", encoding="utf-8")
            print(f"Written: {arguments.json}")
        if arguments.video is not None:
            arguments.video.write_bytes(revisit.video(arguments.seed))
            print(f"Written: {arguments.video}")
    return 0
