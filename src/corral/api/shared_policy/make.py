"""`corral.make_shared_policy`; importing this module does not import torch."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any, Literal, cast, overload

import numpy as np
from gymnasium.vector import AutoresetMode
from gymnasium.vector.utils import batch_space
from numpy.typing import NDArray

from corral.api.async_calls import seeds_for
from corral.api.gymnasium.env import CorralVectorEnv
from corral.api.pettingzoo.env import open_team_pool
from corral.api.shared_policy.pool import SharedPool
from corral.engine.adapters.factories import EnvSource
from corral.engine.adapters.pettingzoo import TURNS, multi_env
from corral.engine.executors.contract import closed_on_error
from corral.engine.keywords import check_choice, checked_keywords
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
        pool = self.shared.pool
        seeds = seeds_for(seed, pool.num_envs, pool.repeat)
        return seeds and [one for one in seeds for _ in range(self.shared.agents)]

    def call_wait(self, timeout: float | None = None) -> tuple[Any, ...]:
        """Wait for the calls that were sent; all rows of an env get its result."""
        answers = super().call_wait(timeout)
        return tuple(one for one in answers for _ in range(self.shared.agents))

    def render(self) -> tuple[Any, ...] | None:
        """Render every env, one frame each."""
        return super().call("render")[:: self.shared.agents]


if TYPE_CHECKING:
    from corral.api.shared_policy.sb3_env import SharedVecEnv


@overload
def make_shared_policy(
    env: EnvSource,
    num_envs: int | None = ...,
    *,
    api: Literal["gymnasium"] = ...,
    **options: Any,
) -> SharedVectorEnv: ...


@overload
def make_shared_policy(
    env: EnvSource, num_envs: int | None = ..., *, api: Literal["sb3"], **options: Any
) -> SharedVecEnv: ...


@checked_keywords(
    onward=Pool,
    refused={
        "autoreset": "agents of one env share its restarts, which happen in the step "
        "that ends the last of them"
    },
)
def make_shared_policy(
    env: EnvSource,
    num_envs: int | None = None,
    *,
    api: str = "gymnasium",
    pad: bool = False,
    seed: int | None = None,
    copy: bool = True,
    **options: Any,
) -> Any:
    """Make a vector env with one row for every agent of every environment.

    For one policy that all agents share. With agents `a` and `b` the rows are a and b
    of the first env, a and b of the second, and so on::

        envs = corral.make_shared_policy(simple_spread_v3.parallel_env, num_envs=8)
        observations, infos = envs.reset(seed=0)        # 24 rows of 3 agents each
        envs.valid                                      # False: agent absent

    A row's episode lasts as long as its agent. After that its rows are padding (zeros,
    `valid` False) until the env restarts, which it does in the step that ends its last
    agent.

    Where agents must act in turn, a step is one agent's turn: every living agent has a
    row with what it sees, its info says whether it is `acting`, and actions of others
    are ignored.

    Args:
        env: a factory of ParallelEnvs or AECEnvs, "module:function", or a list with
            one of those per env.
        num_envs: number of envs; not needed with a list of factories.
        api: "gymnasium" for a `gymnasium.vector.VectorEnv`, "sb3" for a VecEnv of
            Stable-Baselines3's. A `corral.Collector` takes `envs.pool` of either.
        pad: give agents with different spaces the widest: observations padded with
            zeros and a one-hot number of the group, the largest number of actions.
        seed: the root of all seeds; `reset(seed=s)` gives env i `s + i`.
        copy: False to get views where possible ("gymnasium").
        **options: everything else that `corral.Pool` takes.
    """
    check_choice("api", api, ("gymnasium", "sb3"))
    if api == "sb3" and not copy:
        raise OptionError(
            "copy=False has no meaning with api='sb3': Stable-Baselines3 keeps "
            "observations, so it always gets copies"
        )
    shared = open_shared_pool(env, num_envs, pad=pad, seed=seed, **options)
    if api == "gymnasium":
        return SharedVectorEnv(shared, copy)
    from corral.api.shared_policy.sb3_env import SharedVecEnv

    envs = SharedVecEnv(shared)
    if seed is not None:
        envs.seed(seed)
    return envs


def open_shared_pool(
    env: EnvSource, num_envs: int | None = None, *, pad: bool = False, **options: Any
) -> SharedPool:
    """Open a pool whose slots are agents; arguments as for `make_shared_policy`."""
    adapt = functools.partial(multi_env, parallel=TURNS)
    pool = open_team_pool(env, num_envs, adapt, **options)
    with closed_on_error(pool):
        return SharedPool(pool, pad)
