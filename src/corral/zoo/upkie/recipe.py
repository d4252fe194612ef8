"""Upkie, a robot on two wheels, with Stable-Baselines3's PPO; a process for each slot.

The env asks for that: two such robots in one process break each other. Episodes begin
upright and at rest at first, and further and further from that, as far as evaluations
always do.
"""

from __future__ import annotations

from typing import Any

from pydantic import NonNegativeInt

from corral.errors import OptionError
from corral.train.recipes.config import RunConfig
from corral.train.run import parts
from corral.train.run.parts import Parts


class Config(RunConfig):
    """The settings of the recipe; `env_kwargs.init_rand` is the end of its ramp."""

    curriculum_steps: NonNegativeInt = 30_000
    """env steps until episodes begin as far off balance as in evaluations"""


def build(config: Config) -> Parts:
    """Build a run as others are, with a curriculum."""
    if config.learner != "sb3_ppo":
        raise OptionError(
            "the curriculum of recipe upkie is for learner: sb3_ppo; for another "
            "learner write a config of your own with env: corral.zoo.upkie:make"
        )

    def curriculum(venv: Any, steps: int) -> None:
        venv.env_method("update_init_rand", **init_rand_at(config, steps))

    return parts.build(config, curriculum=curriculum)


def init_rand_at(config: Config, steps: int) -> dict[str, float]:
    """Return how far off balance episodes begin after this many steps."""
    widest: dict[str, float] = config.env_kwargs.get("init_rand") or {}
    ramp = config.curriculum_steps
    part = min(1.0, steps / ramp) if ramp else 1.0
    return {name: part * most for name, most in widest.items()}
