"""`corral eval tinyphysics`: the costs of a controller, route by route."""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from corral.errors import MissingExtra, OptionError, WriteFailed
from corral.train.commands.argument_types import check_file, count, save
from corral.train.commands.requirements import Need, training

if TYPE_CHECKING:
    from corral.zoo.tinyphysics import Costs
    from corral.zoo.tinyphysics.evaluation import Controller

NAME = "tinyphysics"
EXAMPLES = """\
Drive every tinyphysics route once, and print its cost.

    corral eval tinyphysics --controller pid --data data --model tinyphysics.onnx
    corral eval tinyphysics --controller runs/tinyphysics/2026-01-31_12-00-00
"""
NUM_ENVS = 8
# Options of this evaluation only.
OWN = ("controller", "data", "model", "backend", "batched", "limit", "html")
# Options of every other evaluation.
OTHERS = ("episodes", "seed", "stochastic", "video", "render")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of `corral eval tinyphysics`."""
    add = parser.add_argument_group(
        "tinyphysics", "corral eval tinyphysics: drive every route once"
    ).add_argument
    add("--controller", metavar="pid|RUN", help="pid, or a run's directory")
    # str, not Path: the spelling seeds the routes.
    add("--data", metavar="DIR", help="directory of routes (default: synthetic ones)")
    add("--model", metavar="FILE", help="ONNX file of the car (default: a small one)")
    backends = ("auto", "serial", "thread", "process")
    add("--backend", choices=backends, help="where the cars run (default: auto)")
    add("--batched", action="store_true", help="one model call for a worker's cars")
    add("--limit", type=count, metavar="N", help="the first N routes only")
    add("--html", type=Path, metavar="FILE", help="report (default: beside --json)")


def refuse(arguments: argparse.Namespace) -> None:
    """Raise OptionError if another evaluation got an option of this one."""
    for name in _given(arguments, OWN):
        raise OptionError(
            f"--{name} is an option of `corral eval {NAME}`; to evaluate the run "
            f"there: corral eval {NAME} --controller {arguments.run_path}"
        )


def need(arguments: argparse.Namespace) -> Need:
    """The model; plots only for --html; torch only for a run."""
    if arguments.controller not in (None, "pid"):
        return training("tinyphysics")
    pictures = ("matplotlib",) if arguments.html is not None else ()
    return Need(("tinyphysics",), ("onnx", "onnxruntime", "rich", *pictures))


def run(arguments: argparse.Namespace) -> int:
    """Drive, show, write; returns the exit status."""
    _check(arguments)
    from corral.train.sinks.console import progress_bar
    from corral.zoo.tinyphysics import evaluation, find_routes
    from corral.zoo.tinyphysics.evaluation import PID_NAME, controller_of

    name = PID_NAME if arguments.controller is None else arguments.controller
    controller = controller_of(name, arguments.checkpoint)
    paths = find_routes(arguments.data)[: arguments.limit]
    with progress_bar() as progress:
        progress.expect(len(paths))
        progress.show_status("reading")
        evaluation.check(arguments.model, paths)
        progress.show_status("driving")
        with evaluation.open_pool(
            controller,
            arguments.model,
            min(arguments.num_envs or NUM_ENVS, len(paths)),
            backend=arguments.backend or "auto",
            workers=arguments.workers,
            batched=arguments.batched,
        ) as pool:
            policy = controller.policy_for(pool.spec)
            costs = evaluation.drive(pool, policy, paths, progress.turn)
            traces = evaluation.trace(pool, policy, evaluation.samples_of(costs))
            layout = str(pool.layout)
    _show(controller, costs)
    _write(arguments, controller, costs, traces, layout)
    return 0


def _check(arguments: argparse.Namespace) -> None:
    for name in _given(arguments, OTHERS):
        raise OptionError(
            f"--{name} has no meaning for {NAME}: it drives every route once, "
            "seeded with its path"
        )
    check_file("--json", arguments.json)
    check_file("--html", arguments.html)
    report = arguments.html or _beside(arguments.json)
    if arguments.json is not None and report.resolve() == arguments.json.resolve():
        raise OptionError(
            f"--json {arguments.json} is also the file of the report; name another "
            "one with --html"
        )


def _given(arguments: argparse.Namespace, names: Sequence[str]) -> list[str]:
    values = vars(arguments)
    return [
        name for name in names if not (values[name] is None or values[name] is False)
    ]


def _show(controller: Controller, costs: Mapping[str, Costs]) -> None:
    from corral.rollouts.number_format import number
    from corral.zoo.tinyphysics.evaluation import mean_of, mean_text

    width = max(map(len, costs))
    print(f"{'route':<{width}}  {'lataccel':>9}  {'jerk':>9}  {'total':>9}")
    for path, cost in {**costs, "mean": mean_of(costs)}.items():
        columns = "  ".join(f"{number(value):>9}" for value in cost)
        print(f"{path:<{width}}  {columns}")
    print(f"{controller.name}: {mean_text(costs)} over {len(costs)} routes")


def _write(
    arguments: argparse.Namespace,
    controller: Controller,
    costs: Mapping[str, Costs],
    traces: Any,
    layout: str,
) -> None:
    if arguments.json is not None:
        table = {path: cost._asdict() for path, cost in costs.items()}
        save(arguments.json, (json.dumps(table, indent=1) + "\n").encode())
    path = arguments.html or _beside(arguments.json)
    facts = {
        "routes": arguments.data or "synthetic",
        "model": arguments.model or "the small generated one",
        "layout": layout,
    }
    try:
        from corral.train.run.directory import write_text
        from corral.zoo.tinyphysics.page import page

        write_text(path, page(controller.name, costs, traces, facts, arguments.line))
        print(f"Written: {path}")
    except (MissingExtra, WriteFailed) as error:
        if arguments.html is not None:
            raise
        print(f"No report: {error}")


def _beside(path: Path | None) -> Path:
    # Not next to a device such as /dev/stdout.
    if path is None or (path.exists() and not path.is_file()):
        return Path(f"{NAME}.html")
    return path.with_suffix(".html")
