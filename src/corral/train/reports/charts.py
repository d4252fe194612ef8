"""Pictures as inline SVG: the one place of the package that imports matplotlib.

They are drawn in the page's own colours: everything in INK follows the text
colour of the page, so that one picture serves light and dark.
"""

from __future__ import annotations

import io
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import count
from typing import Any

import numpy as np

from corral.errors import requires

with requires(
    "a report with pictures needs matplotlib: pip install 'corral[bench]', or "
    "'corral[train]' to train"
):
    import matplotlib
    from matplotlib.figure import Figure
    from matplotlib.patches import Circle, Patch
    from matplotlib.ticker import LogLocator, MaxNLocator, NullLocator

# Stands for the page's text colour in every picture.
INK = "#012345"
# Inches of a picture, unless asked otherwise: a page's whole width. See `Page`.
CHART_INCHES = 8.4
# Along the axis of a wide picture, at most.
MAX_TICKS = 10
# Inches that one bar takes.
BAR_INCHES = 0.27
# Readable on white and on black.
COLORS = {
    "blue": "#4a9ede",
    "green": "#1fa37a",
    "orange": "#e06a1b",
    "purple": "#b06ab3",
    "gold": "#c99a1e",
    "gray": "#8a9096",
    "red": "#d2504f",
    "cyan": "#2fb3c6",
}

_SETTINGS = {
    "svg.fonttype": "none",
    "font.size": 10,
    "text.color": INK,
    "axes.edgecolor": INK,
    "axes.labelcolor": INK,
    "xtick.color": INK,
    "ytick.color": INK,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": INK,
    "grid.alpha": 0.15,
    "legend.frameon": False,
    "lines.markersize": 5,
    "lines.linewidth": 1.8,
}
_styled = matplotlib.rc_context(_SETTINGS)
_numbers = count(1)


@dataclass(frozen=True, slots=True)
class Curve:
    """A line through points."""

    name: str
    points: Sequence[tuple[float, float]]
    color: str = INK
    dashes: str = "-"
    marker: str = "o"


@dataclass(frozen=True, slots=True)
class StackedBar:
    """A bar of one part, or of several that are stacked.

    Attributes:
        text: Written at its end.
    """

    name: str
    parts: Mapping[str, float]
    text: str = ""


# Bars that belong together, under their title.
Panels = Mapping[str, Sequence[StackedBar]]


@_styled
def curves(lines: Sequence[Curve], x_label: str, y_label: str) -> str:
    """Lines on logarithmic axes, a tick at every x that was measured."""
    figure = _figure(4.2)
    axes = figure.subplots()
    # In the legend as they end in the picture, the highest on top.
    _plot(axes, sorted(lines, key=lambda line: -line.points[-1][1]))
    axes.set_xscale("log", base=2)
    ticks = sorted({x for line in lines for x, _ in line.points})
    axes.set(xlabel=x_label, ylabel=y_label, yscale="log", xticks=ticks)
    axes.yaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
    for axis, form in ((axes.xaxis, "{x:g}"), (axes.yaxis, _short)):
        axis.set_minor_locator(NullLocator())
        axis.set_major_formatter(form)
    axes.legend(loc="center left", bbox_to_anchor=(1.01, 0.5))
    return _svg(figure)


@_styled
def lines(
    shown: Sequence[Curve],
    x_label: str,
    y_label: str,
    *,
    spread: Sequence[tuple[float, float, float]] = (),
    level: float | None = None,
    floor: float | None = None,
    start: float | None = None,
    whole: bool = False,
    width: float = CHART_INCHES,
) -> str:
    """Lines on plain axes.

    Args:
        shown: what to draw.
        x_label: what goes on from left to right.
        y_label: what goes up.
        spread: (x, low, high) of a shade behind the lines.
        level: a height to compare with.
        floor: where the upward axis begins; below the lowest point if None.
        start: where the other one begins; at the first point if None.
        whole: whether only whole numbers are marked on it.
        width: inches.
    """
    figure, wide = _figure(_height(width), width), width == CHART_INCHES
    axes = figure.subplots()
    if spread:
        xs, low, high = zip(*spread, strict=True)
        axes.fill_between(xs, low, high, color=shown[-1].color, alpha=0.2, lw=0)
    if level is not None:
        axes.axhline(level, color=INK, alpha=0.4, linestyle=":", linewidth=1.2)
    _plot(axes, shown)
    limits = {"xlim": (start, None), "ylim": (floor, None)}
    axes.set(xlabel=x_label, ylabel=y_label, **limits)
    ticks = MAX_TICKS if wide else MAX_TICKS // 2
    axes.xaxis.set_major_locator(MaxNLocator(ticks, integer=whole))
    axes.xaxis.set_major_formatter(_short)
    axes.yaxis.set_major_formatter(_short)
    if len(shown) > 1 and wide:
        axes.legend(loc="best")
    elif len(shown) > 1:  # there is no room beside the lines
        _legend_on_top(figure, axes, width)
    return _svg(figure)


@_styled
def maps(
    walks: Sequence[Sequence[Sequence[tuple[float, float]]]],
    goals: Sequence[tuple[float, float] | None],
    colors: Mapping[str, str],
    *,
    radius: float | None = None,
    width: float = CHART_INCHES,
) -> str:
    """Paths seen from above, a picture for each trial.

    Args:
        walks: the points of each episode of each trial.
        goals: of each trial.
        colors: name -> colour of each episode.
        radius: of the goals.
        width: inches.
    """
    columns = 3 if width == CHART_INCHES else 2
    rows = -(-len(walks) // columns)
    figure = Figure((width, 0.85 * rows * width / columns), layout="constrained")
    grid = figure.subplots(rows, columns, sharex=True, sharey=True, squeeze=False)
    for axes, walk, goal in zip(grid.flat, walks, goals, strict=False):
        _draw_walk(axes, walk, colors)
        if goal is not None:
            axes.plot(*goal, "+", color=INK)
            axes.add_patch(Circle(goal, radius or 0.0, fill=False, color=INK))
        axes.set_aspect("equal")
    for axes in grid.flat[len(walks) :]:
        axes.set_axis_off()
    handles = [Patch(color=color) for color in colors.values()]
    figure.legend(handles, colors, loc="outside upper left", ncols=len(colors))
    return _svg(figure)


def _draw_walk(axes: Any, walk: Any, colors: Mapping[str, str]) -> None:
    for points, color in zip(walk, colors.values(), strict=True):
        xs, ys = zip(*points, strict=True)
        axes.plot(xs, ys, "-", color=color, marker="")
        axes.plot(xs[0], ys[0], "o", color=color)


def _plot(axes: Any, shown: Sequence[Curve]) -> None:
    for line in shown:
        style = {"label": line.name, "color": line.color, "marker": line.marker}
        axes.plot(*zip(*line.points, strict=True), line.dashes, **style)


@_styled
def histogram(
    values: Mapping[str, Sequence[float]],
    colors: Mapping[str, str],
    x_label: str,
    y_label: str,
    width: float = CHART_INCHES,
) -> str:
    """How often values of each size came; groups are drawn over one another."""
    every = [value for group in values.values() for value in group]
    bins = min(40, max(1, int(max(every) - min(every)) + 1))
    edges = np.histogram_bin_edges(every, bins).tolist()
    figure = _figure(_height(width), width)
    axes = figure.subplots()
    for name, group in values.items():
        weights, color = [100.0 / len(group)] * len(group), colors[name]
        axes.hist(group, edges, weights=weights, label=name, color=color, alpha=0.6)
    axes.set(xlabel=x_label, ylabel=y_label)
    axes.grid(False, axis="x")
    _legend_on_top(figure, axes, width)
    return _svg(figure)


@_styled
def bars(panels: Panels, colors: Mapping[str, str], x_label: str, top: float) -> str:
    """Horizontal bars, panel under panel; with several parts, a legend on top.

    Args:
        panels: what to draw.
        colors: of each part by its name, or of each bar by its own.
        x_label: what the length means.
        top: where the axis ends at least.
    """
    panels = {title: bars for title, bars in panels.items() if bars}
    sizes = [len(bars) + 1.2 for bars in panels.values()]
    figure = _figure(BAR_INCHES * sum(sizes) + 0.9)
    rows = figure.subplots(
        len(panels), sharex=True, squeeze=False, height_ratios=sizes
    )[:, 0]
    shown = [bar for bars in panels.values() for bar in bars]
    top = max(top, *(1.02 * sum(bar.parts.values()) for bar in shown))
    for axes, (title, bars) in zip(rows, panels.items(), strict=True):
        for place, bar in enumerate(bars):
            _draw_bar(axes, place, bar, colors)
        axes.set_yticks(range(len(bars)), [bar.name for bar in bars])
        axes.set_ylim(len(bars) - 0.4, -0.6)
        axes.set_title(title, loc="left", fontsize=10, fontweight="bold")
        axes.tick_params(axis="y", length=0)
        axes.grid(False, axis="y")
    rows[-1].set(xlabel=x_label, xlim=(0, top))
    rows[-1].xaxis.set_major_formatter(_short)
    parts = list(dict.fromkeys(part for bar in shown for part in bar.parts))
    if len(parts) > 1:
        patches = [Patch(color=colors.get(part, INK), label=part) for part in parts]
        figure.legend(handles=patches, loc="outside upper right", ncols=len(parts))
    return _svg(figure)


def _draw_bar(
    axes: Any, place: int, bar: StackedBar, colors: Mapping[str, str]
) -> None:
    start = 0.0
    for part, length in bar.parts.items():
        color = colors.get(part, colors.get(bar.name, INK))
        axes.barh(place, length, left=start, height=0.72, color=color)
        start += length
    shift = {"xytext": (4, 0), "textcoords": "offset points"}
    axes.annotate(bar.text, (start, place), **shift, va="center")


def _legend_on_top(figure: Figure, axes: Any, width: float) -> None:
    """Above the axes, where it covers nothing of what is drawn in them."""
    if width != CHART_INCHES:  # wide pictures make room by themselves
        figure.subplots_adjust(top=1 - 0.35 / _height(width))
    axes.legend(loc="lower left", bbox_to_anchor=(0, 1), ncols=2)


def _figure(height: float, width: float = CHART_INCHES) -> Figure:
    """A figure of that many inches."""
    if width == CHART_INCHES:
        return Figure((width, height), layout="constrained")
    figure = Figure((width, height))
    # Axes of small pictures are below each other; and it takes half the time.
    left, bottom, rest = 0.75 / width, 0.5 / height, 0.1
    figure.subplots_adjust(left, bottom, 1 - rest / width, 1 - rest / height)
    return figure


def _height(width: float) -> float:
    """Flat where it is wide; a narrow one needs height to show anything."""
    return 3.0 if width == CHART_INCHES else 0.62 * width


def _svg(figure: Figure) -> str:
    """The picture alone: no prologue, sized by the page, ids of its own."""
    buffer = io.StringIO()
    nothing = dict.fromkeys(("Creator", "Date", "Format", "Type"))
    figure.savefig(buffer, format="svg", transparent=True, metadata=nothing)
    outside = re.compile(r"^.*?(?=<svg)|<metadata>.*?</metadata>", flags=re.S)
    text = outside.sub("", buffer.getvalue())
    text = re.sub(r' (width|height)="[^"]*"', "", text, count=2)
    prefix = f"picture{next(_numbers)}-"
    text = re.sub(r'(\bid="|href="#|url\(#)', rf"\g<1>{prefix}", text)
    return text.replace(INK, "currentColor").strip()


def _short(value: float, _: object = None) -> str:
    sizes = ((1e6, "M"), (1e3, "k"), (0.0, ""))
    size, letter = next(one for one in sizes if abs(value) >= one[0])
    return f"{value / (size or 1.0):g}{letter}"
