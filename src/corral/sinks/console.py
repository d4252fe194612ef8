"""A run as it is watched: a bar on a terminal, a line now and then elsewhere.

    51,200/100,000 ━━━━━━━━━━━━━━━╸━━━━━━━━━━━━━━  0:00:06  8,210/s  return 312  CPU 97%

With `corral.bench.console` the one place of the package that imports rich.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from time import monotonic
from typing import TextIO

from corral.digits import number
from corral.errors import MissingExtra

try:
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn
    from rich.text import Text
except ImportError as error:
    raise MissingExtra(
        "corral train needs rich: pip install 'corral[train]'"
    ) from error

SPEED = "speed/steps_per_second"
RETURN = "episode/return"
PROCESSORS = "use/cpu"
TENTHS = 10
"""Without a terminal, a line for each of so many parts of the run."""
PERIOD = 0.1
"""Seconds between two drawings of the bar, which take a millisecond each."""


class ConsoleSink:
    """Shows how far the run is, how fast, and how well it does.

    Args:
        total: env steps of the whole run.
        file: where to write; standard output if None.
    """

    def __init__(self, total: int, file: TextIO | None = None) -> None:
        self.console = Console(file=file, highlight=False)
        self._total = total
        self._latest: dict[str, float] = {}
        self._told = 0
        self._drawn = 0.0
        self._progress = Progress(
            TextColumn("{task.fields[steps]}"),
            BarColumn(bar_width=None, complete_style="cyan", finished_style="cyan"),
            TimeRemainingColumn(),
            TextColumn("{task.fields[figures]}"),
            console=self.console,
            transient=True,
            expand=True,
            disable=not self.console.is_terminal,
            auto_refresh=False,  # no refreshing thread beside what is being trained
        )
        self._task = self._progress.add_task("", total=total, steps="", figures="")

    @contextmanager
    def watching(self, step: int) -> Iterator[None]:
        """The bar is there meanwhile, from this step on, and gone afterwards."""
        self._told = TENTHS * step // self._total
        self._progress.update(self._task, completed=step, refresh=False)
        with self._progress:
            yield

    def say(self, text: str, style: str = "") -> None:
        """A line of its own, above the bar."""
        self._progress.console.print(Text(text, style=style), soft_wrap=True)

    def write(self, metrics: Mapping[str, float], step: int) -> None:
        """Move the bar."""
        self._latest.update(metrics)
        shown = f"{step:,}/{self._total:,}"
        if self.console.is_terminal:
            self._progress.update(
                self._task,
                completed=min(step, self._total),
                steps=shown,
                figures="  ".join(self._figures()),
                refresh=self._is_time(),
            )
            return
        part = TENTHS * step // self._total
        if part > self._told:
            self._told = part
            self.say("  ".join([shown, *self._figures()]))

    def _is_time(self) -> bool:
        now = monotonic()
        if now - self._drawn < PERIOD:
            return False
        self._drawn = now
        return True

    def close(self) -> None:
        """Take the bar away."""
        self._progress.stop()

    def _figures(self) -> list[str]:
        latest = self._latest
        known: tuple[tuple[str, Callable[[float], str]], ...] = (
            (SPEED, lambda value: f"{value:,.0f} steps/s"),
            (RETURN, lambda value: f"return {number(value)}"),
            (PROCESSORS, lambda value: f"CPU {value:.0%}"),
        )
        return [shown(latest[name]) for name, shown in known if name in latest]
