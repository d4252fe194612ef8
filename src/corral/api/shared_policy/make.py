"""How one policy for all agents gets its envs; importing this imports no torch."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal, overload

from corral.api.pettingzoo.make import open_team_pool
from corral.api.shared_policy.gymnasium_env import SharedVectorEnv
from corral.api.shared_policy.pool import SharedPool
from corral.engine.adapters.factories import EnvSource
from corral.engine.keywords import checked_keywords
from corral.engine.pool import Pool
from corral.errors import OptionError

if TYPE_CHECKING:
    from corral.api.shared_policy.sb3_env import SharedVecEnv

APIS = ("gymnasium", "sb3")


@overload
def make_shared_policy(
    env: EnvSource,
    num_envs: int | None = ...,
    *,
    api: Literal["gymnasium"] = ...,
    pad: bool = ...,
    seed: int | None = ...,
    copy: bool = ...,
    **options: Any,
) -> SharedVectorEnv: ...


@overload
def make_shared_policy(
    env: EnvSource,
    num_envs: int | None = ...,
    *,
    api: Literal["sb3"],
    pad: bool = ...,
    seed: int | None = ...,
    copy: bool = ...,
    **options: Any,
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
    """Every agent of every environment as one row of a vector env.

    For one policy that all agents share. With agents `a` and `b` the rows are a and b
    of the first env, a and b of the second, and so on::

        envs = corral.make_shared_policy(simple_spread_v3.parallel_env, num_envs=8)
        observations, infos = envs.reset(seed=0)        # 24 rows of 3 agents each
        envs.valid                                      # False: nobody there

    An agent's part is the row's episode. Once it has ended, its row is filler (zeros,
    `valid` False) until the env starts anew, which it does when the part of the last
    agent has ended, in the same step.

    Args:
        env: a factory of ParallelEnvs, or of AECEnvs that are parallelizable,
            "module:function", or a list with one of those per env.
        num_envs: how many envs; known already when a list of factories is given.
        api: "gymnasium" for a `gymnasium.vector.VectorEnv`, "sb3" for a VecEnv of
            Stable-Baselines3's. `envs.pool` of either is what a `corral.Collector`
            takes.
        pad: give agents with different spaces the widest: numbers filled up with zeros
            and one more for each kind of agent, the most actions that anybody has.
        seed: the root of every episode's seed; `reset(seed=s)` gives env i `s + i`.
        copy: False to get views where nothing has to be changed ("gymnasium").
        **options: everything else `corral.Pool` takes.
    """
    if api not in APIS:
        raise OptionError(f"api is {api!r}; choose one of {', '.join(APIS)}")
    if api == "sb3" and not copy:
        raise OptionError(
            "copy=False has no meaning with api='sb3': Stable-Baselines3 keeps what it "
            "is given, so it is always given copies"
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
    """A pool whose slots are agents; arguments as for `make_shared_policy`."""
    pool = open_team_pool(env, num_envs, parallel=True, **options)
    try:
        return SharedPool(pool, pad)
    except BaseException:
        pool.close()
        raise
