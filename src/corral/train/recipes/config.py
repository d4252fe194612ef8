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
from typing import Annotated, Any, ClassVar, Literal

from corral.errors import requires

with requires("configs need pydantic: pip install 'corral[train]'"):
    from pydantic import (
        BaseModel,
        BeforeValidator,
        ConfigDict,
        Field,
        NonNegativeInt,
        PositiveFloat,
        PositiveInt,
        ValidationInfo,
        create_model,
        field_validator,
    )

from corral.learners.ppo import PPOConfig
from corral.learners.protocol import LearnerConfig, Rows, Wants
from corral.learners.registry import learner_class

# Settings that a resumed run may change, since they change no number of the training:
# where envs and networks are computed, how faults are handled, when the run ends, and
# how it is evaluated. All others do change numbers: also checkpoint_every, as a
# checkpoint ends the running episodes, isolate_rng, as it decides which generator an
# env draws from, and mode and act_in, as sums over fewer rows at once are rounded
# differently.
CHANGEABLE = (
    *("backend", "workers", "isolation", "device", "threads"),
    *("on_fault", "max_restarts", "restarts_per_minute", "memory_limit"),
    *("start_timeout", "step_timeout", "reset_timeout"),
    *("total_steps", "stop_at", "best_metric", "best_is", "video"),
    *("record_every_steps", "record_every_episodes", "record_formats"),
    *("devices", "keep_checkpoints", "wandb", "cluster"),
    *("evaluate_every", "evaluate_episodes", "evaluate_length", "final_episodes"),
    "evaluate_against",
)
# How a run sees agents; "flattened" is another name of joint.
View = Annotated[
    Literal["shared", "joint", "team"],
    BeforeValidator(lambda view: "joint" if view == "flattened" else view),
]


class SettingsGroup(LearnerConfig):
    """Base of the groups whose settings have their descriptions below them."""

    model_config = ConfigDict(use_attribute_docstrings=True)


class ClusterSettings(SettingsGroup):
    """Where the envs of a run are, and what follows if a machine is lost."""

    address: str = "auto"
    """Ray cluster: auto, HOST:PORT, or local to try it out (default: auto)"""
    cpus_per_site: PositiveInt | None = None
    """CPUs and workers of a site (default: 8, or those of the largest node)"""
    sites: PositiveInt | None = None
    """number of sites (default: as many as fit)"""
    working_dir: str | None = None
    """folder that every node gets, to import modules from (default: none)"""
    fragment_timeout: PositiveFloat | None = None
    """seconds allowed for the rows of one update (default: no limit)"""
    on_node_loss: Literal["raise", "restart"] = "raise"
    """restart: rows of a lost site are invalid, and it is started again"""


class WandbSettings(SettingsGroup):
    """Where a run is logged, and what beside its metrics."""

    project: str = "corral"
    """project of the run (default: corral)"""
    entity: str | None = None
    """user or team of the project (default: W&B's own default)"""
    name: str | None = None
    """name of the run (default: that of its folder)"""
    group: str | None = None
    """group of runs that belong together (default: none)"""
    tags: tuple[str, ...] = ()
    """tags of the run"""
    notes: str | None = None
    """a longer description of the run"""
    mode: Literal["online", "offline", "disabled"] | None = None
    """offline writes to disk, for `wandb sync` (default: $WANDB_MODE, else online)"""
    videos: bool = True
    """upload of the run's videos (default: true)"""
    artifacts: bool = True
    """upload of checkpoints and config as a model artifact (default: true)"""


class RunConfig(BaseModel):
    """Every setting of a run but those of its learner."""

    changeable: ClassVar[tuple[str, ...]] = CHANGEABLE

    model_config = ConfigDict(
        extra="forbid",
        validate_default=True,
        allow_inf_nan=False,
        use_attribute_docstrings=True,
    )

    recipe: str = ""
    """recipe whose defaults are used (default: none)"""
    name: str = ""
    """name of the run's folder (default: the recipe's name)"""
    env: str = ""
    """Gymnasium id, module:id or module:function"""
    env_kwargs: dict[str, Any] = {}
    """keyword arguments for the env"""
    wrappers: tuple[str | dict[str, dict[str, Any] | None], ...] = ()
    """wrappers of every env, the first one innermost: module:Class, or a name of
    gymnasium.wrappers; with arguments as {module:Class: {name: value}}"""
    learner: str = "ppo"
    """ppo, sac, taac, td3 (Corral's), sb3_ppo, sb3_maskable_ppo (Stable-Baselines3's,
    sb3-contrib's), or module:Class"""
    view: View | None = None
    """agents of PettingZoo's envs: shared policy, joint (as one agent), or team"""
    pad: bool = False
    """(view: shared) equal spaces for agents that differ, by padding"""
    opponents: Literal["self", "random"] = "self"
    """policy of the other agents: self (the same one), or random moves"""
    evaluate_against: Literal["self", "random"] | None = None
    """opponents in evaluations; agents play in turn (default: as opponents)"""
    network: str = ""
    """module:function or module:Class that makes your own torch networks: encoder,
    actor, critic (default: Corral's, by the spaces)"""
    network_kwargs: dict[str, Any] = {}
    """keyword arguments for the network's function"""
    curriculum: str = ""
    """module:function of (pool, steps), called before every update (default: none)"""
    num_envs: PositiveInt = 8
    """number of parallel envs, >= 1 (default: 8)"""
    backend: Literal["auto", "serial", "thread", "process"] = "auto"
    """where envs run (default: auto, by measurement)"""
    workers: PositiveInt | None = None
    """number of threads or processes (default: the usable cores)"""
    isolation: Literal["auto", "slot", "shared"] = "auto"
    """slot: one process per env; auto: only if the env needs it"""
    repeat: PositiveInt = 1
    """neighbouring envs that play the same episodes (default: 1)"""
    batched: bool = False
    """each worker steps one batched env, a gymnasium.vector.VectorEnv, of its slots"""
    autoreset: Literal["same_step", "next_step"] = "same_step"
    """when a new episode begins: with the last step of the one before, or at the next
    step, whose row is then invalid (default: same_step)"""
    infos: Literal["all", "final", "none"] | tuple[str, ...] = "final"
    """infos that workers send: those of last steps, all, none, or these keys"""
    per_worker: str = ""
    """module:function, called once in each worker; envs find what it returned with
    corral.this_worker().resource (default: none)"""
    worker_init: str = ""
    """module:function, called first in each worker (default: none)"""
    shared: str | dict[str, str] = {}
    """arrays with one copy for all workers: {name: file.npy}, or module:function that
    returns them; envs find them with corral.this_worker().shared"""
    devices: Literal["auto"] | tuple[str, ...] = ()
    """devices of workers, by turns, such as [cuda:0, cuda:1]; envs find theirs with
    corral.this_worker().device"""
    sample_task: str = ""
    """module:function of (slot, episode, rng) that draws the task of each episode"""
    task_by: str | None = None
    """how envs are told their tasks: a method, reset, options, or module:function of
    (env, task) (default: the first way that they have)"""
    isolate_rng: bool = False
    """separate global random generators for each env"""
    on_fault: Literal["raise", "restart"] = "raise"
    """what to do when an env raises or its worker dies"""
    max_restarts: PositiveInt = 100
    """restarts allowed per env in the whole run (default: 100)"""
    restarts_per_minute: PositiveInt = 10
    """restarts allowed per env within a minute (default: 10)"""
    memory_limit: PositiveInt | None = None
    """bytes above which an env gets a new process; needs isolation: slot"""
    start_timeout: PositiveFloat | None = None
    """seconds allowed to build a worker's envs (default: no limit)"""
    step_timeout: PositiveFloat | None = None
    """seconds allowed for one step (default: no limit)"""
    reset_timeout: PositiveFloat | None = None
    """seconds allowed for one reset (default: no limit)"""
    total_steps: PositiveInt = 100_000
    """env steps of the whole run"""
    seed: NonNegativeInt = 0
    """seed of envs, actions and weights (default: 0)"""
    device: str = "cpu"
    """torch device: cpu, cuda, cuda:1, or auto, a GPU if there is one (default: cpu)"""
    threads: PositiveInt = 1
    """number of torch threads; more help only large networks (default: 1)"""
    mode: Literal["sync", "two_groups"] = "sync"
    """two_groups: the policy acts for one half while the other steps"""
    act_in: Literal["caller", "workers", "auto"] = "caller"
    """workers: copies of the policy act beside the envs; auto: by measurement"""
    rollout_size: PositiveInt | None = None
    """rows of one update over all envs together, shared by them: sets the learner's
    n_steps to rollout_size / num_envs, rounded down (default: n_steps of each env)"""
    normalise_obs: bool = False
    """scaling of observations by running mean and variance"""
    normalise_reward: bool = False
    """scaling of rewards by the running variance of returns"""
    evaluate_every: PositiveInt | None = None
    """number of updates between evaluations (default: one tenth of the run)"""
    evaluate_episodes: PositiveInt = 10
    """number of episodes per evaluation (default: 10)"""
    evaluate_length: PositiveInt = 30_000
    """steps after which an evaluation truncates an episode (default: 30000)"""
    final_episodes: NonNegativeInt = 100
    """number of episodes for the final evaluation of the best policy (default: 100)"""
    best_metric: str = "eval/return"
    """metric that chooses the best checkpoint (default: eval/return)"""
    best_is: Literal["max", "min"] = "max"
    """whether high or low values of best_metric are best"""
    stop_at: float | None = None
    """value of best_metric that ends the run (default: none)"""
    checkpoint_every: PositiveInt | None = None
    """updates between checkpoints; each ends the running episodes (default: a tenth of
    the run)"""
    keep_checkpoints: NonNegativeInt = 0
    """number of earlier checkpoints to keep beside last and best, the newest ones, in
    checkpoints/history (default: 0)"""
    video: Literal["end", "evaluations", "never"] = "end"
    """when to record the policy in an env of its own (default: end)"""
    record_every_steps: PositiveInt | None = None
    """env steps between videos of env 0's training episodes (default: none)"""
    record_every_episodes: PositiveInt | None = None
    """env 0's episodes between videos of them (default: none)"""
    record_formats: tuple[Literal["gif", "mp4"], ...] = ()
    """gif, mp4 or both (default: gif, and mp4 if imageio-ffmpeg is installed)"""
    cluster: ClusterSettings | None = None
    """envs on the machines of a Ray cluster: its address, or a group of settings
    (default: none)"""
    wandb: WandbSettings | None = None
    """logging to Weights & Biases: true, or a group of settings (default: none)"""

    @field_validator("wandb", "cluster", mode="before")
    @classmethod
    def _written_out(cls, value: Any, info: ValidationInfo) -> Any:
        """`true` and `cluster: auto` as groups, and `false` as none."""
        if isinstance(value, bool):
            return {} if value else None
        is_address = isinstance(value, str) and info.field_name == "cluster"
        return {"address": value} if is_address else value

    @field_validator("autoreset", mode="before")
    @classmethod
    def _as_gymnasium_writes_it(cls, value: Any) -> Any:
        """`NextStep`, `AutoresetMode.SAME_STEP`: as Gymnasium names them."""
        text = str(getattr(value, "name", value)).rpartition(".")[2]
        return "".join(
            f"_{c}" if c.isupper() and text[i - 1 : i].islower() else c
            for i, c in enumerate(text)
        ).lower()

    @field_validator("wrappers")
    @classmethod
    def _one_wrapper_each(cls, value: Any) -> Any:
        for one in value:
            if not isinstance(one, str) and len(one) != 1:
                raise ValueError(
                    f"{one!r} has {len(one)} keys; write `- module:Class: {{name: "
                    "value}}` for each wrapper"
                )
        return value

    @property
    def records(self) -> bool:
        """Whether training episodes of env 0 are recorded."""
        return bool(self.record_every_steps or self.record_every_episodes)

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

    ppo: PPOConfig = PPOConfig()
    """settings of the learner"""


# Groups -------------------------------------------------------------------------------


@cache
def with_group(
    base: type[RunConfig],
    name: str,
    settings: type[BaseModel],
    description: str = "settings of the learner",
) -> type[RunConfig]:
    """Return a config class that has another group of settings as well."""
    known = Config.model_fields.get(name)
    if base is RunConfig and known is not None and known.annotation is settings:
        return Config  # the same, known to type checkers
    field = Field(default_factory=settings, description=description)
    groups: dict[str, Any] = {name: (settings, field)}
    return create_model(base.__name__, __base__=base, __doc__=base.__doc__, **groups)


def learner_settings(config: RunConfig) -> Any:
    """Return the learner's group of a config."""
    return getattr(config, learner_class(config.learner).group)


def wants_of(config: RunConfig) -> Wants:
    """Return what one update of the run learns from."""
    return learner_class(config.learner).wants(learner_settings(config))
