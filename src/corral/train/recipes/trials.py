"""Settings of a run with tasks: a group of the config that only such runs have.

env: my_package:make_env          has sample_tasks(count, rng) and set_task(task)
learner: sac
trials:                           or `trials: 2`
  episodes: 2
  train_tasks: 80
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic import NonNegativeInt, PositiveFloat, PositiveInt

from corral.engine.adapters.trials import Convention
from corral.train.recipes.config import RunConfig, SettingsGroup, with_group

GROUP = "trials"


class TrialSettings(SettingsGroup):
    """What a trial is, and how many tasks there are."""

    episodes: PositiveInt = 2
    """episodes of one task in a trial (default: 2)"""
    train_tasks: NonNegativeInt = 100
    """number of tasks to train on; 0 for an env without tasks (default: 100)"""
    eval_tasks: PositiveInt = 20
    """number of tasks that choose the best checkpoint, and of others for the final
    evaluation (default: 20)"""
    oracle: bool = False
    """show the policy the task (default: false)"""
    previous: bool = False
    """show the policy its previous action and reward, as RL² does; SAC and TD3 with a
    memory see them anyway (default: false)"""
    convention: Convention = "corral"
    """varibad acts once on the last observation of inner episodes (default: corral)"""
    task_by: str | None = None
    """how the env is told its task: a method of it, reset, options, or module:function
    of (env, task) (default: the first way that it has)"""
    map: tuple[NonNegativeInt, NonNegativeInt] | None = None
    """numbers of an observation that are x and y: the report then shows paths on a map
    (default: none)"""
    goal_radius: PositiveFloat | None = None
    """radius of the tasks' goals on that map (default: none)"""


def with_trials(base: type[RunConfig]) -> type[RunConfig]:
    """Return a config class that has this group as well."""
    return with_group(base, GROUP, TrialSettings, "trials and their tasks")


def trials_of(config: RunConfig) -> TrialSettings | None:
    """Return the group; None if the run has no trials."""
    found: TrialSettings | None = getattr(config, GROUP, None)
    return found


def with_group_written_out(values: Mapping[str, Any]) -> dict[str, Any]:
    """`trials: 2` as `trials: {episodes: 2}`."""
    given = values.get(GROUP)
    if isinstance(given, int) and not isinstance(given, bool):
        return {**values, GROUP: {"episodes": given}}
    return dict(values)
