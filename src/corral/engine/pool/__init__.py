"""A pool sends actions to slots and receives what came back: the core under every API.

    with corral.Pool(make_env, num_envs=32, seed=0) as pool:
        pool.send_reset()
        step = pool.recv(min_slots=16)            # first ready, slots ascending
        pool.send(actions, slots=step.slots)

A slot has at most one pending command. A pool belongs to the thread and process that
made it.
"""

from corral.engine.pool.options import (
    ApiOptions,
    PoolOptions,
    check_wrappers,
    info_choice,
    same_spaces,
)
from corral.engine.pool.pool import Pool
from corral.engine.pool.state import Question
from corral.engine.pool.stats import Stats

__all__ = ["ApiOptions", "Pool", "PoolOptions", "Question", "Stats"]
__all__ += ["check_wrappers", "info_choice", "same_spaces"]
