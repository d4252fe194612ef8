"""How a race is shown: the one place of the package that imports rich."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from corral.bench.cartpole import ASYNC, CANDIDATES, CORRAL, ENV_ID, SYNC, Outcome
from corral.errors import MissingExtra

try:
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn
    from rich.table import Table
except ImportError as error:
    raise MissingExtra(
        "python -m corral.bench needs rich: pip install 'corral[bench]'"
    ) from error

console = Console(highlight=False)


@contextmanager
def progress(turns: int) -> Iterator[Callable[[str, str], None]]:
    """A bar that moves one turn per call; off a terminal, nothing but the result."""
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        TextColumn("{task.completed}/{task.total} turns"),
        TimeRemainingColumn(),
    )
    bar = Progress(
        *columns,
        console=console,
        transient=True,
        disable=not console.is_terminal,
        auto_refresh=False,  # no refreshing thread beside what is being measured
    )
    with bar:
        task = bar.add_task(f"{'building':<22}", total=turns)
        bar.refresh()

        def advance(size: str, name: str) -> None:
            text = f"{size} {name}"
            bar.update(task, advance=1, description=f"{text:<22}", refresh=True)

        yield advance


def show(outcomes: Sequence[Outcome], machine: str) -> None:
    """Print the table, and under it what Corral chose and why."""
    table = Table(title=f"{ENV_ID}, environment steps per second", caption=machine)
    table.add_column("envs", justify="right")
    table.add_column("runner")
    table.add_column("steps/s", justify="right")
    table.add_column("× Async", justify="right")
    table.add_column("× Sync", justify="right")
    for outcome in outcomes:
        rates = outcome.rates
        for name in CANDIDATES:
            table.add_row(
                str(outcome.slots) if name == CORRAL else "",
                name,
                f"{rates[name].median:,.0f}",
                f"{rates[name].over(rates[ASYNC]):.2f}",
                f"{rates[name].over(rates[SYNC]):.2f}",
                style="bold" if name == CORRAL else None,
            )
        table.add_section()
    console.print(table)
    for outcome in outcomes:
        console.print(
            f"layout of {outcome.slots} envs: {outcome.layout}", soft_wrap=True
        )
