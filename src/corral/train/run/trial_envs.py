"""The envs and tasks of a run with trials."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from corral.core import Factory
from corral.engine.adapters.env_names import named_attribute
from corral.engine.adapters.factories import OuterFactory
from corral.engine.adapters.trials import RETURNS, Trials
from corral.rollouts.evaluation import Evaluation
from corral.rollouts.task_tables import task_table
from corral.train.recipes.trials import TrialSettings


@dataclass(frozen=True, slots=True)
class TrialFactory(OuterFactory):
    """Makes an env whose episodes are trials."""

    settings: TrialSettings

    def __call__(self) -> Trials:
        chosen, way = self.settings, self.settings.task_by
        return Trials(
            self.make(),
            chosen.episodes,
            chosen.oracle,
            previous=chosen.previous,
            convention=chosen.convention,
            task_by=named_attribute(way) if way and ":" in way else way,
        )


@dataclass(frozen=True, slots=True)
class RunTasks:
    """The tasks of a run, by purpose; as a function, a pool's `sample_task`.

    Attributes:
        test: Equal to those of `corral.meta.make_env` with the same seed and numbers.
    """

    train: tuple[Any, ...]
    validation: tuple[Any, ...]
    test: tuple[Any, ...]

    @classmethod
    def drawn(cls, factory: Factory, settings: TrialSettings, seed: int) -> RunTasks:
        """Draw them from the seed."""
        env, count = factory(), settings.eval_tasks
        try:
            table = task_table(env, settings.train_tasks, 2 * count, seed)
        finally:
            env.close()
        return cls(table.train, table.evaluation[count:], table.evaluation[:count])

    def __call__(self, slot: int, episode: int, rng: np.random.Generator) -> Any:
        """Draw a task to train on."""
        return self.train[rng.integers(len(self.train))]

    def for_purpose(self, purpose: str, count: int) -> list[Any]:
        """Return so many tasks, again from the first if there are too few."""
        tasks = self.validation if purpose == "validation" else self.test
        return [tasks[place % len(tasks)] for place in range(count)]


def returns_by_episode(result: Evaluation) -> dict[str, float]:
    """Return `return_1` and so on: the mean returns of a trial's episodes."""
    found = [info[RETURNS] for info in result.infos if RETURNS in info]
    if not found:
        return {}
    means = np.mean(np.stack(found), axis=0)
    return {f"return_{place}": float(mean) for place, mean in enumerate(means, 1)}
