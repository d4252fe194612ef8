"""Settings of a run with tasks: a group of the config that only such runs have.

env: my_package:make_env          has sample_tasks(count, rng) and set_task(task)
learner: sac
trials:                           or `trials: 2`
  episodes: 2
  train_tasks: 80
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, create_model

from corral.engine.adapters.trials import Convention
from corral.train.recipes.config import RunConfig

GROUP = "trials"
Column = Annotated[int, Field(ge=0)]


class TrialSettings(BaseModel):
    """What a trial is, and how many tasks there are."""

    model_config = ConfigDict(extra="forbid", frozen=True, validate_default=True)

    episodes: int = Field(
        default=2, ge=1, description="episodes of one task in a trial (default: 2)"
    )
    train_tasks: int = Field(
        default=100,
        ge=0,
        description="number of tasks to train on; 0 for an env without tasks",
    )
    eval_tasks: int = Field(
        default=20,
        ge=1,
        description="number of tasks that choose the best checkpoint, and of others "
        "for the final evaluation (default: 20)",
    )
    oracle: bool = Field(
        default=False, description="show the policy the task (default: false)"
    )
    previous: bool = Field(
        default=False,
        description="show the policy its previous action and reward, as RL² does; SAC "
        "and TD3 with a memory see them anyway (default: false)",
    )
    convention: Convention = Field(
        default="corral",
        description="varibad acts on the last observation of inner episodes",
    )
    map: tuple[Column, Column] | None = Field(
        default=None,
        description="numbers of an observation that are x and y: the report then shows "
        "paths on a map (default: none)",
    )
    goal_radius: float | None = Field(
        default=None, gt=0, description="of the tasks' goals on that map"
    )


@cache
def with_trials(base: type[RunConfig]) -> type[RunConfig]:
    """Return a config class that has this group as well."""
    field = Field(default_factory=TrialSettings, description="trials and their tasks")
    groups: dict[str, Any] = {GROUP: (TrialSettings, field)}
    return create_model(base.__name__, __base__=base, __doc__=base.__doc__, **groups)


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
