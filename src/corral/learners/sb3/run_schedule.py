"""Schedules of Stable-Baselines3 that follow a whole run, not one call of `learn`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from corral.learners.schedules import Pieces, Schedule, scheduled


@dataclass(slots=True)
class RunProgress:
    """How much of a run is done, from 0 to 1.

    Attributes:
        total_steps: As SB3 counts them; 0 where there are no schedules.
    """

    total_steps: int
    done: float = 0.0

    def reach(self, steps: int) -> None:
        """Set how much is done before the next update.

        By the steps before its rollout: SB3's own progress includes that rollout, so
        its last update has a learning rate of 0.
        """
        self.done = steps / self.total_steps if self.total_steps else 0.0


@dataclass(frozen=True, slots=True)
class RunSchedule:
    """A number that falls with a run, as Stable-Baselines3 takes it.

    In a run it ignores the progress that SB3 gives it, which is that of one `learn`.
    In an exported model, which has no run, it follows that progress.
    """

    value: float | Pieces
    schedule: Schedule
    progress: RunProgress | None

    def __call__(self, left: float) -> float:
        done = 1.0 - left if self.progress is None else self.progress.done
        return scheduled(self.value, self.schedule, done)

    def __reduce__(self) -> Any:
        return RunSchedule, (self.value, self.schedule, None)


def run_schedule(
    value: float | Pieces, schedule: Schedule, progress: RunProgress
) -> float | RunSchedule:
    """Return what SB3 takes: a number, if it does not change."""
    if schedule == "constant" and not isinstance(value, tuple):
        return value
    return RunSchedule(value, schedule, progress)
