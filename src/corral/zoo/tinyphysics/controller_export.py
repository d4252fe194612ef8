"""A run's policy as a file of the official challenge: `corral export --controller`.

The file is `exported_controller.py` with the run's settings and weights in it; it needs
numpy, and nothing of Corral. Plain weights are written beside it, as a `.pth`.
"""

from __future__ import annotations

import base64
import re
from importlib.resources import files
from pathlib import Path
from typing import Any

import numpy as np

from corral.errors import OptionError
from corral.learners.registry import learner_class
from corral.train.run import signed_config
from corral.train.run.checkpoint import Checkpoint, checkpoint_at
from corral.train.run.directory import find, replacing, write_text
from corral.train.run.loaded_run import CHECKPOINTS
from corral.zoo.tinyphysics.cockpit import LARGEST
from corral.zoo.tinyphysics.track import STEER_LIMIT
from corral.zoo.tinyphysics.views import TURNS, VIEWS

TEMPLATE = "exported_controller.py"


def export_controller(run: Path, path: Path, checkpoint: str = "best") -> list[Path]:
    """Write the controller of a run; return the paths of the files.

    Args:
        run: a run's directory, or a checkpoint in it.
        path: of the controller; the weights are beside it, with the suffix `.pth`.
        checkpoint: best or last, where a directory is named.
    """
    config = signed_config.read(find(run))
    _check(run, path, config)
    chosen = checkpoint_at(run, checkpoint, *CHECKPOINTS)
    net = Checkpoint.load(chosen).learner["net"]
    write_text(path, _filled(_source(), _values(config, net)))
    weights = path.with_suffix(".pth")
    _save(net, weights)
    return [path, weights]


def _check(run: Path, path: Path, config: Any) -> None:
    if path.suffix != ".py" or not path.stem.isidentifier():
        raise OptionError(
            f"--controller {path}: the challenge imports it, so name it as a module: "
            "controller.py"
        )
    if config.env not in VIEWS:
        raise OptionError(
            f"{run} is a run of {config.env}; --controller is for runs of tinyphysics"
        )
    if learner_class(config.learner).group != "ppo" or config.normalise_obs:
        raise OptionError(
            f"{run} has learner {config.learner} and normalise_obs "
            f"{config.normalise_obs}; a controller is written for learner: ppo and "
            "normalise_obs: false"
        )
    if config.ppo.memory != "none":
        raise OptionError(
            f"{run} has ppo.memory: {config.ppo.memory}; a controller is written for "
            "policies without a memory"
        )


def _values(config: Any, net: dict[str, Any]) -> dict[str, Any]:
    """The constants of the file, by name."""
    actor = sorted(
        {name.rpartition(".")[0] for name in net if name.startswith("actor.layers.")},
        key=lambda name: int(name.rpartition(".")[2]),
    )
    layers = [*actor, "head.layer"]
    pairs = [(net[f"{name}.weight"], net[f"{name}.bias"]) for name in layers]
    numbers = [np.asarray(part, np.float32).ravel() for pair in pairs for part in pair]
    kwargs, view = config.env_kwargs, VIEWS[config.env]
    return {
        "VIEW": view.name,
        "ACTIVATION": config.ppo.activation,
        "LARGEST_ACTION": LARGEST if view is TURNS else STEER_LIMIT,
        "LIMIT": kwargs.get("limit"),
        "ERROR_SUM_LIMIT": kwargs.get("error_sum_limit"),
        "SCALED": bool(kwargs.get("scaled", False)),
        "SHAPES": [tuple(weight.shape) for weight, _ in pairs],
        "WEIGHTS": base64.b64encode(np.concatenate(numbers).tobytes()).decode(),
    }


def _source() -> str:
    return files("corral.zoo.tinyphysics").joinpath(TEMPLATE).read_text()


def _filled(source: str, values: dict[str, Any]) -> str:
    """The file with these constants instead of its own."""
    for name, value in values.items():
        # A base64 text and plain literals have no backslash to escape.
        line = f"{name} = {value!r}"
        source, count = re.subn(rf"^{name} = .*$", line, source, flags=re.MULTILINE)
        assert count == 1, f"{TEMPLATE} has {count} lines `{name} = ...`"
    return source


def _save(net: dict[str, Any], path: Path) -> None:
    import torch

    with replacing(path) as file:
        torch.save({name: value.clone() for name, value in net.items()}, file)
