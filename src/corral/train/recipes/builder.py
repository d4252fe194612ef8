"""A config -> what a run is made of, by the learner that the config names."""

from __future__ import annotations

from corral.train.recipes import parts
from corral.train.recipes.config import Config
from corral.train.recipes.parts import Parts


def build(config: Config) -> Parts:
    """Open the pool and make a learner for its spaces."""
    if config.learner == "sb3_ppo":
        # Imported here: the other learner needs no Stable-Baselines3.
        from corral.train.recipes import sb3_parts

        return sb3_parts.build(config)
    return parts.build(config)
