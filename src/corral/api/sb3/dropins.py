"""Stable-Baselines3's two vector envs, with its constructor arguments, on our workers.

Both can be given to its `make_vec_env(..., vec_env_cls=..., vec_env_kwargs=...)`.
"""

from __future__ import annotations

import multiprocessing
from collections.abc import Sequence
from typing import Any

from corral.api.pool_env import sent_raw
from corral.api.sb3 import env_calls as reach
from corral.api.sb3.env import CorralVecEnv
from corral.api.sb3.make import FIXED, open_pool
from corral.core import Factory
from corral.engine.adapters.factories import one_per_slot
from corral.engine.keywords import checked_keywords
from corral.engine.pool import Pool


class _LenientVecEnv(CorralVecEnv):
    """Passes actions of a wrong shape to the env, as Stable-Baselines3 does."""

    _syntax = "sb3"

    def _sent_raw(self, actions: Any) -> bool:
        return not isinstance(actions, dict) and sent_raw(self.pool, lambda: actions)


class SubprocVecEnv(_LenientVecEnv):
    """`stable_baselines3.common.vec_env.SubprocVecEnv`, always in worker processes.

    As many processes as usable cores, each with its share of the slots;
    `isolation="slot"` gives every slot a process of its own.

    Args:
        env_fns: one factory per slot.
        start_method: checked, but workers always start in a new interpreter.
        **options: anything else that `corral.Pool` takes.
    """

    @checked_keywords(
        onward=Pool,
        refused={
            **FIXED,
            "backend": "it always uses processes; use DummyVecEnv, or corral.make_sb3",
        },
    )
    def __init__(
        self,
        env_fns: Sequence[Factory],
        start_method: str | None = None,
        **options: Any,
    ) -> None:
        multiprocessing.get_context(start_method)  # ValueError for an unknown one
        options["innermost"] = (reach.patched, reach.own_copy)
        options["own_processes"] = True
        fns = one_per_slot(env_fns)
        super().__init__(open_pool(fns, backend="process", syntax="sb3", **options))


class DummyVecEnv(_LenientVecEnv):
    """`stable_baselines3.common.vec_env.DummyVecEnv`, always in the caller's thread.

    Args:
        env_fns: one factory per slot.
        **options: anything else that `corral.Pool` takes.
    """

    @checked_keywords(
        onward=Pool,
        refused={
            **FIXED,
            "backend": "it always runs here; use SubprocVecEnv, or corral.make_sb3",
        },
    )
    def __init__(self, env_fns: Sequence[Factory], **options: Any) -> None:
        fns = one_per_slot(env_fns)
        super().__init__(open_pool(fns, backend="serial", syntax="sb3", **options))
