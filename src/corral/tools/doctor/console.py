"""How a report is shown, with rich."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from corral.errors import MissingExtra
from corral.tools.doctor.finding import Finding, Severity
from corral.tools.doctor.report import Report

try:
    from rich.console import Console
    from rich.padding import Padding
    from rich.table import Table
    from rich.text import Text
except ImportError as error:
    raise MissingExtra(
        "corral doctor needs rich: pip install 'corral[bench]'"
    ) from error

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
    last = ""
    for finding in report.findings:
        mark, colour = MARKS[finding.severity]
        name = "" if finding.check == last else finding.check
        table.add_row(Text(mark, style=colour), name, _text(finding, colour))
        last = finding.check
    console.print(table)
    console.print()
    if report.interrupted:
        text = "Interrupted: these are the findings so far."
        console.print(text, style="yellow")
    colour = MARKS[report.severity][1]
    console.print(Text(CONCLUSIONS[report.severity], style=f"bold {colour}"))
    if report.recommendation is not None:
        console.print(Text(report.recommendation.sentence))
        console.print()
        for line in report.recommendation.code.splitlines():
            console.print(Text(f"    {line}"), soft_wrap=True)  # whole, to be copied


def _text(finding: Finding, colour: str) -> Table:
    block = Table.grid()
    block.add_column(overflow="fold")  # paths and names are longer than a line
    block.add_row(Text(finding.measured))
    if finding.remedy:
        remedy = Text("→ ", style=colour).append(finding.remedy, style="italic")
        block.add_row(Padding(remedy, (0, 0, 0, 2)))
    if finding.tried:
        tried = Text(f"tried: {finding.tried}", style="dim")
        block.add_row(Padding(tried, (0, 0, 0, 4)))
    return block
