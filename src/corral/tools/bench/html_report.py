"""A report as a page with pictures."""

from __future__ import annotations

import shlex
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import asdict

from corral.tools.bench import figure_text
from corral.tools.bench.candidates import BACKEND_WORDS
from corral.tools.bench.figure_text import title
from corral.tools.bench.results import BenchReport, CandidateResult, SizeResults
from corral.train.reports.charts import COLORS, INK, Curve, StackedBar, bars, curves
from corral.train.reports.page import Page

# By the library; of our own layouts, by the backend.
ROW_COLORS = {
    "loop": INK,
    "gymnasium": COLORS["gray"],
    "sb3": COLORS["purple"],
    "agilerl": COLORS["gold"],
    "supersuit": COLORS["red"],
    "serial": COLORS["blue"],
    "thread": COLORS["green"],
    "process": COLORS["orange"],
    "auto": COLORS["orange"],
}
PART_COLORS = {
    "env": COLORS["green"],
    "policy": COLORS["purple"],
    "waiting": COLORS["gray"],
    "copying": COLORS["orange"],
}
# Style and marker by the kind of a candidate; dashed if a peer uses processes.
LINE_STYLES = {"loop": (":", ""), "async": ("--",), "subproc": ("--",)}
PERCENT = 100.0


def page(report: BenchReport, command: Sequence[str]) -> str:
    """The whole file."""
    built = Page(
        f"{report.settings.env} on {report.machine['cores']} cores",
        f"{figure_text.method(report)}; {figure_text.machine(report)}",
    )
    if report.interrupted:
        built.paragraph(figure_text.INTERRUPTED)
    if report.recommendation is not None:
        built.callout(report.recommendation.sentence, report.recommendation.code)
    for draw in (_add_speed, _add_efficiency, _add_split, _add_table, _add_rest):
        draw(built, report)
    built.heading("Command")
    built.code(shlex.join(command))
    return built.render()


# Pictures -----------------------------------------------------------------------------


def _add_speed(built: Page, report: BenchReport) -> None:
    label, note = "env steps per second", "The limit: all cores step envs all the time."
    if len(report.groups) > 1 and any(row.rates for row in report.rows):
        built.heading("How it scales")
        built.figure(curves(_lines(report), "envs", label), note)
    elif len(report.groups) == 1:
        speeds = {id(row): {"": row.speed} for row in report.rows if row.rates}
        _add_bars(built, report, "How fast", speeds, label, 0.0, "{:,.0f}", note)


def _lines(report: BenchReport) -> list[Curve]:
    """One line for a layout, however many workers it has at each size."""
    layouts = defaultdict[str, list[CandidateResult]](list)
    for row in report.rows:
        if row.rates is not None:
            layouts[_curve_name(row, report)].append(row)
    lines = [
        Curve(
            name,
            [(float(row.num_envs), row.speed) for row in rows],
            _color(rows[-1], report),
            *LINE_STYLES.get(rows[0].candidate.kind, ()),
        )
        for name, rows in layouts.items()
    ]
    groups = report.groups
    limits = [(float(g.num_envs), g.limit) for g in groups if g.limit is not None]
    return lines + ([Curve("the limit", limits, INK, "--", "")] if limits else [])


def _curve_name(row: CandidateResult, report: BenchReport) -> str:
    candidate = row.candidate
    if not row.ours or candidate.kind == "serial" or report.settings.workers:
        return candidate.title
    if _has_one_each(row, report):
        return f"Corral, a {candidate.kind} per env"
    return f"Corral, {BACKEND_WORDS[candidate.kind]}"


def _has_one_each(row: CandidateResult, report: BenchReport) -> bool:
    """Whether every env has a worker of its own, more of them than cores."""
    workers = row.candidate.workers or 1
    return row.ours and workers == row.num_envs and workers > report.machine["cores"]


def _color(row: CandidateResult, report: BenchReport) -> str:
    if _has_one_each(row, report):
        return COLORS["cyan"]
    return ROW_COLORS[row.candidate.kind if row.ours else row.candidate.library]


def _add_efficiency(built: Page, report: BenchReport) -> None:
    shares = {
        id(row): {"": PERCENT * row.efficiency}
        for row in report.rows
        if row.efficiency is not None and row.candidate.library != "loop"
    }
    heading, label = "How close to the limit", "% of the limit"
    _add_bars(built, report, heading, shares, label, 110.0, "{:.0f}%")


def _add_split(built: Page, report: BenchReport) -> None:
    shares = {
        id(row): {name: PERCENT * part for name, part in asdict(row.time).items()}
        for row in report.rows
        if row.time is not None
    }
    note = (
        "env: the envs' own steps and resets, divided by the number of workers. "
        "waiting: for the slowest worker, and to be woken. copying: everything "
        "else. With threads, a step's time includes its waits for the GIL."
    )
    label = "% of the caller's time"
    _add_bars(built, report, "Where the time goes", shares, label, PERCENT, "", note)


def _add_bars(
    built: Page,
    report: BenchReport,
    heading: str,
    parts: dict[int, dict[str, float]],
    label: str,
    top: float,
    form: str,
    note: str = "",
) -> None:
    """A panel for each number of envs; `parts` of the rows that have any, by `id`."""
    panels = {
        _size(group): [
            StackedBar(
                title(row), parts[id(row)], form.format(*parts[id(row)].values())
            )
            for row in group.rows
            if id(row) in parts
        ]
        for group in report.groups
    }
    colors = {title(row): _color(row, report) for row in report.rows}
    if parts:
        built.heading(heading)
        built.figure(bars(panels, {**colors, **PART_COLORS}, label, top), note)


def _size(group: SizeResults) -> str:
    return "1 env" if group.num_envs == 1 else f"{group.num_envs} envs"


# Words --------------------------------------------------------------------------------


def _add_table(built: Page, report: BenchReport) -> None:
    built.heading("Every figure")
    rows = list(figure_text.table(report))
    headings = [
        text.replace("-\n", "-").replace("\n", " ") for text in figure_text.HEADINGS
    ]
    cells, marks = [cells for cells, _ in rows], [marks for _, marks in rows]
    built.table(headings, cells, texts=(1,), kinds=marks)
    for note in figure_text.notes(report):
        built.paragraph(note, soft=True)


def _add_rest(built: Page, report: BenchReport) -> None:
    choices = {f"auto, {_size(g)}": g.auto for g in report.groups if g.auto}
    spaces = {"observations": report.observation_space, "actions": report.action_space}
    facts = {
        "What failed": figure_text.failures(report),
        "Not installed": {peer.name: peer.install for peer in report.missing},
        "The environment": {**spaces, **choices},
    }
    for heading, texts in facts.items():
        if texts:
            built.heading(heading)
            built.facts(texts)
