"""Train a policy.

    corral train cartpole
    corral train pendulum --seed 3 --set ppo.lr=1e-4
    corral train my_config.yaml --num-envs 16 --name first-try
    corral train --resume runs/cartpole/2026-01-31_12-00-00
    corral train ant --init-from runs/ant/2026-01-31_12-00-00
    corral train box_jump --num-processes 8 --model-path best.pt
    corral train ant --cluster auto --num-envs 512

Writes runs/NAME/TIME/: the resolved config, metrics (JSON lines, TensorBoard), the last
and the best checkpoint, a video if the env renders, and report.html. Ctrl-C saves a
checkpoint and stops. `corral list` lists the recipes, `corral config` the settings that
a YAML file can have.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from corral.cli.options import add_options
from corral.errors import OptionError
from corral.train.commands.argument_types import (
    add_set,
    add_trust,
    count,
    settings_of,
    whole,
)
from corral.train.commands.requirements import (
    Need,
    config_near,
    training,
    training_in,
    training_of,
)
from corral.train.recipes import RECIPES

SUMMARY = "train a policy"
OPTIONS = ("num_envs", "workers", "total_steps", "seed", "name")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `corral train`."""
    add = parser.add_argument
    text = "recipe or config file to train"
    add("source", nargs="?", metavar="RECIPE|CONFIG.yaml", help=text)
    add_options(
        add,
        ("--num-envs", "N", count, "number of parallel envs"),
        ("--workers", "N", count, "number of threads or processes"),
        (
            "--num-processes",
            "N",
            count,
            "worker processes; sets --num-envs too",
        ),
        ("--total-steps", "N", count, "env steps of the whole run"),
        ("--seed", "N", whole, "seed of envs, actions and weights"),
        ("--cluster", "ADDRESS", str, "Ray cluster: auto, HOST:PORT, or local"),
    )
    text = "show env 0 in a window (some recipes); all envs run in this process"
    add("--render", action="store_true", help=text)
    add_set(add, "any setting, such as ppo.lr=1e-4")
    add = parser.add_argument_group("start from another run").add_argument
    add_options(
        add,
        ("--resume", "RUN", Path, "continue a run, one of its checkpoints, or latest"),
        ("--init-from", "RUN", Path, "start a new run with the weights of another run"),
        ("--model-path", "FILE", Path, "start a new run with a checkpoint's weights"),
    )
    add_trust(add, "resume a run that you did not sign; this runs its code")
    add = parser.add_argument_group("output").add_argument
    add("--name", help="name of the run's folder (default: the recipe's name)")
    add("--out", type=Path, metavar="DIR", help="directory to write the run to")
    add("--wandb", action="store_true", help="log to Weights & Biases as well")


def need(arguments: argparse.Namespace) -> Need:
    """Return the packages that the recipe, the config or the run needs."""
    learner, source = _set_learner(arguments.set), arguments.source or ""
    if arguments.resume is not None:
        needed = training_in(config_near(arguments.resume), learner)
    elif source in RECIPES:
        needed = training_of(source, learner)
    else:
        needed = training_in(Path(source), learner)
    return needed + training("wandb") if arguments.wandb else needed


def _set_learner(settings: Sequence[str]) -> str | None:
    given = [text.partition("=")[2] for text in settings if text.startswith("learner=")]
    return given[-1].strip() if given else None


def run(arguments: argparse.Namespace) -> int:
    """Train; return the exit status."""
    settings = _settings(arguments)
    common = {"wandb": arguments.wandb, "command": arguments.line}
    if arguments.resume is not None:
        _refuse_with_resume(arguments)
        from corral.train.run.start import resume

        training = resume(arguments.resume, settings, trust=arguments.trust, **common)
    elif arguments.source is None:
        raise OptionError(
            "name a recipe or a config: corral train cartpole. See: corral list"
        )
    else:
        from corral.train.run.start import begin

        if arguments.render:
            _check_window(arguments.source)
        places = {"out": arguments.out, "init_from": _weights(arguments)}
        training = begin(arguments.source, settings, **places, **common)
    with training:
        return training.run()


def _settings(arguments: argparse.Namespace) -> dict[str, Any]:
    """Dotted keys -> values; options of their own override `--set`."""
    own = {name: getattr(arguments, name) for name in OPTIONS}
    given = {name: value for name, value in own.items() if value is not None}
    if (processes := arguments.num_processes) is not None:
        if arguments.workers is not None:
            raise OptionError("--num-processes and --workers: use only one of them")
        placed = {"num_envs": processes, "workers": processes, "backend": "process"}
        given = placed | given
    if arguments.render:
        given["render"] = True
    if arguments.cluster is not None:
        given["cluster.address"] = arguments.cluster
    return {**settings_of(arguments.set), **given}


def _check_window(source: str) -> None:
    from corral.train.recipes.resolve import kind_of, load

    recipe = source if source in RECIPES else load(Path(source)).get("recipe") or ""
    if "render" not in kind_of(str(recipe)).model_fields:
        shown = f"recipe {source}" if source in RECIPES else source
        raise OptionError(
            f"--render: {shown} has no window. It records videos instead: "
            "--set video=evaluations"
        )


def _weights(arguments: argparse.Namespace) -> Path | None:
    """The run or file to begin with."""
    run, file = arguments.init_from, arguments.model_path
    if run is not None and file is not None:
        raise OptionError("--init-from and --model-path: use only one of them")
    if file is not None and not file.is_file():
        raise OptionError(
            f"--model-path {file}: there is no such file; give a checkpoint of a run, "
            "such as RUN/checkpoints/best.pt"
        )
    chosen: Path | None = file if run is None else run
    return chosen


def _refuse_with_resume(arguments: argparse.Namespace) -> None:
    for name in ("source", "out", "init_from", "model_path", "name"):
        if getattr(arguments, name) is not None:
            shown = "a recipe" if name == "source" else f"--{name.replace('_', '-')}"
            raise OptionError(
                f"--resume continues a run with its own settings: leave out {shown}, "
                "or begin a new run with --init-from"
            )
