"""Ant-v5: a robot with four legs and eight joints learns to walk, in MuJoCo."""

from __future__ import annotations

from pydantic import Field

from corral.learners.ppo import PPOConfig
from corral.train.recipes import config as base
from corral.train.recipes.builder import build

__all__ = ["Config", "build"]


class Config(base.Config):
    """Walks a little after its steps; ten times as many make it run."""

    recipe: str = "ant"
    env: str = "Ant-v5"
    num_envs: int = Field(default=8, ge=1)
    total_steps: int = Field(default=300_000, ge=1)
    evaluate_episodes: int = Field(default=8, ge=1)
    final_episodes: int = Field(default=24, ge=0)
    normalise_obs: bool = True
    normalise_reward: bool = True
    ppo: PPOConfig = PPOConfig(
        lr=3e-4,
        n_steps=256,
        batch_size=256,
        n_epochs=10,
        gamma=0.99,
        gae_lambda=0.95,
    )
