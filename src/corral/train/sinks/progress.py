"""How far a command has come: a bar on the terminal, with rich."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from corral.errors import MissingExtra

try:
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        Progress,
        TaskID,
        TextColumn,
        TimeRemainingColumn,
    )
except ImportError as error:
    raise MissingExtra(
        "a progress bar needs rich: pip install 'corral[bench]'"
    ) from error

aside = Console(highlight=False, stderr=True)


class ProgressBar:
    """A progress bar on the terminal; elsewhere nothing."""

    def __init__(self, progress: Progress, task: TaskID) -> None:
        self._progress = progress
        self._task = task
        self._total = 0

    def expect(self, turns: int) -> None:
        """So many more turns are to come; fewer, if negative."""
        self._total += turns
        self._progress.update(self._task, total=self._total, refresh=True)

    def show_status(self, text: str) -> None:
        """What is being done now."""
        self._progress.update(self._task, description=f"{text:<34}", refresh=True)

    def turn(self) -> None:
        """One of the expected turns is over."""
        self._progress.update(self._task, advance=1, refresh=True)


@contextmanager
def bar() -> Iterator[ProgressBar]:
    """A bar that is gone when it is done."""
    columns = (
        TextColumn("{task.description}"),
        BarColumn(bar_width=None),
        TextColumn("{task.completed}/{task.total}"),
        TimeRemainingColumn(),
    )
    progress = Progress(
        *columns,
        console=aside,
        transient=True,
        disable=not aside.is_terminal,
        auto_refresh=False,  # no refreshing thread beside what is being measured
    )
    with progress:
        yield ProgressBar(progress, progress.add_task("", total=0))
