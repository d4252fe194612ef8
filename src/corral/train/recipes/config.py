"""What a run is asked to do: every setting, checked.

    env: my_package:make_env
    num_envs: 16
    total_steps: 200000
    ppo:
      lr: 0.0003

A YAML file names a recipe (`recipe: cartpole`) and changes some of its defaults, or
stands on its own. The last group, here `ppo`, belongs to the learner.
"""

from __future__ import annotations

from functools import cache
from typing import Any, ClassVar, Literal

from corral.errors import MissingExtra

try:
    from pydantic import BaseModel, ConfigDict, Field, create_model
except ImportError as error:
    raise MissingExtra("configs need pydantic: pip install 'corral[train]'") from error

from corral.learners.ppo import PPOConfig
from corral.learners.protocol import Learner, Rows, Wants
from corral.learners.registry import learner_class

CHANGEABLE = (
    *("backend", "workers", "isolation", "device", "threads"),
    *("on_fault", "max_restarts", "restarts_per_minute", "memory_limit"),
    *("start_timeout", "step_timeout", "reset_timeout"),
    *("total_steps", "stop_at", "best_metric", "best_is", "video"),
    *("evaluate_every", "evaluate_episodes", "evaluate_length", "final_episodes"),
)
"""Settings that a resumed run may change, since they change no number of the training:
where envs and networks are computed, how faults are handled, when the run ends, and how
it is evaluated. All others do change numbers: also checkpoint_every, as a checkpoint
ends the running episodes, isolate_rng, as it decides which generator an env draws from,
and mode, as sums over fewer rows at once are rounded differently."""


class RunConfig(BaseModel):
    """Every setting of a run but those of its learner."""

    changeable: ClassVar[tuple[str, ...]] = CHANGEABLE

    model_config = ConfigDict(
        extra="forbid", validate_default=True, allow_inf_nan=False
    )

    recipe: str = Field(
        default="", description="recipe whose defaults are used (default: none)"
    )
    name: str = Field(
        default="", description="name of the run's folder (default: the recipe's name)"
    )
    env: str = Field(
        default="", description="Gymnasium id, module:id or module:function"
    )
    env_kwargs: dict[str, Any] = Field(
        default={}, description="keyword arguments for the env"
    )
    learner: str = Field(
        default="ppo",
        description="ppo (Corral's), sb3_ppo (Stable-Baselines3's), or module:Class",
    )
    num_envs: int = Field(
        default=8, ge=1, description="number of envs that collect, >= 1 (default: 8)"
    )
    backend: Literal["auto", "serial", "thread", "process"] = Field(
        default="auto", description="where envs run (default: auto, by measurement)"
    )
    workers: int | None = Field(
        default=None,
        ge=1,
        description="number of threads or processes (default: the usable cores)",
    )
    isolation: Literal["auto", "slot", "shared"] = Field(
        default="auto",
        description="slot: one process per env; auto: only if the env needs it",
    )
    isolate_rng: bool = Field(
        default=False, description="separate global random generators for each env"
    )
    on_fault: Literal["raise", "restart"] = Field(
        default="raise", description="what to do when an env raises or its worker dies"
    )
    max_restarts: int = Field(
        default=100,
        ge=1,
        description="restarts allowed per env in the whole run (default: 100)",
    )
    restarts_per_minute: int = Field(
        default=10,
        ge=1,
        description="restarts allowed per env within a minute (default: 10)",
    )
    memory_limit: int | None = Field(
        default=None,
        gt=0,
        description="bytes above which an env gets a new process between episodes; "
        "needs isolation: slot (default: no limit)",
    )
    start_timeout: float | None = Field(
        default=None,
        gt=0,
        description="seconds allowed to build a worker's envs (default: no limit)",
    )
    step_timeout: float | None = Field(
        default=None,
        gt=0,
        description="seconds allowed for one step (default: no limit)",
    )
    reset_timeout: float | None = Field(
        default=None,
        gt=0,
        description="seconds allowed for one reset (default: no limit)",
    )
    total_steps: int = Field(
        default=100_000, ge=1, description="env steps of the whole run"
    )
    seed: int = Field(
        default=0, ge=0, description="seed of envs, actions and weights (default: 0)"
    )
    device: str = Field(
        default="cpu", description="torch device: cpu, cuda, cuda:1 (default: cpu)"
    )
    threads: int = Field(
        default=1,
        ge=1,
        description="number of torch threads; more help only large networks "
        "(default: 1)",
    )
    mode: Literal["sync", "two_groups"] = Field(
        default="sync",
        description="two_groups: the policy acts for one half while the other steps",
    )
    normalise_obs: bool = Field(
        default=False,
        description="scaling of observations by running mean and variance",
    )
    normalise_reward: bool = Field(
        default=False,
        description="scaling of rewards by the running variance of returns",
    )
    evaluate_every: int | None = Field(
        default=None,
        ge=1,
        description="number of updates between evaluations (default: one tenth of the "
        "run)",
    )
    evaluate_episodes: int = Field(
        default=10, ge=1, description="number of episodes per evaluation (default: 10)"
    )
    evaluate_length: int = Field(
        default=30_000,
        ge=1,
        description="steps after which an evaluation truncates an episode "
        "(default: 30000)",
    )
    final_episodes: int = Field(
        default=100,
        ge=0,
        description="number of episodes for the final evaluation of the best policy "
        "(default: 100)",
    )
    best_metric: str = Field(
        default="eval/return",
        description="metric that chooses the best checkpoint (default: eval/return)",
    )
    best_is: Literal["max", "min"] = Field(
        default="max", description="whether high or low values of best_metric are best"
    )
    stop_at: float | None = Field(
        default=None,
        description="value of best_metric that ends the run (default: none)",
    )
    checkpoint_every: int | None = Field(
        default=None,
        ge=1,
        description="number of updates between checkpoints (default: one tenth of the "
        "run). A checkpoint ends the running episodes, so keep it well above an "
        "episode's length",
    )
    video: Literal["end", "evaluations", "never"] = Field(
        default="end",
        description="when to record env 0, if the env renders (default: end)",
    )

    @property
    def steps_per_update(self) -> int | None:
        """Env steps that one update learns from; None where episodes decide."""
        wants = wants_of(self)
        return self.num_envs * wants.count if isinstance(wants, Rows) else None

    @property
    def updates(self) -> int | None:
        """Number of updates, if known; the last one may go past total_steps."""
        steps = self.steps_per_update
        return None if steps is None else -(-self.total_steps // steps)


class Config(RunConfig):
    """Every setting of a run of PPO, Corral's or Stable-Baselines3's."""

    ppo: PPOConfig = Field(
        default_factory=PPOConfig, description="settings of the learner"
    )


# The learner's group ------------------------------------------------------------------


def with_group(base: type[RunConfig], learner: type[Learner]) -> type[RunConfig]:
    """Return a config class that has the learner's group of settings as well."""
    return _with_group(base, learner.group, learner.Config)


@cache
def _with_group(
    base: type[RunConfig], name: str, settings: type[BaseModel]
) -> type[RunConfig]:
    known = Config.model_fields.get(name)
    if base is RunConfig and known is not None and known.annotation is settings:
        return Config  # the same, known to type checkers
    field = Field(default_factory=settings, description="settings of the learner")
    groups: dict[str, Any] = {name: (settings, field)}
    return create_model(base.__name__, __base__=base, __doc__=base.__doc__, **groups)


def learner_settings(config: RunConfig) -> Any:
    """Return the learner's group of a config."""
    return getattr(config, learner_class(config.learner).group)


def wants_of(config: RunConfig) -> Wants:
    """Return what one update of the run learns from."""
    return learner_class(config.learner).wants(learner_settings(config))
