"""Stable-Baselines3's PPO as a run's learner, named without importing that library."""

from __future__ import annotations

from typing import Any

from corral.errors import OptionError
from corral.learners.ppo_learner import PPOSettings
from corral.learners.protocol import Learner, LearnerSetup


class SB3Learner(PPOSettings):
    """Stable-Baselines3's PPO."""

    title = "Stable-Baselines3's PPO"
    packages = ("torch", "sb3")
    needs_pool = True

    @classmethod
    def make(cls, setup: LearnerSetup, **options: Any) -> Learner:
        """Import the library and make the learner; `options` as for `SB3PPO`."""
        if setup.mode != "sync":
            raise OptionError(
                f"mode is {setup.mode!r}, and Stable-Baselines3 collects in step: set "
                "it to sync, or learner to ppo"
            )
        if setup.settings.memory != "none":
            raise OptionError(
                f"ppo.memory is {setup.settings.memory!r}, and Stable-Baselines3's PPO "
                "has none: set it to none, or learner to ppo"
            )
        from corral.learners.sb3.ppo import SB3PPO

        return SB3PPO(setup, **options)
