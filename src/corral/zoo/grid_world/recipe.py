"""A grid world with agents on the ground and in the air, with SB3's PPO.

They look for a target that moves, and keep it in view without being seen by it. Two
views of the same envs: one policy that moves all agents at once (`view: flattened`), or
one policy that every agent asks for itself (`view: shared`), whose observations are
padded, since agents in the air see more than those on the ground.
"""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field

from corral.engine.adapters.team import TEAM_KEY
from corral.errors import OptionError
from corral.learners.ppo import PPOConfig
from corral.train.recipes import config as base
from corral.train.recipes import sb3_parts
from corral.train.recipes.parts import Parts

__all__ = ["Config", "build"]


class Config(base.Config):
    """Learns to keep the target in view, and out of its sight."""

    recipe: str = "grid_world"
    learner: Literal["ppo", "sb3_ppo"] = "sb3_ppo"
    env: str = "corral.zoo.grid_world.training_env:make"
    env_kwargs: dict[str, Any] = Field(
        default={"size": "small", "ground": 2, "air": 1},
        description="of the grid world: size, ground, air, goal, max_steps, ...",
    )
    view: Literal["flattened", "shared"] = Field(
        default="flattened",
        description="flattened: all agents as one; shared: one policy for each of them",
    )
    num_envs: int = Field(default=8, ge=1)
    total_steps: int = Field(default=250_000, ge=1)
    evaluate_episodes: int = Field(default=20, ge=1)
    normalise_obs: bool = True
    video: Literal["end", "evaluations", "never"] = Field(
        default="evaluations", description="of slot 0, at every evaluation"
    )
    ppo: PPOConfig = PPOConfig(
        lr=3e-4,
        n_steps=256,
        batch_size=256,
        n_epochs=10,
        gamma=0.99,
        gae_lambda=0.95,
        ent_coef=0.01,
    )


def build(config: Config) -> Parts:
    """As other runs of Stable-Baselines3; the shared view has a VecEnv of its own."""
    if config.learner != "sb3_ppo":
        raise OptionError(
            "recipe grid_world is for learner: sb3_ppo; for Corral's PPO give a "
            "collector the pool of corral.make_shared_policy, or write a config of "
            "your own with env: corral.zoo.grid_world.training_env:make"
        )
    kwargs = {**config.env_kwargs, "view": config.view}
    config = config.model_copy(update={"env_kwargs": kwargs})
    if config.view == "flattened":
        return sb3_parts.build(config)
    return _shared(config)


def _shared(config: Config) -> Parts:
    from corral.api.shared_policy.pool import SharedPool
    from corral.api.shared_policy.sb3_env import SharedVecEnv
    from corral.learners.sb3.policy import SB3Policy

    parts = sb3_parts.build(
        config,
        make_vec_env=lambda pool: SharedVecEnv(SharedPool(pool, pad=True)),
        policy=lambda learner: learner.venv.shared.for_envs(SB3Policy(learner)),
    )
    # A step of an env is one of each agent to the learner, whose schedules count them.
    agents = len(parts.pool.spec.metadata[TEAM_KEY].agents)
    parts.model.total_steps = config.total_steps * agents
    return parts
