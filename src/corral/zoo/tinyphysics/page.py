"""The report of a controller: costs of all routes, and traces of five."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from functools import partial

import numpy as np

from corral.rollouts.number_format import number
from corral.train.reports.charts import COLORS, INK, Curve, histogram, lines
from corral.train.reports.page import Page
from corral.zoo.tinyphysics import Costs
from corral.zoo.tinyphysics.costs import STEP, WEIGHT
from corral.zoo.tinyphysics.evaluation import Trace, mean_of, mean_text
from corral.zoo.tinyphysics.route import CONTROL_START

MEAN = "mean"


def page(
    controller: str,
    costs: Mapping[str, Costs],
    traces: Sequence[Trace],
    facts: Mapping[str, str],
    command: Sequence[str],
) -> str:
    """The HTML of the report."""
    mean = mean_of(costs)
    built = Page(f"{controller} on {len(costs)} routes", "tinyphysics")
    built.callout(
        f"Mean cost {mean_text(costs)} (standard deviation over the routes): "
        f"{WEIGHT:g} × {number(mean.lataccel)} for lateral acceleration off "
        f"target, {number(mean.jerk)} for jerk. Lower is better."
    )
    _add_histogram(built, controller, costs)
    _add_traces(built, traces)
    built.heading("Every route")
    built.table(
        ["route", "lataccel", "jerk", "total"],
        [(path, *map(number, cost)) for path, cost in {**costs, MEAN: mean}.items()],
        texts=(0,),
        kinds=[*[""] * len(costs), "first strong"],
    )
    built.heading("Setup")
    built.facts(facts)
    built.code(shlex.join(command))
    return built.render()


def _add_histogram(built: Page, controller: str, costs: Mapping[str, Costs]) -> None:
    built.heading("Cost of the routes")
    totals = [cost.total for cost in costs.values()]
    built.picture(
        partial(
            histogram,
            {controller: totals},
            {controller: COLORS["blue"]},
            "total cost of a route",
            "% of the routes",
        ),
        f"Median {number(float(np.median(totals)))}, from {number(min(totals))} to "
        f"{number(max(totals))}.",
    )


def _add_traces(built: Page, traces: Sequence[Trace]) -> None:
    built.heading("Drives")
    built.paragraph(
        "From the lowest cost to the highest: target and actual lateral acceleration, "
        "then the steer (positive is to the right).",
        soft=True,
    )
    for trace in traces:
        seconds = STEP * (CONTROL_START + np.arange(len(trace.target)))
        curves = [
            _curve("target", seconds, trace.target, INK),
            _curve("actual", seconds, trace.actual, COLORS["orange"]),
        ]
        steer = [_curve("steer", seconds, trace.steer, COLORS["blue"])]
        cost = trace.costs
        built.paragraph(
            f"{trace.path}: cost {number(cost.total)}, of it "
            f"{number(WEIGHT * cost.lataccel)} for lateral acceleration off target and "
            f"{number(cost.jerk)} for jerk"
        )
        built.picture(partial(lines, curves, "seconds", "lateral acceleration, m/s²"))
        built.picture(partial(lines, steer, "seconds", "steer"))


def _curve(name: str, seconds: np.ndarray, values: np.ndarray, color: str) -> Curve:
    points = list(zip(seconds.tolist(), values.tolist(), strict=True))
    return Curve(name, points, color, "-", "")
