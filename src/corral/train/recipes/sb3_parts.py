"""What a run of Stable-Baselines3's PPO is made of.

A recipe names `learner: sb3_ppo`; everything else of a run is as with Corral's own: the
folder, metrics, checkpoints, evaluations on envs of their own, videos, the report.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from corral.api.sb3.env import CorralVecEnv
from corral.engine.pool import Pool
from corral.errors import OptionError
from corral.learners.sb3.collector import Curriculum, SB3Collector
from corral.learners.sb3.policy import SB3Policy
from corral.learners.sb3.ppo import SB3PPO
from corral.train.recipes import parts as plain
from corral.train.recipes.config import Config

OpenPool = Callable[[Config, str, int | None], Pool]


@dataclass(slots=True)
class SB3Parts(plain.Parts):
    """They work together; close the pool when done."""

    model: SB3PPO
    """The learner, by its own type."""
    opener: OpenPool = plain.open_pool

    def normalisers(self) -> dict[str, Any]:
        """What VecNormalize knows, to be saved."""
        return self.model.scales.state_dict()

    def load_normalisers(self, state: dict[str, Any]) -> None:
        """Go on from what was saved."""
        self.model.scales.load_state_dict(state)

    def open_pool(self, backend: str, workers: int | None) -> Pool:
        """Another one like `pool`, for envs that do not disturb it."""
        return self.opener(self.config, backend, workers)

    def lone_policy(self) -> Any:
        """One row at a time."""
        if type(self.model.policy) is SB3Policy:
            return SB3Policy(self.model, deterministic=True, chunk=1)
        return self.model.policy.deterministic()

    def export(self, folder: Path) -> list[Path]:
        """The model and its VecNormalize, as Stable-Baselines3 saves them."""
        return self.model.export(folder, "best")


def build(
    config: Config,
    *,
    make_vec_env: Callable[[Pool], Any] = CorralVecEnv,
    policy: Callable[[SB3PPO], Any] | None = None,
    curriculum: Curriculum | None = None,
    opener: OpenPool = plain.open_pool,
) -> SB3Parts:
    """Open the pool and make a learner for its spaces.

    Args:
        config: with `learner: sb3_ppo`.
        make_vec_env: makes the VecEnv that Stable-Baselines3 steps from the pool.
        policy: how evaluations ask the learner, where its rows are not the pool's.
        curriculum: `curriculum(venv, steps)`, called before every rollout.
        opener: how pools are opened, where they are of another kind.
    """
    if config.mode != "sync":
        raise OptionError(
            f"mode is {config.mode!r}, and Stable-Baselines3 collects in step: set it "
            "to sync, or learner to ppo"
        )
    torch.set_num_threads(config.threads)
    device = plain.device_for(config.device)
    pool = opener(config, config.backend, config.workers)
    try:
        learner = SB3PPO(
            make_vec_env(pool),
            config.ppo,
            seed=config.seed,
            total_steps=config.total_steps,
            device=device,
            normalise_obs=config.normalise_obs,
            normalise_reward=config.normalise_reward,
        )
        if policy is not None:
            learner.policy = policy(learner)
        collector = SB3Collector(learner, curriculum)
    except BaseException:
        pool.close()
        raise
    return SB3Parts(
        config=config,
        pool=pool,
        learner=learner,
        collector=collector,
        obs_norm=None,
        reward_norm=None,
        model=learner,
        opener=opener,
    )
