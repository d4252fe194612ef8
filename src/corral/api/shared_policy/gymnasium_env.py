"""One policy for all agents, as a Gymnasium vector env."""

from __future__ import annotations

from typing import Any, cast

import numpy as np
from gymnasium.vector import AutoresetMode
from gymnasium.vector.utils import batch_space
from numpy.typing import NDArray

from corral.api.gymnasium.env import CorralVectorEnv
from corral.api.shared_policy.pool import SharedPool
from corral.engine.pool import Pool
from corral.errors import OptionError


class SharedVectorEnv(CorralVectorEnv):
    """Every agent of every env as one row of a `gymnasium.vector.VectorEnv`.

    Made by `corral.make_shared_policy`. Row i is agent `i % agents` of env
    `i // agents`. `valid` is False for rows whose agent is absent: their observation is
    zeros, their reward 0, their action ignored.
    """

    def __init__(self, shared: SharedPool, copy: bool = True) -> None:
        batched = batch_space(shared.spec.observation_space, shared.num_envs)
        # A SharedPool has all methods of a pool that a vector env calls.
        super().__init__(cast(Pool, shared), batched, AutoresetMode.SAME_STEP, copy)
        self.shared = shared
        self.possible_agents = shared.team.agents

    @property
    def agents_per_env(self) -> int:
        """The number of rows of each env."""
        return self.shared.agents

    @property
    def action_masks(self) -> NDArray[np.bool_] | None:
        """The valid actions, `(rows, actions)`; None if actions are not Discrete."""
        return self.shared.action_masks

    def _seeds(self, seed: Any) -> list[int | None] | None:
        """Env i gets `seed + i`, or the i-th of a list."""
        if seed is None:
            return None
        agents, envs = self.shared.agents, self.shared.pool.num_envs
        if isinstance(seed, (int, np.integer)):
            return [int(seed) + row // agents for row in range(self.num_envs)]
        if len(seed) != envs:
            raise OptionError(
                f"{len(seed)} seeds for {envs} envs; pass one for each env, not for "
                "each agent"
            )
        return [one for one in seed for _ in range(agents)]

    def call_wait(self, timeout: float | None = None) -> tuple[Any, ...]:
        """Wait for the calls that were sent; all rows of an env get its result."""
        answers = super().call_wait(timeout)
        return tuple(one for one in answers for _ in range(self.shared.agents))

    def render(self) -> tuple[Any, ...] | None:
        """Render every env, one frame each."""
        return super().call("render")[:: self.shared.agents]
