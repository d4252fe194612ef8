"""A run as it is watched: a bar on a terminal, lines with a time in a log.

    51,200/100,000 ━━━━━━━━╸━━━━━━━━ 0:00:06<0:00:06  8210 steps/s  return 312  CPU 97%

    [2026-01-31 12:00:06 elapsed 0:00:06 eta 0:00:06] step 51200/100000  8210 steps/s
    [2026-01-31 12:00:06 elapsed 0:00:06 eta 0:00:06] step 51200  evaluated 475 ± 30

With `corral.tools.bench.console` the one place of the package that imports rich.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from time import monotonic, strftime
from typing import TextIO

from corral.errors import requires
from corral.rollouts.number_format import number, rate

with requires(
    "this needs rich: pip install 'corral[bench]', or 'corral[train]' to train"
):
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn
    from rich.text import Text

LINES_PER_RUN = 10
# In a log, a line for each tenth of the run, and for each update that comes so many
# seconds after the last line.
LINE_SECONDS = 10.0
# Seconds between two drawings of the bar, which take a millisecond each.
REFRESH_SECONDS = 0.1
LOGGED_TIME, SHOWN_TIME = "elapsed {elapsed} eta {left}", "{elapsed}<{left}"
UNKNOWN_TIME = "-:--:--"


class ConsoleSink:
    """Shows how far the run is, how fast, and how well it does.

    Args:
        total: env steps of the whole run.
        file: where to write; standard output if None.
        clock: seconds, from any moment on.
    """

    def __init__(
        self,
        total: int,
        file: TextIO | None = None,
        clock: Callable[[], float] = monotonic,
    ) -> None:
        self.console = Console(file=file, highlight=False)
        self._total = total
        self._clock = clock
        self._latest: dict[str, float] = {}
        self._step = 0
        self._lines = 0
        # When the bar or the line was shown last, and when the run began.
        self._shown = self._began = clock()
        # Step and time from which on it is being trained.
        self._from = (0, self._began)
        self._progress = Progress(
            TextColumn("{task.fields[steps]}"),
            BarColumn(bar_width=None, complete_style="cyan", finished_style="cyan"),
            TextColumn("{task.fields[times]}"),
            TextColumn("{task.fields[figures]}"),
            console=self.console,
            transient=True,
            expand=True,
            disable=not self.console.is_terminal,
            auto_refresh=False,  # no refreshing thread beside what is being trained
        )
        self._task = self._progress.add_task(
            "", total=total, steps="", times="", figures=""
        )

    @contextmanager
    def watching(self, step: int) -> Iterator[None]:
        """The bar is there meanwhile, from this step on, and gone afterwards."""
        self._step, self._from = step, (step, self._clock())
        self._lines = LINES_PER_RUN * step // self._total
        self._progress.update(self._task, completed=step, refresh=False)
        with self._progress:
            yield

    def say(self, text: str, style: str = "") -> None:
        """A line of its own, above the bar; in a log, behind the time."""
        if not self.console.is_terminal:
            before = f"[{strftime('%Y-%m-%d %H:%M:%S')} {self._times(LOGGED_TIME)}] "
            text = "\n".join(before + line for line in text.splitlines())
        # Written at once: rich flushes after every line.
        self._progress.console.print(Text(text, style=style), soft_wrap=True)

    def write(self, metrics: Mapping[str, float], step: int) -> None:
        """Move the bar."""
        self._latest.update(metrics)
        self._step = step
        waited, tenth = self._clock() - self._shown, LINES_PER_RUN * step // self._total
        if self.console.is_terminal and waited >= REFRESH_SECONDS:
            self._shown += waited
            self._progress.update(
                self._task,
                completed=min(step, self._total),
                steps=f"{step:,}/{self._total:,}",
                times=self._times(SHOWN_TIME),
                figures="  ".join(self._figures()),
                refresh=True,
            )
        elif not self.console.is_terminal and (
            tenth > self._lines or waited >= LINE_SECONDS
        ):
            self._lines, self._shown = tenth, self._shown + waited
            self.say("  ".join([f"step {step}/{self._total}", *self._figures()]))

    def close(self) -> None:
        """Take the bar away."""
        self._progress.stop()

    def _times(self, form: str) -> str:
        """How long it has been running, and for how long it will."""
        now, left = self._clock(), UNKNOWN_TIME
        step, began = self._from
        if self._step > step:
            pace = (now - began) / (self._step - step)
            left = clock(pace * max(0, self._total - self._step))
        return form.format(elapsed=clock(now - self._began), left=left)

    def _figures(self) -> list[str]:
        known: dict[str, Callable[[float], str]] = {
            "speed/steps_per_second": "{:.0f} steps/s".format,
            "episode/return": lambda value: f"return {number(value)}",
            "episode/success_rate": lambda value: f"success {rate(value)}",
            "use/cpu": "CPU {:.0%}".format,
        }
        latest = self._latest
        return [shown(latest[name]) for name, shown in known.items() if name in latest]


def clock(seconds: float) -> str:
    """Hours, minutes and seconds, as 1:02:03."""
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes // 60}:{minutes % 60:02}:{rest:02}"


aside = Console(highlight=False, stderr=True)


class ProgressBar:
    """A progress bar on the terminal; elsewhere nothing."""

    def __init__(self, update: Callable[..., None]) -> None:
        self._update = update
        self._total = 0

    def expect(self, turns: int) -> None:
        """So many more turns are to come; fewer, if negative."""
        self._total += turns
        self._update(total=self._total)

    def show_status(self, text: str) -> None:
        """What is being done now."""
        self._update(description=f"{text:<34}")

    def turn(self) -> None:
        """One of the expected turns is over."""
        self._update(advance=1)


@contextmanager
def progress_bar() -> Iterator[ProgressBar]:
    """A bar that is gone when it is done."""
    with Progress(
        TextColumn("{task.description}"),
        BarColumn(bar_width=None),
        TextColumn("{task.completed}/{task.total}"),
        TimeRemainingColumn(),
        console=aside,
        transient=True,
        disable=not aside.is_terminal,
        auto_refresh=False,  # no refreshing thread beside what is being measured
    ) as progress:
        task = progress.add_task("", total=0)
        yield ProgressBar(partial(progress.update, task, refresh=True))
