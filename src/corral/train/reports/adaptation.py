"""The part of a page about trials: returns by episode, and paths on a map."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from corral.train.reports.charts import COLORS, INK, Curve, lines, maps
from corral.train.reports.page import Page

EPISODE_LABEL = "episode of a trial"
COLOR_ORDER = ("gray", "blue", "green", "purple", "orange", "gold", "cyan", "red")


def add_adaptation(
    built: Page,
    found: Mapping[str, Any],
    over_time: Sequence[Sequence[tuple[float, float]]],
) -> None:
    """Add it.

    Args:
        built: the page.
        found: what `adaptation_of` returned for the best policy; empty before the end.
        over_time: (step, return) of evaluations, for each episode of a trial.
    """
    if len(over_time) < 2:
        return
    built.heading("Adaptation")
    _add_returns(built, found, [points[-1][1] for points in over_time])
    shown = [
        Curve(f"episode {place}", points, COLORS[color], "-", "o")
        for place, (points, color) in enumerate(
            zip(over_time, _colors(len(over_time)), strict=True), 1
        )
    ]
    draw = partial(lines, shown, "env steps", "return", start=0.0)
    built.picture(
        lambda width: draw(width=width),
        "Mean return in each episode of a trial, in the evaluations of the run.",
    )
    _add_map(built, found)


def _add_returns(built: Page, found: Mapping[str, Any], latest: list[float]) -> None:
    """Show the best policy, or the latest before the run has ended."""
    returns = found.get("returns") or latest
    still = found.get("still")
    whose = "Best policy" if found else "Latest evaluation"
    curves = [Curve(whose, _numbered(returns), COLORS["blue"], "-", "o")]
    said = f"{whose}: mean return in the first, second, ... episode with one task."
    spread = []
    if found:
        bounds = zip(returns, found["deviations"], strict=True)
        spread = [(n, mean - by, mean + by) for n, (mean, by) in enumerate(bounds, 1)]
        said += (
            " These tasks had no part in training and choosing it; the shade is one "
            "standard deviation of the trials."
        )
    if still:
        curves.insert(0, Curve("standing still", _numbered(still), INK, ":", ""))
        said += " Dotted: the action 0 at every step."
    draw = partial(lines, curves, EPISODE_LABEL, "return", spread=spread, whole=True)
    built.picture(lambda width: draw(width=width), said)


def _add_map(built: Page, found: Mapping[str, Any]) -> None:
    paths = found.get("paths")
    if not paths:
        return
    count = len(paths[0]["episodes"])
    colors = [COLORS[name] for name in _colors(count)]
    names = [f"episode {place}" for place in range(1, count + 1)]
    goals = [path["goal"] for path in paths]
    walks = [path["episodes"] for path in paths]
    draw = partial(maps, walks, goals, dict(zip(names, colors, strict=True)))
    built.picture(
        lambda width: draw(radius=found.get("goal_radius"), width=width),
        "Paths of the best policy, one picture for each trial: dots are where episodes "
        "begin, the circle is the goal.",
    )


def _colors(count: int) -> list[str]:
    """The first in gray, the last in blue."""
    middle = [name for name in COLOR_ORDER if name not in ("gray", "blue")]
    between = [middle[place % len(middle)] for place in range(count - 2)]
    return ["gray", *between, "blue"][-count:]


def _numbered(values: Sequence[float]) -> list[tuple[float, float]]:
    return [(float(place), value) for place, value in enumerate(values, 1)]
