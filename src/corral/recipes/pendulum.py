"""Pendulum-v1: swing a pendulum up and hold it there, with a continuous torque.

Rewards are costs that come at every step, so a discount of 0.9 sees far enough.
"""

from __future__ import annotations

from pydantic import Field

from corral.learners.ppo import PPOConfig
from corral.recipes import config as base
from corral.recipes.parts import build

__all__ = ["Config", "build"]


class Config(base.Config):
    """Holds it up (-200) within its steps."""

    recipe: str = "pendulum"
    env: str = "Pendulum-v1"
    num_envs: int = Field(default=4, ge=1)
    total_steps: int = Field(default=100_000, ge=1)
    ppo: PPOConfig = PPOConfig(
        lr=1e-3,
        n_steps=1024,
        batch_size=64,
        n_epochs=10,
        gamma=0.9,
        gae_lambda=0.95,
    )
