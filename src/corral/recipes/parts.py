"""A config -> what a run is made of: the pool, the learner, and the collector."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from corral.adapters.named import named
from corral.core import Factory
from corral.errors import MissingExtra, OptionError
from corral.pool import Pool
from corral.recipes.config import Config
from corral.rollouts.collector import Collector
from corral.rollouts.normalise import ObsNorm, RewardNorm

try:
    import torch
except ImportError as error:
    raise MissingExtra("training needs torch: pip install 'corral[train]'") from error

from corral.learners.ppo import PPO


@dataclass(slots=True)
class Parts:
    """They work together; close the pool when done."""

    config: Config
    pool: Pool
    learner: PPO
    collector: Collector
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


def env_factory(config: Config, **more: Any) -> Factory:
    """What makes one env of the config."""
    return named(config.env, {**config.env_kwargs, **more}).factory


def build(config: Config) -> Parts:
    """Open the pool and make a learner for its spaces."""
    torch.set_num_threads(config.threads)
    device = device_for(config.device)
    pool = open_pool(config, config.backend, config.workers)
    try:
        return _around(pool, config, device)
    except BaseException:
        pool.close()
        raise


def open_pool(config: Config, backend: str, workers: int | None) -> Pool:
    """As many envs as the config has slots, and its ways with what goes wrong."""
    return Pool(
        env_factory(config),
        config.num_envs,
        backend=backend,
        workers=workers,
        seed=config.seed,
        infos="final",
        isolate_rng=config.isolate_rng,
        on_fault=config.on_fault,
        step_timeout=config.step_timeout,
        reset_timeout=config.reset_timeout,
    )


def _around(pool: Pool, config: Config, device: str) -> Parts:
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
    if kind != "cuda":
        raise OptionError(f"device is {name!r}: choose cpu, cuda, or cuda:1 and so on")
    count = torch.cuda.device_count() if torch.cuda.is_available() else 0
    if int(number or 0) >= count:
        raise OptionError(
            f"device is {name!r}, and torch sees {count} GPUs here: choose device: cpu"
        )
    return name
