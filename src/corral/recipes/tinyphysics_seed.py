"""TinyPhysics with cautious settings: large batches, small steps.

Those of the write-up that the recipe began with: 100,000 steps of eight cars for each
update, a learning rate of 1e-5, a clip range of 0.1, a deviation of 0.05, four epochs.
"""

from __future__ import annotations

import math

from pydantic import Field

from corral.learners.ppo import PPOConfig
from corral.recipes import tinyphysics
from corral.recipes.tinyphysics import build

__all__ = ["Config", "build"]


class Config(tinyphysics.Config):
    """The same car, cautiously."""

    recipe: str = "tinyphysics_seed"
    num_envs: int = Field(default=8, ge=1)
    ppo: PPOConfig = PPOConfig(
        lr=1e-5,
        n_steps=12_500,
        batch_size=10_000,
        n_epochs=4,
        gamma=0.99,
        gae_lambda=0.95,
        clip_range=0.1,
        ent_coef=0.001,
        log_std_init=math.log(0.05),
        hidden=(128, 128, 128, 128),
    )
