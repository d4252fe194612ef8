"""Does the env do something else when it is told another task?"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from corral.engine.adapters.task_delivery import (
    OPTIONS,
    TaskBy,
    TaskDelivery,
    method_of,
)
from corral.engine.worker.seeds import seed_globals
from corral.tools.doctor.driver import EnvResponse, EpisodeDriver, first_difference
from corral.tools.doctor.report import Finding, note, ok, warning
from corral.tools.doctor.subject import Subject

# Tasks that are tried. Rewards may be sparse: of two goals, a short run may reach none.
COUNT = 4


@dataclass(frozen=True, slots=True)
class TaskRuns:
    """Runs with the same seed and actions, and different tasks.

    Attributes:
        tasks: As text.
        repeats: Whether a second run with the first task was equal to the first.
        apart: Where runs with different tasks differ; "" if they are equal.
        kept: Whether `get_task()` returned different values.
    """

    tasks: list[str]
    repeats: bool = True
    apart: str = ""
    kept: bool = False


def measure_tasks(
    factory: Callable[[], Any],
    seed: int,
    moments: int,
    given: Sequence[Any],
    task_by: TaskBy | None,
) -> TaskRuns:
    """Play the same with each task, until two runs differ."""
    tasks = list(given)
    if not tasks:
        with EpisodeDriver(factory, seed) as driver:
            draw = method_of(driver.env, "sample_tasks")
            tasks = list(draw(COUNT, np.random.default_rng(0)))
    shown = [f"{task!r:.40}" for task in tasks]
    play = partial(_played, factory, seed, moments, task_by)
    first, kept = play(tasks[0])
    again, _ = play(tasks[0])
    if first_difference(first, again):
        return TaskRuns(shown, repeats=False)
    differ = False
    for task in tasks[1:]:
        run, also_kept = play(task)
        differ = differ or kept != also_kept
        if apart := first_difference(first, run):
            return TaskRuns(shown, apart=apart)
    return TaskRuns(shown, kept=differ)


def _played(
    factory: Callable[[], Any],
    seed: int,
    moments: int,
    task_by: TaskBy | None,
    task: Any,
) -> tuple[list[EnvResponse], str]:
    """A run with this task, and what `get_task()` returns then."""
    seed_globals(seed)
    with EpisodeDriver(factory, seed) as driver:
        delivery = TaskDelivery(driver.env, task_by)
        driver.task_keywords = lambda: delivery(task, None)
        run = driver.record(moments)
        known = method_of(driver.env, "get_task")
        return run, "" if known is None else repr(known())


def check_tasks(subject: Subject) -> Iterator[Finding]:
    """Whether it uses its task; nothing for an env without tasks."""
    known, steps = subject.profile, subject.profile.steps
    by = subject.task_by or known.task_by
    way = getattr(by, "__name__", str(by))
    told, data = f"told its task by {way}", {"task_by": way}
    if not (known.draws_tasks or subject.tasks):
        if way != OPTIONS:
            yield note(
                f"is {told}; without sample_tasks(count, rng) none could be tried",
                "corral.doctor.check(env, tasks=[one, another]) tries these",
                data=data,
            )
        return
    asked = (subject.seed, steps, subject.tasks, subject.task_by)
    found: TaskRuns = subject.ask(measure_tasks, *asked)
    if not found.repeats:
        yield note(f"is {told}; two runs with one task differ, so none were compared")
    elif found.apart:
        yield ok(f"{told}, it does something else. {found.apart}", data=data)
    elif found.kept:
        yield note(
            f"{told}, it did the same with {len(found.tasks)} tasks in {steps} steps; "
            "get_task() shows that it knows them, so rewards may be rare",
            data=data,
        )
    else:
        yield warning(
            f"{told}, it ignores it: {' and '.join(found.tasks[:2])} gave equal "
            f"results in {steps} steps with equal seeds and actions",
            "use the task in reset() and step(), or name another way with task_by=",
            data=data,
        )
