"""What a run is asked to do: every setting, checked.

    env: my_package:make_env
    num_envs: 16
    total_steps: 200000
    ppo:
      lr: 0.0003

Each recipe has its own defaults; a YAML file names a recipe (`recipe: cartpole`) and
changes some of them, or stands on its own.
"""

from __future__ import annotations

from typing import Any, ClassVar, Literal

from corral.errors import MissingExtra

try:
    from pydantic import BaseModel, ConfigDict, Field
except ImportError as error:
    raise MissingExtra("configs need pydantic: pip install 'corral[train]'") from error

from corral.learners.ppo import PPOConfig

CHANGEABLE = (
    *("backend", "workers", "isolation", "device", "threads"),
    *("on_fault", "max_restarts", "restarts_per_minute", "memory_limit"),
    *("start_timeout", "step_timeout", "reset_timeout"),
    *("total_steps", "stop_at", "best_metric", "best_is", "video"),
    *("evaluate_every", "evaluate_episodes", "evaluate_length", "final_episodes"),
)
"""Settings that a resumed run may change, since they change no number of the training:
where envs and networks are computed, what is done about faults, when it ends, and how
it is looked at. All others do: also checkpoint_every, as a checkpoint ends the running
episodes, isolate_rng, as it decides who draws from which generator, and mode, as sums
over fewer rows at once are rounded in another way."""


class Config(BaseModel):
    """One run of PPO."""

    changeable: ClassVar[tuple[str, ...]] = CHANGEABLE

    model_config = ConfigDict(
        extra="forbid", validate_default=True, allow_inf_nan=False
    )

    recipe: str = Field(default="", description="the recipe whose defaults these are")
    name: str = Field(
        default="", description="of the run's folder; the recipe's if empty"
    )
    env: str = Field(
        default="", description="a Gymnasium id, module:id or module:function"
    )
    env_kwargs: dict[str, Any] = Field(default={}, description="arguments for the env")
    learner: Literal["ppo", "sb3_ppo"] = Field(
        default="ppo", description="whose PPO: Corral's, or Stable-Baselines3's"
    )
    num_envs: int = Field(default=8, ge=1, description="slots that collect")
    backend: Literal["auto", "serial", "thread", "process"] = Field(
        default="auto", description="where the envs run; auto measures"
    )
    workers: int | None = Field(
        default=None,
        ge=1,
        description="threads or processes; as many as usable cores if null",
    )
    isolation: Literal["auto", "slot", "shared"] = Field(
        default="auto",
        description="slot: a process for each slot; auto: where the env needs it",
    )
    isolate_rng: bool = Field(
        default=False, description="global random generators of its own for each slot"
    )
    on_fault: Literal["raise", "restart"] = Field(
        default="raise", description="what to do when an env raises or its worker dies"
    )
    max_restarts: int = Field(
        default=100, ge=1, description="(restart) of each slot, in the whole run"
    )
    restarts_per_minute: int = Field(
        default=10, ge=1, description="(restart) of each slot, within any minute"
    )
    memory_limit: int | None = Field(
        default=None,
        gt=0,
        description="bytes after which a slot gets a new process between two episodes; "
        "needs isolation: slot; null: none",
    )
    start_timeout: float | None = Field(
        default=None, gt=0, description="seconds to build a worker's envs; null: any"
    )
    step_timeout: float | None = Field(
        default=None, gt=0, description="seconds for one step; null: any"
    )
    reset_timeout: float | None = Field(
        default=None, gt=0, description="seconds for one reset; null: any"
    )
    total_steps: int = Field(
        default=100_000, ge=1, description="env steps of the whole run"
    )
    seed: int = Field(default=0, ge=0, description="of envs, actions and weights")
    device: str = Field(
        default="cpu", description="where torch computes: cpu, cuda, cuda:1"
    )
    threads: int = Field(
        default=1,
        ge=1,
        description="of torch; more than one only pays for large networks",
    )
    mode: Literal["sync", "two_groups"] = Field(
        default="sync",
        description="two_groups: the policy sees to one half while the other steps",
    )
    normalise_obs: bool = Field(
        default=False, description="by a running mean and variance"
    )
    normalise_reward: bool = Field(
        default=False, description="by the running variance of discounted returns"
    )
    evaluate_every: int | None = Field(
        default=None, ge=1, description="updates; a tenth of the run if null"
    )
    evaluate_episodes: int = Field(default=10, ge=1, description="in each evaluation")
    evaluate_length: int = Field(
        default=30_000,
        ge=1,
        description="steps after which an evaluation cuts an episode, so that one "
        "without an end does not hold up the run",
    )
    final_episodes: int = Field(
        default=100, ge=0, description="of the best policy, once it is all over"
    )
    best_metric: str = Field(
        default="eval/return", description="what the best checkpoint is by"
    )
    best_is: Literal["max", "min"] = Field(default="max", description="of best_metric")
    stop_at: float | None = Field(
        default=None, description="end the run once best_metric is as good as this"
    )
    checkpoint_every: int | None = Field(
        default=None,
        ge=1,
        description="updates; a tenth of the run if null. A checkpoint ends the "
        "running episodes, so keep it well above an episode's length",
    )
    video: Literal["end", "evaluations", "never"] = Field(
        default="end",
        description="of slot 0, if the env renders; at evaluations training goes on",
    )
    ppo: PPOConfig = Field(default_factory=PPOConfig, description="the learner's")

    @property
    def steps_per_update(self) -> int:
        """Env steps that one update learns from."""
        return self.num_envs * self.ppo.n_steps

    @property
    def updates(self) -> int:
        """How many updates the run has; the last one may go past total_steps."""
        return -(-self.total_steps // self.steps_per_update)
