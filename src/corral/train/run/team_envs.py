"""The envs of a run whose learner trains teams."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import gymnasium

from corral.core import Factory
from corral.engine.adapters.multi_agent import PettingZooAdapter
from corral.engine.adapters.pettingzoo import multi_env
from corral.errors import OptionError


@dataclass(frozen=True, slots=True)
class TeamFactory:
    """Makes a PettingZoo env as a team; agents that may act at once do.

    Attributes:
        learner: Its name in the config.
    """

    make: Factory
    learner: str

    def __call__(self) -> PettingZooAdapter:
        """Make it; OptionError if it has a single agent."""
        env = self.make()
        if isinstance(env, gymnasium.Env):
            env.close()
            raise OptionError(
                f"learner: {self.learner} trains teams, and {env} has one agent; use "
                "learner: ppo, or an env of PettingZoo's"
            )
        metadata: Any = getattr(env, "metadata", None) or {}
        return multi_env(env, parallel=bool(metadata.get("is_parallelizable")))

    @property
    def __wrapped__(self) -> Factory:
        """What `inspect.signature` describes: whether the env takes a render_mode."""
        return self.make
