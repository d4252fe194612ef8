"""How a report is shown, with rich."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import groupby

from corral.errors import requires
from corral.tools.doctor.report import Finding, Report, Severity

with requires("corral doctor needs rich: pip install 'corral[bench]'"):
    from rich.console import Console, Group, RenderableType
    from rich.padding import Padding
    from rich.table import Table
    from rich.text import Text

MARKS: dict[Severity, tuple[str, str]] = {
    "ok": ("✓", "green"),
    "note": ("·", "cyan"),
    "warning": ("!", "yellow"),
    "problem": ("✗", "red"),
}
CONCLUSIONS: dict[Severity, str] = {
    "ok": "No problems found.",
    "note": "No problems found. The notes are worth reading.",
    "warning": "It can run in parallel. Check the warnings.",
    "problem": "Not safe to run in parallel yet: fix the problems above first.",
}
# In place of the last, where the recommended line has an option against each problem.
WITH_OPTIONS = "Run it in parallel only with the options below."

console = Console(highlight=False)


@contextmanager
def progress(env: str) -> Iterator[Callable[[str], None]]:
    """A line on the terminal that names the check that is running."""
    with Console(highlight=False, stderr=True).status(f"{env}: starting") as status:
        yield lambda name: status.update(f"{env}: {name}")


def show(report: Report) -> None:
    """Print the findings, then the line to write."""
    console.print(Text(report.env, style="bold"), f"examined in {report.seconds:.0f} s")
    console.print()
    table = Table.grid(padding=(0, 1))
    table.add_column(width=1)
    table.add_column(style="bold", no_wrap=True)
    table.add_column(overflow="fold")
    for check, findings in groupby(report.findings, lambda finding: finding.check):
        for number, finding in enumerate(findings):
            mark, colour = MARKS[finding.severity]
            name = "" if number else check
            table.add_row(Text(mark, style=colour), name, _text(finding, colour))
    console.print(table)
    console.print()
    for finding in report.findings:
        if finding.details:
            for line in finding.details:
                console.print(Text(line), soft_wrap=True)  # whole, to be copied
            console.print()
    if report.interrupted:
        console.print("Interrupted: these are the findings so far.", style="yellow")
    colour = MARKS[report.severity][1]
    console.print(Text(_conclusion(report), style=f"bold {colour}"))
    if report.recommendation is not None:
        console.print(Text(report.recommendation.sentence))
        console.print()
        for line in report.recommendation.code.splitlines():
            console.print(Text(f"    {line}"), soft_wrap=True)  # whole, to be copied


def _conclusion(report: Report) -> str:
    mended = report.problems and all(one.options for one in report.problems)
    if mended and report.recommendation is not None:
        return WITH_OPTIONS
    return CONCLUSIONS[report.severity]


def _text(finding: Finding, colour: str) -> Group:
    parts: list[RenderableType] = [Text(finding.measured)]
    if finding.remedy:
        remedy = Text("→ ", style=colour).append(finding.remedy, style="italic")
        parts.append(Padding(remedy, (0, 0, 0, 2)))
    if finding.tried:
        tried = Text(f"tried: {finding.tried}", style="dim")
        parts.append(Padding(tried, (0, 0, 0, 4)))
    return Group(*parts)
