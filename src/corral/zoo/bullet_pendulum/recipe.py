"""A wheeled pendulum in PyBullet, with Stable-Baselines3's PPO; slots share processes.

Fifty steps a second: what a step does shows within a few, so a small discount will do.
"""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from corral.learners.ppo import PPOConfig
from corral.train.recipes import config as base
from corral.train.recipes.builder import build

__all__ = ["Config", "build"]


class Config(base.Config):
    """Balances to the limit of 300 steps."""

    recipe: str = "bullet_pendulum"
    learner: Literal["ppo", "sb3_ppo"] = "sb3_ppo"
    env: str = "corral.zoo.bullet_pendulum:make"
    num_envs: int = Field(default=8, ge=1)
    total_steps: int = Field(default=100_000, ge=1)
    evaluate_episodes: int = Field(default=20, ge=1)
    final_episodes: int = Field(default=20, ge=0)
    normalise_obs: bool = True
    ppo: PPOConfig = PPOConfig(
        lr=1e-3,
        lr_schedule="linear",
        n_steps=256,
        batch_size=256,
        n_epochs=10,
        gamma=0.98,
        gae_lambda=0.95,
    )
