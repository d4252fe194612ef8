"""How a benchmark is shown, with rich."""

from __future__ import annotations

from dataclasses import astuple

from corral.errors import requires
from corral.tools.bench import figure_text
from corral.tools.bench.results import BenchReport

with requires("corral bench needs rich: pip install 'corral[bench]'"):
    from rich import box
    from rich.console import Console
    from rich.markup import escape
    from rich.table import Table
    from rich.text import Text

# Columns: more than any table of ours has.
TABLE_WIDTH = 1000
STYLES = {"strong": "bold", "bad": "red"}

console = Console(highlight=False)


def show(report: BenchReport) -> None:
    """Print the tables, what failed, and what to do."""
    console.print(
        f"[bold]{escape(report.settings.env)}[/bold],", figure_text.method(report)
    )
    console.print(figure_text.machine(report), style="dim")
    console.print()
    figures = _table(figure_text.HEADINGS)
    for cells, marks in figure_text.table(report):
        if "first" in marks and figures.rows:
            figures.add_section()
        style = next((STYLES[one] for one in marks.split() if one in STYLES), "")
        figures.add_row(*cells, style=style)
    _show_whole(figures)
    console.print()
    for note in figure_text.notes(report):
        console.print(note, style="dim")
    _show_splits(report)
    console.print()
    for title, reason in figure_text.failures(report).items():
        text = f"{title} failed: {figure_text.brief(reason)}"
        console.print(Text(text, style="red"))
    for peer in report.missing:
        console.print(f"{peer.name} is not installed: {peer.install}", markup=False)
    if report.interrupted:
        console.print(figure_text.INTERRUPTED, style="yellow")
    if report.recommendation is not None:
        console.print(Text(report.recommendation.sentence, style="bold"))
        for line in report.recommendation.code.splitlines():
            console.print(Text(f"    {line}"), soft_wrap=True)  # whole, to be copied


def _table(headings: tuple[str, ...]) -> Table:
    # Narrow enough for 80 columns.
    table = Table(
        box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0), show_edge=False, header_style="dim"
    )
    for name in headings:
        justify = "left" if name == "runner" else "right"
        table.add_column(name, justify=justify, no_wrap=True, vertical="bottom")  # type: ignore[arg-type]
    return table


def _show_whole(table: Table) -> None:
    """Print it as wide as it is: half a number misleads, a broken line does not."""
    unbounded = console.options.update(max_width=TABLE_WIDTH)
    table.width = table.__rich_measure__(console, unbounded).maximum
    console.print(table, crop=False)


def _show_splits(report: BenchReport) -> None:
    table = _table(("envs", "runner", "env", "policy", "waiting", "copying"))
    for group in report.groups:
        table.add_section()
        size = str(group.num_envs)
        for row in group.rows:
            if row.time is not None:
                shares = (f"{part:.0%}" for part in astuple(row.time))
                table.add_row(size, figure_text.title(row), *shares)
                size = ""
    if table.rows:
        console.print("\nWhere the time goes", style="bold")
        _show_whole(table)
