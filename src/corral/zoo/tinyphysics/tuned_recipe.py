"""TinyPhysics with settings that go far: many cars, small batches, larger steps.

With the official model a million of them cost half of what the PID controller does:
`benchmarks/tinyphysics_learning.py`.
"""

from __future__ import annotations

import math

from pydantic import Field

from corral.learners.ppo import PPOConfig
from corral.zoo.tinyphysics import recipe as tinyphysics
from corral.zoo.tinyphysics.recipe import build

__all__ = ["Config", "build"]


class Config(tinyphysics.Config):
    """The same car, boldly."""

    recipe: str = "tinyphysics_tuned"
    num_envs: int = Field(default=64, ge=1)
    ppo: PPOConfig = PPOConfig(
        lr=6e-4,
        lr_schedule="linear",
        n_steps=100,
        batch_size=1_600,
        n_epochs=6,
        # A turn of the wheel is over and done with after a second or two.
        gamma=0.95,
        gae_lambda=0.95,
        clip_range=0.2,
        log_std_init=math.log(0.15),
        # Costs are squares of what is seen: a tanh critic explains none of them.
        activation="relu",
    )
