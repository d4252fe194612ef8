"""A grid world with agents on the ground and in the air, with SB3's PPO.

They look for a target that moves, and keep it in view without being seen by it. Two
views of the same envs: one policy that moves all agents at once (`view: flattened`), or
one policy that every agent asks for itself (`view: shared`), whose observations are
padded, since agents in the air see more than those on the ground.
"""

from __future__ import annotations

from typing import Literal

from corral.engine.pool import Pool
from corral.errors import OptionError
from corral.train.recipes.config import RunConfig
from corral.train.run import parts
from corral.train.run.parts import Parts


class Config(RunConfig):
    """The settings of the recipe."""

    view: Literal["flattened", "shared"] = "flattened"
    """flattened: all agents as one; shared: one policy for each of them"""


def build(config: Config) -> Parts:
    """Build a run of Stable-Baselines3; the shared view has a VecEnv of its own."""
    if config.learner != "sb3_ppo":
        raise OptionError(
            "recipe grid_world is for learner: sb3_ppo; for Corral's PPO give a "
            "collector the pool of corral.make_shared_policy, or write a config of "
            "your own with env: corral.zoo.grid_world.training_env:make"
        )
    kwargs = {**config.env_kwargs, "view": config.view}
    config = config.model_copy(update={"env_kwargs": kwargs})
    return parts.build(config) if config.view == "flattened" else _shared(config)


def _shared(config: Config) -> Parts:
    from corral.api.shared_policy.pool import SharedPool
    from corral.api.shared_policy.sb3_env import SharedVecEnv
    from corral.learners.sb3.policy import SB3Policy

    def make_vec_env(pool: Pool) -> SharedVecEnv:
        return SharedVecEnv(SharedPool(pool, pad=True))

    return parts.build(
        config,
        make_vec_env=make_vec_env,
        policy=lambda learner: learner.venv.shared.for_envs(
            SB3Policy(learner.predictor)
        ),
    )
