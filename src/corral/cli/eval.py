"""Evaluate a trained policy.

Runs an exact number of episodes with deterministic actions, and prints their mean
return.

    corral eval runs/cartpole/2026-01-31_12-00-00
    corral eval runs/cartpole/2026-01-31_12-00-00 --checkpoint last --episodes 500
    corral eval RUN --video episode.gif
    corral eval RUN --render --episodes 3      watch it in a window

`corral eval tinyphysics` runs that system's own evaluation instead.
"""

from __future__ import annotations

import argparse
import importlib
import json
from math import isfinite
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING

from corral.cli.options import add_options
from corral.errors import OptionError
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

if TYPE_CHECKING:
    from corral.train.run.loaded_run import LoadedRun

SUMMARY = "evaluate a trained policy"
EPISODES, SEED = 100, 1_000_000
# In a window, where an episode takes as long as it would in reality.
SHOWN_EPISODES = 5


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
    text = "sample actions from the policy, as in training"
    add("--stochastic", action="store_true", help=text)
    text = f"show one env in a window (default: {SHOWN_EPISODES} episodes)"
    add("--render", action="store_true", help=text)
    add_options(
        add,
        ("--json", "FILE", Path, "write returns and lengths as JSON"),
        ("--video", "FILE", Path, "write one episode as a GIF"),
    )
    add_trust(add, "evaluate a run that you did not sign; this runs its code")
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
    from corral.train.run.loaded_run import LoadedRun

    placed = {"num_envs": arguments.num_envs, "workers": arguments.workers}
    settings = settings_of(arguments.set)
    if arguments.render:
        _check_window(arguments)
        # The env in the window is alone in this process: not all can share one.
        placed, settings = {"num_envs": 1}, {**settings, "backend": "process"}
    with LoadedRun(
        arguments.run_path,
        which=arguments.checkpoint,
        trust=arguments.trust,
        settings=settings,
        command=arguments.line,
        **placed,
    ) as loaded:
        print(f"{loaded.path}: {loaded.config.env}, update {loaded.update}")
        try:
            return _evaluate(loaded, arguments)
        finally:
            for line in loaded.restarts():
                print(line)


def _check_window(arguments: argparse.Namespace) -> None:
    from corral.train.sinks.window import check_display

    for name in ("num_envs", "workers"):
        if getattr(arguments, name) is not None:
            option = name.replace("_", "-")
            raise OptionError(f"--render shows one env: leave out --{option}")
    check_display("--render", instead="use --video FILE")


def _evaluate(loaded: LoadedRun, arguments: argparse.Namespace) -> int:
    from corral.train.run.trial_envs import returns_by_episode

    seed = SEED if arguments.seed is None else arguments.seed
    default = SHOWN_EPISODES if arguments.render else EPISODES
    count, stochastic = arguments.episodes or default, arguments.stochastic
    play = loaded.show if arguments.render else loaded.evaluate
    result = play(count, seed, stochastic=stochastic)
    if result is None:
        print("The window was closed.")
        return 0
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
