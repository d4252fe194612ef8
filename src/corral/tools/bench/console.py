"""How a benchmark is shown, with rich."""

from __future__ import annotations

from corral.errors import MissingExtra
from corral.tools.bench import figure_text
from corral.tools.bench.recommend import best_of
from corral.tools.bench.results import BenchReport

try:
    from rich import box
    from rich.console import Console, JustifyMethod
    from rich.markup import escape
    from rich.table import Table
    from rich.text import Text
except ImportError as error:
    raise MissingExtra(
        "corral bench needs rich: pip install 'corral[bench]'"
    ) from error

TABLE_WIDTH = 1000
"""Columns: more than any table of ours has."""

console = Console(highlight=False)


# What came out ------------------------------------------------------------------------


def show(report: BenchReport) -> None:
    """Print the tables, what failed, and what to do."""
    console.print(
        f"[bold]{escape(report.settings.env)}[/bold],", figure_text.method(report)
    )
    console.print(figure_text.machine(report), style="dim")
    console.print()
    _show_whole(_figures(report))
    console.print()
    for note in figure_text.notes(report):
        console.print(note, style="dim")
    if any(row.split for group in report.groups for row in group.rows):
        console.print("\nWhere the time goes", style="bold")
        _show_whole(_splits(report))
    console.print()
    _show_troubles(report)
    _show_recommendation(report)


def _show_whole(table: Table) -> None:
    """Print it as wide as it is: half a number misleads, a broken line does not."""
    unbounded = console.options.update(max_width=TABLE_WIDTH)
    table.width = table.__rich_measure__(console, unbounded).maximum
    console.print(table, crop=False)


def _show_troubles(report: BenchReport) -> None:
    for title, row in figure_text.failures(report):
        reason = figure_text.brief(row.reason)
        console.print(Text(f"{title} failed: {reason}", style="red"))
    for peer in report.missing:
        console.print(f"{peer.name} is not installed: {peer.install}", markup=False)
    if report.interrupted:
        console.print("Interrupted: these are the rounds until then.", style="yellow")


def _figures(report: BenchReport) -> Table:
    table = _table()
    for heading in figure_text.HEADINGS:
        justify: JustifyMethod = "left" if heading == "runner" else "right"
        table.add_column(heading, justify=justify, no_wrap=True, vertical="bottom")
    for group in report.groups:
        best = best_of(group)
        for number, row in enumerate(group.rows):
            table.add_row(
                "" if number else str(group.num_envs),
                figure_text.title(row),
                *figure_text.figures(row),
                style="bold" if row is best else "red" if row.state == "failed" else "",
            )
        table.add_section()
    return table


def _splits(report: BenchReport) -> Table:
    table = _table()
    table.add_column("envs", justify="right")
    table.add_column("runner", no_wrap=True)
    for part in figure_text.SPLIT_PARTS:
        table.add_column(part, justify="right")
    for group in report.groups:
        rows = [row for row in group.rows if row.split is not None]
        for number, row in enumerate(rows):
            size = "" if number else str(group.num_envs)
            table.add_row(size, figure_text.title(row), *figure_text.shares(row))
        table.add_section()
    return table


def _table() -> Table:
    # Narrow enough for 80 columns.
    return Table(
        box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0), show_edge=False, header_style="dim"
    )


def _show_recommendation(report: BenchReport) -> None:
    chosen = report.recommendation
    if chosen is None:
        return
    console.print(Text(chosen.sentence, style="bold"))
    for line in chosen.code.splitlines():
        console.print(Text(f"    {line}"), soft_wrap=True)  # whole, to be copied
