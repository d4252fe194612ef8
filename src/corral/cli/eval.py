"""Evaluate a trained policy.

Runs exactly as many episodes as asked, with the policy's most likely actions, and
prints their mean return.

    corral eval runs/cartpole/2026-01-31_12-00-00
    corral eval runs/cartpole/2026-01-31_12-00-00 --checkpoint last --episodes 500
    corral eval RUN --video episode.gif

Or evaluates an example system that has an evaluation of its own, by its name.
"""

from __future__ import annotations

import argparse
import importlib
import json
from math import isfinite
from pathlib import Path
from types import ModuleType

from corral.cli.options import add_options
from corral.train.commands.argument_types import (
    add_set,
    add_trust,
    count,
    save,
    settings_of,
    whole,
)
from corral.train.commands.requirements import Need, config_near, training_in
from corral.zoo import EVALUATIONS

SUMMARY = "evaluate a trained policy"
EPISODES, SEED = 100, 1_000_000


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `corral eval`."""
    add = parser.add_argument
    text = f"a run's directory, or a checkpoint; or {', '.join(EVALUATIONS)}"
    add("run_path", type=Path, metavar="RUN", help=text)
    text = "which checkpoint of a run's directory (default: best)"
    add("--checkpoint", choices=("best", "last"), default="best", help=text)
    add_options(
        add,
        ("--episodes", "N", count, f"number of episodes (default: {EPISODES})"),
        ("--seed", "SEED", whole, f"seed of the episodes (default: {SEED})"),
        ("--num-envs", "N", count, "number of envs (default: the run's)"),
        ("--workers", "N", count, "threads or processes (default: the run's)"),
    )
    add_set(add, "a setting of how envs run, such as on_fault=restart")
    text = "draw actions at random, as in training"
    add("--stochastic", action="store_true", help=text)
    add_options(
        add,
        ("--json", "FILE", Path, "write returns and lengths as JSON"),
        ("--video", "FILE", Path, "write one episode as a GIF"),
    )
    add_trust(add, "evaluate a run that you did not sign, which runs its code")
    own = _evaluations().values()
    for system in own:
        system.add_arguments(parser)
    parser.epilog = "\n".join(system.EXAMPLES for system in own)


def need(arguments: argparse.Namespace) -> Need:
    """Return the packages that the run needs."""
    system = _evaluations().get(str(arguments.run_path))
    if system is not None:
        needed: Need = system.need(arguments)
        return needed
    return training_in(config_near(arguments.run_path))


def run(arguments: argparse.Namespace) -> int:
    """Evaluate, print and write; return the exit status."""
    systems = _evaluations()
    if str(arguments.run_path) in systems:
        status: int = systems[str(arguments.run_path)].run(arguments)
        return status
    for system in systems.values():
        system.refuse(arguments)
    seed = SEED if arguments.seed is None else arguments.seed
    from corral.train.run.loaded_run import LoadedRun
    from corral.train.run.trial_envs import returns_by_episode

    with LoadedRun(
        arguments.run_path,
        which=arguments.checkpoint,
        num_envs=arguments.num_envs,
        workers=arguments.workers,
        trust=arguments.trust,
        settings=settings_of(arguments.set),
        command=arguments.line,
    ) as loaded:
        print(f"{loaded.path}: {loaded.config.env}, update {loaded.update}")
        try:
            result = loaded.evaluate(
                arguments.episodes or EPISODES, seed, stochastic=arguments.stochastic
            )
        finally:
            for line in loaded.restarts():
                print(line)
        print(f"return {result}")
        for name, mean in returns_by_episode(result).items():
            print(f"{name} {mean:.4g}")
        if arguments.json is not None:
            returns = [float(value) for value in result.returns]
            table = {
                "returns": [one if isfinite(one) else None for one in returns],
                "lengths": [int(value) for value in result.lengths],
            }
            save(arguments.json, (json.dumps(table) + "\n").encode())
        if arguments.video is not None:
            save(arguments.video, loaded.video(seed))
    return 0


def _evaluations() -> dict[str, ModuleType]:
    """Systems with their own evaluation -> its module."""
    return {name: importlib.import_module(home) for name, home in EVALUATIONS.items()}
