"""`corral.make_multi`, and the pool under it."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

from corral.api.pettingzoo.env import MultiEnv
from corral.core import Autoreset, EnvSpec
from corral.engine.adapters.factories import EnvSource, Wrap
from corral.engine.adapters.pettingzoo import multi_env
from corral.engine.adapters.team import TEAM_KEY
from corral.engine.keywords import checked_keywords
from corral.engine.pool import ApiOptions, Pool, PoolOptions, same_spaces
from corral.errors import OptionError, SpacesDiffer


@checked_keywords(onward=Pool)
def make_multi(
    env: EnvSource,
    num_envs: int | None = None,
    *,
    autoreset: Autoreset = "same_step",
    by: str = "agent",
    parallel: bool = False,
    state: bool = False,
    observe: str = "acting",
    copy: bool = True,
    **options: Any,
) -> MultiEnv:
    """Make many PettingZoo environments.

    Example::

        envs = corral.make_multi(simple_spread_v3.parallel_env, num_envs=8)
        obs, infos = envs.reset(seed=0)
        obs["agent_0"]                       # (8, 18)

    Args:
        env: a factory of ParallelEnvs or AECEnvs, "module:function", or a list with one
            of those per slot.
        num_envs: number of envs; not needed with a list of factories.
        autoreset: what happens when the last agent has ended.
        by: "agent" for dicts of agent -> `(slots, ...)`, "group" for dicts of group ->
            `(slots, agents, ...)`; a group is agents with equal spaces.
        parallel: turn an AECEnv whose agents may act at once into a ParallelEnv.
        state: whether to read `env.state()` in every step.
        observe: (AEC) the agents that are observed: "acting", or "all" alive.
        copy: False to get views into the block where possible.
        **options: everything that `corral.Pool` takes.
    """
    adapt = functools.partial(
        multi_env, parallel=parallel, state=state, observe=observe
    )
    pool = open_team_pool(env, num_envs, adapt, autoreset=autoreset, **options)
    try:
        return MultiEnv(pool, by, copy)
    except OptionError:
        pool.close()
        raise


def open_team_pool(
    env: EnvSource,
    num_envs: int | None = None,
    adapt: Wrap = multi_env,
    *,
    wrappers: Sequence[Wrap] = (),
    **options: Any,
) -> Pool:
    """Open a pool of envs with several agents each, which `adapt` gives adapters."""
    return Pool.with_options(
        env,
        num_envs,
        PoolOptions(wrappers=(*wrappers, adapt), **options),
        ApiOptions(agree=same_team, empty_finals=False),
    )


def same_team(specs: list[EnvSpec]) -> EnvSpec:
    """The first spec, if all slots have its agents and their spaces."""
    first = specs[0]
    for slot, spec in enumerate(specs):
        ours, theirs = spec.metadata[TEAM_KEY].agents, first.metadata[TEAM_KEY].agents
        if ours != theirs:
            raise SpacesDiffer(
                f"slot {slot} has other possible_agents than slot 0: {list(ours)} "
                f"instead of {list(theirs)}"
            )
    return same_spaces(specs)
