"""Write a trained policy to files that do not need Corral.

    corral export runs/cartpole/2026-01-31_12-00-00
    corral export RUN --out model --formats onnx
    corral export RUN --controller controller.py    for the tinyphysics challenge

Writes a program for plain torch (policy.pt2), its weights (policy.pth), ONNX
(policy.onnx), and their inputs and outputs (policy.json). The inputs are observations
as the env returns them; the program scales them. The outputs are the most likely
actions, within their bounds.

--controller writes a run of tinyphysics as a controller for the official simulator
instead, and its weights (.pth) beside it.
"""

from __future__ import annotations

import argparse
from importlib import import_module
from pathlib import Path

from corral.cli.options import add_options, names
from corral.errors import OptionError
from corral.train.commands.argument_types import add_trust
from corral.train.commands.requirements import Need, config_near, training_in
from corral.zoo import CONTROLLERS

SUMMARY = "write a trained policy as a torch program and as ONNX"
FORMATS = ("torch", "onnx")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `corral export`."""
    add = parser.add_argument
    text = "a run's directory, or a checkpoint in it"
    add("run_path", type=Path, metavar="RUN", help=text)
    text = "which checkpoint of a run's directory (default: best)"
    add("--checkpoint", choices=("best", "last"), default="best", help=text)
    add_options(
        add,
        ("--out", "DIR", Path, "folder to write to (default: RUN/export)"),
        ("--formats", "NAME,NAME", names, "what to write", FORMATS),
    )
    text = "controller of a tinyphysics run for comma's controls challenge"
    add("--controller", type=Path, metavar="FILE.py", help=text)
    add_trust(add, "export a run that you did not sign; this runs its code")


def need(arguments: argparse.Namespace) -> Need:
    """Return the packages that the run needs."""
    return training_in(config_near(arguments.run_path))


def run(arguments: argparse.Namespace) -> int:
    """Write the files; return the exit status."""
    for name in arguments.formats:
        if name not in FORMATS:
            raise OptionError(f"--formats {name}: choose {' or '.join(FORMATS)}")
    for path in _written(arguments):
        print(f"Written: {path}")
    return 0


def _written(arguments: argparse.Namespace) -> list[Path]:
    if arguments.controller is not None:
        if arguments.out is not None:
            raise OptionError(
                "--controller FILE.py says where to write: leave out --out"
            )
        where = (arguments.run_path, arguments.controller, arguments.checkpoint)
        found: list[Path] = import_module(CONTROLLERS).export_controller(*where)
        return found
    from corral.train.run.exporting import export_run

    where = (arguments.run_path, arguments.out, arguments.checkpoint)
    return export_run(*where, arguments.formats, trust=arguments.trust)
