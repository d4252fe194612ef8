"""A config -> what a run is made of: the pool, the learner, and what collects.

Evaluations have envs of their own, which are made when they are first needed. They take
the most likely actions, and their episodes are the same each time, so that two
evaluations of a run can be compared.
"""

from __future__ import annotations

import difflib
import functools
import importlib
import math
from collections.abc import Callable, Iterable, Mapping
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from typing import Any

import numpy as np

from corral.core import EnvSpec, Factory
from corral.engine.adapters.batched import STEP_MASK_KEY
from corral.engine.adapters.env_names import is_registered, resolve_env
from corral.engine.executors.devices import devices_for
from corral.engine.pool import Pool, PoolOptions
from corral.engine.worker.seeds import EvaluationSeed, evaluation_root
from corral.errors import OptionError, requires
from corral.learners.episode_batch import EpisodeGatherer
from corral.learners.nets.own import OwnNetwork
from corral.learners.protocol import Gatherer, Learner, LearnerSetup, Rows
from corral.learners.registry import learner_class
from corral.learners.shared.learner import SharedLearner
from corral.rollouts.collector import Collector
from corral.rollouts.evaluation import SUCCESS_KEYS, Evaluation, evaluate, success_of
from corral.rollouts.normalise import ObsNorm, RewardNorm
from corral.rollouts.rollout import EpisodeSummary
from corral.rollouts.site_group import SiteGroup
from corral.train.recipes.config import RunConfig, learner_settings, wants_of
from corral.train.recipes.resolve import recipe_module
from corral.train.recipes.trials import trials_of
from corral.train.run.acting import acting_policy, check_own_collector, place_of_acting
from corral.train.run.checkpoint import Checkpoint
from corral.train.run.named_code import (
    curriculum_of,
    named,
    with_wrappers,
    worker_options,
    wrappers_of,
)
from corral.train.run.slot_recording import RecordedFactory
from corral.train.run.team_learners import (
    agents_factory,
    make_learner,
    remark_of,
    seats_of,
)
from corral.train.run.trial_envs import RunTasks, TrialFactory, returns_by_episode
from corral.train.sinks.window import check_display

with requires("training needs torch: pip install 'corral[train]'"):
    import torch


# How many episodes of an evaluation were, if any were.
CUT_KEY, FAILED_KEY = "cut", "failed"


@dataclass(slots=True)
class Parts:
    """What a run is made of; close it when done. Recipes may add to it.

    Attributes:
        evaluation_pool: The envs of evaluations, once they are needed.
        watch: Called with that pool when it is opened.
        act_in: Where the policy acts: "caller" or "workers".
        batched: Whether a worker's envs are one batched env by the config.
    """

    config: RunConfig
    pool: Pool
    learner: Learner
    collector: Gatherer
    obs_norm: ObsNorm | None = None
    reward_norm: RewardNorm | None = None
    evaluation_pool: Pool | None = None
    watch: Callable[[Pool], None] | None = None
    act_in: str = "caller"
    batched: bool = False

    def validate(self) -> dict[str, float]:
        """The metrics of an evaluation while training."""
        config, seed = self.config, self.seed(EvaluationSeed.VALIDATION)
        result = self.evaluate(config.evaluate_episodes, seed, purpose="validation")
        more = self.measured(result)
        cut = np.count_nonzero(result.lengths >= config.evaluate_length)
        lost = {CUT_KEY: float(cut), FAILED_KEY: float(len(result.failed))}
        known = result.lengths[result.lengths > 0]  # of those that did not fail
        metrics = {
            "return": result.mean,
            "return_std": result.std,
            "length": float(np.mean(known)) if len(known) else math.nan,
            **means_of(numbers_of(info) for info in result.infos),
            **more,
            **{name: count for name, count in lost.items() if count},
        }
        return {f"eval/{name}": value for name, value in metrics.items()}

    def evaluate(
        self, count: int, seed: int, stochastic: bool = False, purpose: str = "test"
    ) -> Evaluation:
        """Run exactly so many episodes of these seeds."""
        if self.evaluation_pool is None:
            # As the envs that collect were placed: measuring again would say the same.
            layout = self.pool.layout
            workers = None if layout.backend == "serial" else layout.workers
            place = layout.backend, workers
            if isinstance(self.pool, SiteGroup):  # the driver evaluates by itself
                place = "auto", None
            self.evaluation_pool = self.open_pool(*place)
            if self.watch is not None:
                self.watch(self.evaluation_pool)
        policy = self.learner.policy
        return evaluate(
            policy.stochastic() if stochastic else policy.deterministic(),
            self.evaluation_pool,
            episodes=count,
            seed=seed,
            tasks=self.tasks(purpose, count),
            max_length=self.config.evaluate_length,
            obs_norm=self.obs_norm,
            act_in=self.act_in,
        )

    def seed(self, purpose: EvaluationSeed) -> int:
        """What the seeds of an evaluation's episodes are made from."""
        return evaluation_root(self.config.seed, purpose)

    def close(self) -> None:
        """Close all envs."""
        with ExitStack() as closing:
            closing.callback(self.pool.close)
            if self.evaluation_pool is not None:
                self.evaluation_pool.close()

    def collect(self, count: int) -> Any:
        """Collect what the learner wants; a `Gathered`."""
        return self.collector.collect(count)

    def end_episodes(self, number: int) -> None:
        """End the running episodes; the next ones have seeds made from `number`."""
        self.collector.end_episodes(number)

    def recipe_state(self) -> dict[str, Any]:
        """Return what else a recipe needs to continue; `load` is given it back."""
        return {}

    def load(self, moment: Checkpoint) -> None:
        """Continue with the learner and the normalisers of a checkpoint."""
        self.learner.load_state_dict(moment.learner)
        self.load_normalisers(moment.normalisers)

    def normalisers(self) -> dict[str, Any]:
        """Return the state of the run's normalisers, or of the learner's."""
        both = {"obs": self.obs_norm, "reward": self.reward_norm}
        ours = {name: one.state_dict() for name, one in both.items() if one is not None}
        return ours | self.learner.normalisers()

    def load_normalisers(self, state: dict[str, Any]) -> None:
        """Continue with what was saved."""
        for name, one in (("obs", self.obs_norm), ("reward", self.reward_norm)):
            if one is not None and name in state:
                one.load_state_dict(state[name])
        self.learner.load_normalisers(state)

    def open_pool(self, backend: str, workers: int | None) -> Pool:
        """Open another pool like `pool`, for evaluations."""
        batched = self.batched and evaluates_batched(self.config, self.pool.spec)
        config = self.config.model_copy(update={"batched": batched})
        return open_pool(config, backend, workers, evaluating=True)

    def lead(self, steps: int) -> None:
        """Have the curriculum change the envs that collect, before their next steps."""
        curriculum = curriculum_of(self.config)
        if curriculum is not None:
            curriculum(self.pool, steps)

    def warm_up(self, say: Callable[[str], object]) -> None:
        """Do what comes before the first update of a new run."""

    def remark(self) -> str:
        """Return what else there is to say at the start of a run; "" for nothing."""
        return remark_of(self.config, self.pool)

    def tasks(self, purpose: str, count: int) -> list[Any] | None:
        """Return the tasks of "validation" or "test" episodes; None for no tasks."""
        tasks = self.pool.sample_task
        if isinstance(tasks, RunTasks):
            return tasks.for_purpose(purpose, count)
        return seats_of(self.config, self.pool, count)

    def measured(self, result: Evaluation) -> dict[str, float]:
        """Return more metrics of an evaluation."""
        return returns_by_episode(result)


def build_run(config: RunConfig) -> Parts:
    """Build what a run is made of, by its recipe's own `build` if it has one."""
    module = recipe_module(config.recipe)
    maker: Callable[[RunConfig], Parts] = build if module is None else module.build
    parts = maker(config)
    if config.cluster is not None and not isinstance(parts.pool, SiteGroup):
        parts.close()
        raise OptionError(
            f"cluster: recipe {config.recipe} makes its envs on this machine; leave "
            "cluster out"
        )
    return parts


# Settings of a run that are options of its pools.
POOL_SETTINGS = (
    *("seed", "isolation", "isolate_rng", "repeat", "on_fault", "max_restarts"),
    *("restarts_per_minute", "memory_limit", "infos", "autoreset", "devices"),
    *("start_timeout", "step_timeout", "reset_timeout"),
)


def env_factory(config: RunConfig, *, evaluating: Any = False, **more: Any) -> Factory:
    """Return what makes one env of the config."""
    kwargs = {**config.env_kwargs, **more}
    factory = resolve_env(config.env, kwargs, syntax="yaml").factory
    factory = with_wrappers(factory, config)
    trials = trials_of(config)
    if trials is not None:
        return TrialFactory(factory, trials)
    return agents_factory(config, factory, evaluating)


OpenPool = Callable[[Any, str, int | None], Pool]


def build(config: RunConfig, opener: OpenPool | None = None, **options: Any) -> Parts:
    """Open the pool and make the learner.

    Args:
        config: of the run.
        opener: opens the pool, where a recipe has a pool of another kind.
        **options: for the learner, beside its settings.
    """
    if config.env_kwargs.get("render_mode") == "human":
        way = "leave render_mode out, and set video: evaluations"
        check_display("env_kwargs.render_mode: human", instead=way)
    torch.set_num_threads(config.threads)
    device = device_for(config.device)
    if config.act_in != "caller" and config.cluster is None:
        devices_for(config.devices)  # copies of the policy act there
    with ExitStack() as on_error:
        if config.cluster is not None:
            opener = _cluster_opener(config, opener)
        if config.records:
            opener = _recording_opener(config, opener)
        pool = (opener or open_pool)(config, config.backend, config.workers)
        on_error.callback(pool.close)
        batched = opener is None and config.batched
        if batched:
            evaluates_batched(config, pool.spec)  # refused now, if it cannot be done
        parts = _around(pool, config, device, options)
        parts.batched = batched
        on_error.pop_all()
    return parts


def _cluster_opener(config: RunConfig, own: OpenPool | None) -> OpenPool:
    """What opens a cluster in place of a pool."""
    if own is not None:
        raise OptionError(
            f"cluster: recipe {config.recipe} makes its envs on this machine; leave "
            "cluster out"
        )
    if learner_class(config.learner).needs_pool:  # which is not on this machine
        check_own_collector(config)
    # By name: it is a room above this one.
    there = importlib.import_module("corral.cluster.run_envs")
    opened: OpenPool = functools.partial(open_pool, make=there.open_sites)
    return opened


def _recording_opener(config: RunConfig, own: OpenPool | None) -> OpenPool:
    """What opens a pool whose slot 0 can be recorded."""
    keys = "record_every_steps and record_every_episodes"
    if own is not None:
        where = f"recipe {config.recipe}" if config.cluster is None else "a cluster"
        raise OptionError(f"{where} has no pictures to record: leave out {keys}")
    if config.batched:
        raise OptionError(f"{keys} record a single env: set batched: false")
    return functools.partial(open_pool, make=_recorded)


def _recorded(
    config: RunConfig, factory: Factory, num_envs: int, options: PoolOptions
) -> Pool:
    with suppress(OptionError):  # it takes no render_mode, but may have one
        factory = env_factory(config, render_mode="rgb_array")
    # All of them draw: Stable-Baselines3 takes no envs of two kinds.
    makers: list[Factory] = [RecordedFactory(factory), *[factory] * (num_envs - 1)]
    return Pool.with_options(makers, num_envs, options)


def open_pool(
    config: RunConfig,
    backend: str,
    workers: int | None,
    *,
    evaluating: bool = False,
    make: Callable[..., Any] | None = None,
) -> Pool:
    """Open a pool of `num_envs` envs with the config's options.

    Args:
        config: of the run.
        backend: of the pool.
        workers: of the pool.
        evaluating: whether the envs are for evaluations.
        make: makes something else of the config, the env, their number and options.
    """
    if make is None:
        make = lambda _, *given: Pool.with_options(*given)  # noqa: E731
    if config.isolation == "slot":
        workers = None
    asked: dict[str, Any] = {"backend": backend, "workers": workers}
    if (tasks := tasks_of(config)) is not None:
        asked["sample_task"] = tasks
    env: Any = config.env
    if config.batched:
        check_batched(config)
        asked |= {"env_kwargs": config.env_kwargs, "wrappers": wrappers_of(config)}
    else:
        env = env_factory(config, evaluating=evaluating)
    options = pool_options(config, batched=config.batched, **asked)
    opened: Pool = make(config, env, config.num_envs, options)
    return opened


def check_batched(config: RunConfig) -> None:
    """Refuse batched envs for what takes single ones."""
    teams = learner_class(config.learner).trains_teams
    if teams or trials_of(config) is not None:
        what = f"learner: {config.learner}" if teams else "trials"
        raise OptionError(
            f"batched is true, and {what} wraps every env by itself; set batched: false"
        )


def evaluates_batched(config: RunConfig, spec: EnvSpec) -> bool:
    """Return whether evaluations run in batched envs, too; refuse what cannot be.

    Episodes of an evaluation end one by one, for which a batched env needs a
    `step_mask`. An id of Gymnasium's has single envs as well.
    """
    if not config.batched or spec.metadata.get(STEP_MASK_KEY):
        return config.batched
    if is_registered(config.env.rpartition(":")[2]):
        return False
    raise OptionError(
        f"batched is true, and the step of {config.env} takes no step_mask: "
        "evaluations cannot stop the envs whose episodes are over. Give its step the "
        "argument step_mask, or set batched: false"
    )


def tasks_of(config: RunConfig) -> RunTasks | None:
    """Return the tasks of a run with trials; None if it has none."""
    trials = trials_of(config)
    if trials is None or not trials.train_tasks:
        return None
    return RunTasks.drawn(env_factory(config), trials, config.seed)


def pool_options(config: RunConfig, **more: Any) -> PoolOptions:
    """Return the pool options of a config; `more` are those of one pool."""
    asked = {name: getattr(config, name) for name in POOL_SETTINGS}
    return PoolOptions(**{**asked, **worker_options(config), **more})


def one_env_options(config: RunConfig, **more: Any) -> PoolOptions:
    """Return the pool options of a config for one env, as in a video or a window.

    They have all that the env finds in its worker, and nothing that is for several
    workers or for their faults.
    """
    asked = {name: getattr(config, name) for name in ("isolate_rng", "devices")}
    return PoolOptions(**{**asked, **worker_options(config), **more})


def setup_for(
    config: RunConfig, pool: Pool | None, spec: EnvSpec, device: str
) -> LearnerSetup:
    """Return what a learner is made from."""
    network = None
    if config.network_kwargs and not config.network:
        raise OptionError(
            f"network_kwargs is {config.network_kwargs!r}, and no network takes them: "
            "add network: module:function, or leave network_kwargs out"
        )
    if config.network:
        kind = learner_class(config.learner)
        if not kind.takes_network:
            raise OptionError(
                f"network is {config.network!r}, and learner: {config.learner} has "
                f"networks of its own (see {kind.group} in `corral config`): use "
                "learner: ppo or sb3_ppo, or leave network out"
            )
        name = f"network {config.network}"
        make = named("network", config.network)
        network = OwnNetwork(make, name, config.network_kwargs)
    return LearnerSetup(
        spec=spec,
        settings=learner_settings(config),
        pool=pool,
        seed=config.seed,
        total_steps=config.total_steps,
        device=device,
        mode=config.mode,
        normalise_obs=config.normalise_obs,
        normalise_reward=config.normalise_reward,
        network=network,
    )


def _around(
    pool: Pool, config: RunConfig, device: str, options: dict[str, Any]
) -> Parts:
    curriculum_of(config)  # named wrongly, it is refused now
    setup = setup_for(config, pool, pool.spec, device)
    learner = make_learner(config, setup, **options)
    own = learner.collector()
    if own is not None:
        check_own_collector(config)
        if config.autoreset != "same_step":
            raise OptionError(
                f"autoreset is {config.autoreset!r}, and {config.learner} collects by "
                "itself, with same_step: set autoreset: same_step, or learner: ppo"
            )
        return Parts(config, pool, learner, own)
    policy = acting_policy(config, learner.policy)
    act_in = place_of_acting(config, pool, policy)
    wants = wants_of(config)
    if not isinstance(wants, Rows):
        _check_for_episodes(config)
        episodes = EpisodeGatherer(pool, policy, wants, act_in)
        return Parts(config, pool, learner, episodes, act_in=act_in)
    space = pool.spec.observation_space
    obs_norm = ObsNorm(space) if config.normalise_obs else None
    # Where agents share a policy, the learner scales the rewards of each.
    scaled = config.normalise_reward and not isinstance(learner, SharedLearner)
    reward_norm = RewardNorm(learner.gamma) if scaled else None
    rows = Collector(
        pool,
        policy,
        mode=config.mode,
        obs_norm=obs_norm,
        reward_norm=reward_norm,
        act_in=act_in,
    )
    return Parts(config, pool, learner, rows, obs_norm, reward_norm, act_in=act_in)


def _check_for_episodes(config: RunConfig) -> None:
    needed = {"mode": "sync", "normalise_obs": False, "normalise_reward": False}
    for key, only in needed.items():
        if (value := getattr(config, key)) != only:
            raise OptionError(
                f"{key} is {value!r}, and {config.learner} learns from whole episodes, "
                f"which are collected with {key}: {str(only).lower()}"
            )


def device_for(name: str) -> str:
    """Return the device, if this machine has it."""
    if name == "auto":
        return "cuda" if torch.cuda.is_available() else "cpu"
    kind, _, number = name.partition(":")
    if kind == "cpu" and not number:
        return name
    if kind != "cuda" or not (number or "0").isdecimal():
        raise OptionError(f"device is {name!r}: choose cpu, cuda, or cuda:1 and so on")
    count = torch.cuda.device_count() if torch.cuda.is_available() else 0
    if int(number or 0) >= count:
        raise OptionError(
            f"device is {name!r}, and torch sees {count} GPUs here: choose device: cpu"
        )
    return name


# Metrics of episodes -----------------------------------------------------------------

# Metrics that there are once an episode has ended.
EPISODE_METRICS = ("episode/return", "episode/length")


def is_better(
    config: RunConfig, metrics: Mapping[str, float], best: float | None
) -> bool:
    """Return whether the best_metric is better than the best so far; a tie is not."""
    name = config.best_metric
    if name not in metrics and name in EPISODE_METRICS:
        return False
    if name not in metrics:
        near = difflib.get_close_matches(name, metrics, n=1)
        meant = f"; did you mean {near[0]}?" if near else "."
        raise OptionError(
            f"best_metric is {name!r}, which is not measured{meant} "
            f"Measured metrics: {', '.join(sorted(metrics))}"
        )
    value = metrics[name]
    if math.isnan(value):  # nothing is known of it, as where all episodes failed
        return False
    return best is None or (value > best if config.best_is == "max" else value < best)


def is_enough(config: RunConfig, best: float | None) -> bool:
    """Return whether the best value reaches stop_at, so that the run may stop."""
    target = config.stop_at
    if target is None or best is None:
        return False
    return best >= target if config.best_is == "max" else best <= target


# Before the name of an info's entry.
INFO_PREFIX = "info/"
MEASURED_KEYS = ("return", "length")


def row_of(episode: EpisodeSummary) -> dict[str, float]:
    """Return the row that is written about an episode."""
    return {
        "return": episode.return_,
        "length": episode.length,
        "slot": episode.slot,
        "seed": episode.seed,
        "terminated": episode.terminated,
        **numbers_of(episode.info),
    }


# What Gymnasium's RecordEpisodeStatistics and SB3's Monitor add to the last info.
MONITOR_KEY = "episode"


def numbers_of(info: Mapping[str, Any], prefix: str = INFO_PREFIX) -> dict[str, float]:
    """Return the numbers in an episode's last info; those of agents by their names."""
    found: dict[str, float] = {}
    for key, value in info.items():
        if key == MONITOR_KEY:
            continue  # return and length once more, and the time of the clock
        if isinstance(value, Mapping):
            found |= numbers_of(value, f"{prefix}{key}/")
        elif (number := _number(value)) is not None:
            found[f"{prefix}{key}"] = number
    return found


def means_of(rows: Iterable[Mapping[str, Any]]) -> dict[str, float]:
    """The mean of everything that rows have measured, over those that have it."""
    values: dict[str, list[float]] = {}
    for row in rows:
        for name, value in _measured(row).items():
            if value is not None and math.isfinite(value):
                values.setdefault(name, []).append(value)
    return {name: float(np.mean(kept)) for name, kept in values.items()}


def _measured(row: Mapping[str, Any]) -> dict[str, Any]:
    """The numbers of a row to average; success always under the same name."""
    infos = {
        key[len(INFO_PREFIX) :]: row[key] for key in row if key.startswith(INFO_PREFIX)
    }
    kept = {name: row[name] for name in MEASURED_KEYS if name in row}
    if (success := success_of(infos)) is not None:
        kept["success_rate"] = success
        infos = {key: infos[key] for key in infos if key not in SUCCESS_KEYS}
    return kept | {f"{INFO_PREFIX}{key}": value for key, value in infos.items()}


def _number(value: Any) -> float | None:
    """A number, also of numpy or in an array of size 1; None for other values."""
    if isinstance(value, (np.generic, np.ndarray)) and value.size == 1:
        value = value.item()
    return value if isinstance(value, (int, float)) else None
