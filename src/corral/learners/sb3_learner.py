"""SB3's PPO and sb3-contrib's MaskablePPO, named without importing either library."""

from __future__ import annotations

from typing import Any, ClassVar

from corral.errors import OptionError
from corral.learners.ppo_learner import PPOSettings
from corral.learners.protocol import Learner, LearnerSetup


class SB3Learner(PPOSettings):
    """Stable-Baselines3's PPO."""

    title = "Stable-Baselines3's PPO"
    packages: ClassVar[tuple[str, ...]] = ("torch", "sb3")
    needs_pool = True

    @classmethod
    def make(cls, setup: LearnerSetup, **options: Any) -> Learner:
        """Import the library and make the learner; `options` as for `SB3PPO`."""
        cls._check(setup)
        from corral.learners.sb3.ppo import SB3PPO

        return SB3PPO(setup, **options)

    @classmethod
    def _check(cls, setup: LearnerSetup) -> None:
        """Raise OptionError for settings that the library has no place for."""
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


class SB3MaskableLearner(SB3Learner):
    """MaskablePPO of sb3-contrib, for envs that allow some of their actions."""

    title = "sb3-contrib's MaskablePPO"
    packages = ("torch", "sb3", "sb3-contrib")
    uses_masks = True

    @classmethod
    def make(cls, setup: LearnerSetup, **options: Any) -> Learner:
        """Import the libraries and make the learner; `options` as for `SB3PPO`."""
        cls._check(setup)
        from corral.learners.sb3.maskable import SB3MaskablePPO

        return SB3MaskablePPO(setup, **options)
