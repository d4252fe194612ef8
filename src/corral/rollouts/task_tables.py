"""The tasks to train on and those to test on, the same wherever they are drawn.

Tasks come from a seed alone, in one place, and are sent to the envs as values. An env
in a worker never draws a table of its own.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import gymnasium
import numpy as np

from corral.engine.worker.seeds import RunGenerator, run_generator
from corral.errors import OptionError


@dataclass(frozen=True, slots=True)
class TaskTable:
    """Tasks by purpose; no task of one list is in the other."""

    train: tuple[Any, ...]
    evaluation: tuple[Any, ...]

    def sample(self, slot: int, episode: int, rng: np.random.Generator) -> Any:
        """Draw a task to train on; a `sample_task` of pools."""
        return self.train[rng.integers(len(self.train))]


def task_table(
    env: gymnasium.Env[Any, Any], train: int, evaluation: int, seed: int
) -> TaskTable:
    """Draw the tasks of an env from a seed.

    Args:
        env: has `sample_tasks(count, rng)`.
        train: number of tasks to train on.
        evaluation: number of tasks to test on.
        seed: equal seeds give equal tables.
    """
    if not env.has_wrapper_attr("sample_tasks"):
        raise OptionError(
            f"{env} has no sample_tasks(count, rng), so it has no tasks to draw; add "
            "this method, or do without tasks (in a config: trials.train_tasks: 0)"
        )
    draw: Callable[..., Any] = env.get_wrapper_attr("sample_tasks")
    rng = run_generator(seed, RunGenerator.TASK_TABLE)
    tasks = tuple(draw(train + evaluation, rng))
    return TaskTable(tasks[:train], tasks[train:])
