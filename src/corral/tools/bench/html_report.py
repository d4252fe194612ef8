"""A report as a page with pictures."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Sequence

from corral.tools.bench import figure_text
from corral.tools.bench.candidates import BACKEND_WORDS
from corral.tools.bench.recommend import best_of
from corral.tools.bench.results import BenchReport, CandidateResult, SizeResults
from corral.train.reports.charts import COLORS, INK, Curve, StackedBar, bars, curves
from corral.train.reports.page import Page

LIBRARIES = {
    "loop": INK,
    "gymnasium": COLORS["gray"],
    "sb3": COLORS["purple"],
    "agilerl": COLORS["gold"],
    "supersuit": COLORS["red"],
}
BACKENDS = {
    "serial": COLORS["blue"],
    "thread": COLORS["green"],
    "process": COLORS["orange"],
    "auto": COLORS["orange"],
}
PARTS = {
    "env": COLORS["green"],
    "policy": COLORS["purple"],
    "waiting": COLORS["gray"],
    "copying": COLORS["orange"],
}
IN_PROCESSES = ("async", "subproc")
PERCENT = 100.0


def page(report: BenchReport, command: Sequence[str]) -> str:
    """The whole file."""
    built = Page(
        f"{report.settings.env} on {report.machine['cores']} cores",
        f"{figure_text.method(report)}; {figure_text.machine(report)}",
    )
    if report.interrupted:
        built.paragraph("Interrupted: these are the rounds until then.")
    if report.recommendation is not None:
        chosen = report.recommendation
        built.callout(chosen.sentence, chosen.code)
    for draw in (_add_scaling, _add_efficiency, _add_split, _add_table, _add_rest):
        draw(built, report)
    built.heading("Command")
    built.code(shlex.join(command))
    return built.render()


# Pictures -----------------------------------------------------------------------------


def _add_scaling(built: Page, report: BenchReport) -> None:
    if not any(_measured(group) for group in report.groups):
        return
    alone = len(report.groups) == 1
    built.heading("How fast" if alone else "How it scales")
    if alone:
        speeds = _panels(report, lambda row: row.steps_per_second, "{:,.0f}")
        svg = bars(speeds, _bar_colors(report), "env steps per second", 0.0)
    else:
        svg = curves(_lines(report), "envs", "env steps per second")
    built.figure(svg, "More is better. The limit: all cores stepping, nobody waiting.")


def _lines(report: BenchReport) -> list[Curve]:
    points: dict[str, list[tuple[float, float]]] = {}
    shown: dict[str, tuple[CandidateResult, SizeResults]] = {}
    for group in report.groups:
        for row in _measured(group):
            name = _curve_name(row, group, report)
            shown[name] = row, group
            points.setdefault(name, []).append((group.num_envs, _speed(row)))
    lines = [_line(name, *shown[name], report, points[name]) for name in shown]
    limits = [
        (float(g.num_envs), g.limit) for g in report.groups if g.limit is not None
    ]
    return [*lines, Curve("the limit", limits, INK, "--", "")] if limits else lines


def _curve_name(row: CandidateResult, group: SizeResults, report: BenchReport) -> str:
    """One line for a layout, however many workers it has at each size."""
    kind = row.candidate.kind
    if not row.ours or kind == "serial" or report.settings.workers:
        return row.candidate.title
    if _has_one_each(row, group, report):
        return f"Corral, a {kind} per env"
    return f"Corral, {BACKEND_WORDS[kind]}"


def _has_one_each(
    row: CandidateResult, group: SizeResults, report: BenchReport
) -> bool:
    """Whether every env has a worker of its own, more of them than cores."""
    workers = row.candidate.workers or 1
    return row.ours and workers == group.num_envs and workers > report.machine["cores"]


def _line(
    name: str,
    row: CandidateResult,
    group: SizeResults,
    report: BenchReport,
    points: Sequence[tuple[float, float]],
) -> Curve:
    if row.candidate.library == "loop":
        return Curve(name, points, INK, ":", "")
    dashes = "--" if row.candidate.kind in IN_PROCESSES else "-"
    return Curve(name, points, _color(row, group, report), dashes)


def _add_efficiency(built: Page, report: BenchReport) -> None:
    panels = _panels(report, _percentage, "{:.0f}%")
    if not any(panels.values()):
        return
    built.heading("How close to the limit")
    svg = bars(panels, _bar_colors(report), "% of the limit", 110.0)
    built.figure(svg)


def _percentage(row: CandidateResult) -> float | None:
    if row.efficiency is None or row.candidate.library == "loop":
        return None
    return PERCENT * row.efficiency


def _add_split(built: Page, report: BenchReport) -> None:
    panels = {
        _size(group): [
            StackedBar(
                figure_text.title(row),
                {part: PERCENT * getattr(row.split, part) for part in PARTS},
            )
            for row in group.rows
            if row.split is not None
        ]
        for group in report.groups
    }
    if not any(panels.values()):
        return
    built.heading("Where the time goes")
    svg = bars(panels, PARTS, "% of the caller's time", PERCENT)
    built.figure(
        svg,
        "env: the envs' own steps and resets, shared out over the workers. waiting: "
        "for the slowest worker, and to be woken. copying: everything else in between. "
        "Under threads a step's time includes its waits for the GIL.",
    )


def _panels(
    report: BenchReport, value: Callable[[CandidateResult], float | None], form: str
) -> dict[str, list[StackedBar]]:
    panels: dict[str, list[StackedBar]] = {}
    for group in report.groups:
        panel = panels[_size(group)] = []
        for row in _measured(group):
            number = value(row)
            if number is not None:
                panel.append(
                    StackedBar(
                        figure_text.title(row), {"": number}, form.format(number)
                    )
                )
    return panels


def _bar_colors(report: BenchReport) -> dict[str, str]:
    return {
        figure_text.title(row): _color(row, group, report)
        for group in report.groups
        for row in group.rows
    }


def _color(row: CandidateResult, group: SizeResults, report: BenchReport) -> str:
    if _has_one_each(row, group, report):
        return COLORS["cyan"]
    if row.ours:
        return BACKENDS[row.candidate.kind]
    return LIBRARIES[row.candidate.library]


def _measured(group: SizeResults) -> list[CandidateResult]:
    return [row for row in group.rows if row.rates is not None]


def _speed(row: CandidateResult) -> float:
    return row.steps_per_second or 0.0


def _size(group: SizeResults) -> str:
    return "1 env" if group.num_envs == 1 else f"{group.num_envs} envs"


# Words --------------------------------------------------------------------------------


def _add_table(built: Page, report: BenchReport) -> None:
    built.heading("Every figure")
    rows: list[tuple[str, ...]] = []
    kinds: list[str] = []
    for group in report.groups:
        best = best_of(group)
        for number, row in enumerate(group.rows):
            size = "" if number else str(group.num_envs)
            rows.append((size, figure_text.title(row), *figure_text.figures(row)))
            marks = (number == 0, "first"), (row is best, "strong")
            failed = (row.state == "failed", "bad")
            kinds.append(" ".join(mark for is_so, mark in (*marks, failed) if is_so))
    headings = [
        text.replace("-\n", "-").replace("\n", " ") for text in figure_text.HEADINGS
    ]
    built.table(headings, rows, texts=(1,), kinds=kinds)
    for note in figure_text.notes(report):
        built.paragraph(note, soft=True)


def _add_rest(built: Page, report: BenchReport) -> None:
    failures = figure_text.failures(report)
    if failures:
        built.heading("What failed")
        built.facts({title: row.reason for title, row in failures})
    if report.missing:
        built.heading("Not installed")
        built.facts({peer.name: peer.install for peer in report.missing})
    built.heading("The environment")
    built.facts(
        {
            "observations": report.observation_space,
            "actions": report.action_space,
            **{f"auto, {_size(g)}": g.auto for g in report.groups if g.auto},
        }
    )
