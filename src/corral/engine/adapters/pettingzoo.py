"""The adapters of PettingZoo's envs, chosen without importing PettingZoo."""

from __future__ import annotations

import importlib
from contextlib import suppress
from typing import Any

import gymnasium

from corral.engine.adapters.aec import AecAdapter
from corral.engine.adapters.factories import has_agents
from corral.engine.adapters.multi_agent import OBSERVE_CHOICES
from corral.engine.adapters.parallel import ParallelAdapter
from corral.engine.adapters.turn_steps import TurnSteps
from corral.engine.keywords import check_choice
from corral.errors import OptionError

MultiAdapter = ParallelAdapter | AecAdapter
# The value of `parallel` that takes every env.
TURNS = "turns"


def adapt_multi(
    env: Any, parallel: bool | str = False, state: bool = False, observe: str = "acting"
) -> MultiAdapter:
    """Give an env with several agents its adapter.

    Args:
        env: a ParallelEnv or an AECEnv.
        parallel: turn an AECEnv whose agents may act at once into a ParallelEnv;
            "turns" does that with any, where agents must act in turn by `TurnSteps`.
        state: call `env.state()` in every step.
        observe: (AEC) "acting", or "all" that are alive.
    """
    check_choice("observe", observe, OBSERVE_CHOICES)
    if is_aec(env):
        if not parallel:
            return AecAdapter(env, state, observe)
        env = parallel_form(env) if parallel == TURNS else _converted(env)
    if has_agents(env):
        return ParallelAdapter(env, state)
    hint = "; does its function end in `return env`?" if env is None else ""
    if isinstance(env, gymnasium.Env):
        hint = "; it has one agent: use corral.make"
    raise OptionError(
        f"env is {type(env).__name__} ({env!r:.80}), which is neither "
        f"PettingZoo's ParallelEnv nor its AECEnv{hint}"
    )


def multi_env(env: Any, **options: Any) -> MultiAdapter:
    """A wrapper for factories: `adapt_multi`, which closes an env that it refuses."""
    try:
        return adapt_multi(env, **options)
    except BaseException:
        with suppress(Exception):  # the first error says more
            env.close()
        raise


def in_turn(env: Any) -> bool:
    """Whether it is an AECEnv whose agents must act in turn."""
    return is_aec(env) and not _allows_at_once(env)


def is_aec(env: Any) -> bool:
    """Whether it is an AECEnv."""
    return has_agents(env) and callable(getattr(env, "agent_iter", None))


def parallel_form(env: Any) -> Any:
    """Any env with agents as a ParallelEnv; a step may be one agent's turn."""
    if in_turn(env):
        return TurnSteps(env)
    return _converted(env) if is_aec(env) else env


def _allows_at_once(env: Any) -> bool:
    return bool((getattr(env, "metadata", None) or {}).get("is_parallelizable"))


def _converted(env: Any) -> Any:
    """An AECEnv as a ParallelEnv, if it says that its agents may act at once."""
    if not _allows_at_once(env):
        raise OptionError(
            f"{env} does not say that its agents may act at once "
            "(metadata['is_parallelizable']); use corral.make_multi without "
            "parallel=True, which steps them in turns"
        )
    return importlib.import_module("pettingzoo.utils.conversions").aec_to_parallel(env)
