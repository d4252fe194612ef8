"""Upkie, a robot on two wheels, with Stable-Baselines3's PPO; a process for each slot.

That is found out, not asked for: two such robots in one process break each other, as
the probe of `isolation: auto` sees. Episodes begin upright and at rest at first, and
further and further from that, as far as evaluations always do.
"""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field

from corral.errors import OptionError
from corral.learners.ppo import PPOConfig
from corral.train.recipes import config as base
from corral.train.recipes import sb3_parts
from corral.train.recipes.parts import Parts

__all__ = ["Config", "build"]


class Config(base.Config):
    """Balances to the limit of 300 steps."""

    recipe: str = "upkie"
    learner: Literal["ppo", "sb3_ppo"] = "sb3_ppo"
    env: str = "corral.zoo.upkie:make"
    env_kwargs: dict[str, Any] = Field(
        default={"init_rand": {"pitch": 0.2, "v_x": 0.1, "omega_y": 0.1}},
        description="init_rand: how far from upright and at rest episodes begin",
    )
    num_envs: int = Field(default=4, ge=1)
    total_steps: int = Field(default=100_000, ge=1)
    curriculum_steps: int = Field(
        default=30_000, ge=0, description="until episodes begin as far off as that"
    )
    evaluate_episodes: int = Field(default=20, ge=1)
    final_episodes: int = Field(default=20, ge=0)
    normalise_obs: bool = True
    ppo: PPOConfig = PPOConfig(
        lr=1e-3,
        lr_schedule="linear",
        n_steps=512,
        batch_size=256,
        n_epochs=10,
        gamma=0.99,
        gae_lambda=0.95,
    )


def build(config: Config) -> Parts:
    """As other runs, and with a curriculum."""
    if config.learner != "sb3_ppo":
        raise OptionError(
            "the curriculum of recipe upkie is for learner: sb3_ppo; for another "
            "learner write a config of your own with env: corral.zoo.upkie:make"
        )

    def curriculum(venv: Any, steps: int) -> None:
        venv.env_method("update_init_rand", **init_rand_at(config, steps))

    return sb3_parts.build(config, curriculum=curriculum)


def init_rand_at(config: Config, steps: int) -> dict[str, float]:
    """How far off episodes begin after so many steps."""
    widest: dict[str, float] = config.env_kwargs.get("init_rand") or {}
    ramp = config.curriculum_steps
    part = min(1.0, steps / ramp) if ramp else 1.0
    return {name: part * most for name, most in widest.items()}
