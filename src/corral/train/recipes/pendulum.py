"""Pendulum-v1: swing a pendulum up and hold it there, with a continuous torque.

A discount of 0.95 sees far enough; with 0.9 it swings once more than it has to.
Rewards are scaled, since costs of up to 16 a step make a value loss whose gradient
would leave nothing of the policy's when both are cut to one length.
"""

from __future__ import annotations

from pydantic import Field

from corral.learners.ppo import PPOConfig
from corral.train.recipes import config as base
from corral.train.recipes.builder import build

__all__ = ["Config", "build"]


class Config(base.Config):
    """Holds it up (-200) within its steps."""

    recipe: str = "pendulum"
    env: str = "Pendulum-v1"
    num_envs: int = Field(default=8, ge=1)
    total_steps: int = Field(default=100_000, ge=1)
    normalise_reward: bool = True
    ppo: PPOConfig = PPOConfig(
        lr=1e-3,
        lr_schedule="linear",
        n_steps=256,
        batch_size=64,
        n_epochs=10,
        gamma=0.95,
        gae_lambda=0.95,
        activation="relu",
    )
