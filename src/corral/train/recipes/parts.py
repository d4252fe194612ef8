"""A config -> what a run is made of: the pool, the learner, and the collector.

Learner and collector are Corral's, or Stable-Baselines3's (`sb3_parts`) behind the same
verbs.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from corral.core import Factory
from corral.engine.adapters.env_names import resolve_env
from corral.engine.pool import Pool, PoolOptions
from corral.errors import MissingExtra, OptionError
from corral.rollouts.collector import Collector
from corral.rollouts.evaluation import Evaluation
from corral.rollouts.normalise import ObsNorm, RewardNorm
from corral.rollouts.rollout import EpisodeSummary
from corral.train.recipes.config import Config

try:
    import torch
except ImportError as error:
    raise MissingExtra("training needs torch: pip install 'corral[train]'") from error

from corral.learners.ppo import PPO


class Gathered(Protocol):
    """What a run writes down of a rollout."""

    @property
    def reward(self) -> NDArray[np.float64]: ...

    @property
    def valid(self) -> NDArray[np.bool_]: ...

    @property
    def episodes(self) -> tuple[EpisodeSummary, ...]: ...


class Gatherer(Protocol):
    """Who collects; see `rollouts.collector`."""

    def collect(self, steps: int) -> Any: ...

    def end_episodes(self, number: int) -> None: ...


class Learner(Protocol):
    """Who learns from what was collected; see `learners.ppo`."""

    @property
    def policy(self) -> Any:
        """Also `deterministic`, `stochastic` and `frozen`, as of `NetPolicy`."""

    def update(self, rollout: Any) -> dict[str, float]: ...

    def state_dict(self) -> dict[str, Any]: ...

    def load_state_dict(self, state: dict[str, Any]) -> None: ...

    def load_policy(
        self, state: dict[str, Any], log_std: float | None = None
    ) -> None: ...


@dataclass(slots=True)
class Parts:
    """They work together; close the pool when done."""

    config: Config
    pool: Pool
    learner: Learner
    collector: Gatherer
    obs_norm: ObsNorm | None
    reward_norm: RewardNorm | None

    def normalisers(self) -> dict[str, Any]:
        """What they know, to be saved."""
        both = {"obs": self.obs_norm, "reward": self.reward_norm}
        return {name: one.state_dict() for name, one in both.items() if one is not None}

    def load_normalisers(self, state: dict[str, Any]) -> None:
        """Go on from what was saved."""
        for name, one in (("obs", self.obs_norm), ("reward", self.reward_norm)):
            if one is not None and name in state:
                one.load_state_dict(state[name])

    def open_pool(self, backend: str, workers: int | None) -> Pool:
        """Another one like `pool`, for envs that do not disturb it."""
        return open_pool(self.config, backend, workers)

    def warm_up(self, say: Callable[[str], object]) -> None:
        """What comes before the first update of a new run."""

    def tasks(self, purpose: str, count: int) -> list[Any] | None:
        """What episodes of a "validation" or "test" are about; None if the env says."""
        return None

    def measured(self, result: Evaluation) -> dict[str, float]:
        """More that an evaluation has found out, by name."""
        return {}

    def lone_policy(self) -> Any:
        """How one env alone would be led, to see how fast that is."""
        return self.learner.policy

    def export(self, folder: Path) -> list[Path]:
        """Write what others than Corral open, of the policy as it is now."""
        return []


def env_factory(config: Config, **more: Any) -> Factory:
    """What makes one env of the config."""
    return resolve_env(config.env, {**config.env_kwargs, **more}, syntax="yaml").factory


def build(config: Config) -> Parts:
    """Open the pool and make Corral's own learner for its spaces."""
    torch.set_num_threads(config.threads)
    device = device_for(config.device)
    pool = open_pool(config, config.backend, config.workers)
    try:
        return around(pool, config, device)
    except BaseException:
        pool.close()
        raise


def open_pool(config: Config, backend: str, workers: int | None) -> Pool:
    """As many envs as the config has slots, and its ways with what goes wrong."""
    if config.isolation == "slot":
        workers = None
    options = pool_options(config, backend=backend, workers=workers)
    return Pool.with_options(env_factory(config), config.num_envs, options)


def pool_options(config: Config, **more: Any) -> PoolOptions:
    """What a run's config asks of its pools; `more` for what one of them needs."""
    asked: dict[str, Any] = {
        "seed": config.seed,
        "infos": "final",
        "isolation": config.isolation,
        "isolate_rng": config.isolate_rng,
        "on_fault": config.on_fault,
        "max_restarts": config.max_restarts,
        "restarts_per_minute": config.restarts_per_minute,
        "memory_limit": config.memory_limit,
        "start_timeout": config.start_timeout,
        "step_timeout": config.step_timeout,
        "reset_timeout": config.reset_timeout,
    }
    return PoolOptions(**{**asked, **more})


def around(pool: Pool, config: Config, device: str) -> Parts:
    """A learner and a collector for a pool that is open."""
    spec = pool.spec
    obs_norm = ObsNorm(spec.observation_space) if config.normalise_obs else None
    reward_norm = RewardNorm(config.ppo.gamma) if config.normalise_reward else None
    learner = PPO(
        spec.observation_space,
        spec.action_space,
        config.ppo,
        seed=config.seed,
        total_steps=config.total_steps,
        device=device,
    )
    collector = Collector(
        pool,
        learner.policy,
        mode=config.mode,
        obs_norm=obs_norm,
        reward_norm=reward_norm,
    )
    return Parts(config, pool, learner, collector, obs_norm, reward_norm)


def device_for(name: str) -> str:
    """The device, if this machine has it."""
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
