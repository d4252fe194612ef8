"""An env that `aec_to_parallel` of PettingZoo has converted, without its detours.

Most of PettingZoo's and MPE's parallel envs are of this kind: agents in turn inside, a
conversion around them. The conversion reads `agents`, `rewards` and the like some
seventy times a step, each time through every wrapper; in a small env that is most of
the time. Here they are read where they are, and an action that no wrapper would object
to is handed to the env itself: what does not fit its space goes through all of them.

The env notices nothing: its `reset`, `step` and `observe` are called with what the
conversion calls them with, in the same order.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from gymnasium import Space, spaces

from corral.adapters.layers import CHOOSY, HAND_ON, has_own, kind_of

_CONVERSION = ("pettingzoo.utils.conversions", "aec_to_parallel_wrapper")
_COMMANDS = frozenset(("reset", "step"))
_INTEGERS = (np.int64, int)
"""What a choice is, as a rule."""


def without_detours(env: Any) -> Any:
    """A ParallelEnv's `reset` and `step`: its own, or the same in less time."""
    if kind_of(env) != _CONVERSION or has_own(env, _COMMANDS):
        return env
    inner, choosy = env.aec_env, False
    while kind_of(inner) in HAND_ON and not has_own(inner, _COMMANDS):
        choosy = choosy or kind_of(inner) in CHOOSY
        inner = inner.env
    # Bare envs may have a `last` of their own, which only the conversion knows to call.
    return env if inner is env.aec_env else Cycle(env, inner, choosy)


class Cycle:
    """One turn of every agent, as a step of all.

    Args:
        env: the converted env.
        inner: what is inside the wrappers that hand everything on.
        choosy: whether one of them looks at the actions.
    """

    def __init__(self, env: Any, inner: Any, choosy: bool) -> None:
        self._env = env
        self._inner = inner
        self._choosy = choosy

    def reset(
        self, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, Any]:
        """Start an episode; observations and infos of those that are there."""
        env, inner = self._env, self._inner
        env.aec_env.reset(seed=seed, options=options)
        env.agents = inner.agents[:]
        terminations, truncations = inner.terminations, inner.truncations
        observations = {
            agent: inner.observe(agent)
            for agent in inner.agents
            if not (terminations[agent] or truncations[agent])
        }
        return observations, dict(inner.infos)

    def step(self, actions: Mapping[Any, Any]) -> tuple[Any, Any, Any, Any, Any]:
        """Every agent's turn; observations, rewards, ends and infos after the last."""
        env, inner, choosy = self._env, self._inner, self._choosy
        observe = inner.observe
        rewards: dict[Any, Any] = {}
        for agent in inner.agents:
            if agent != inner.agent_selection:
                self._refuse(agent)
            observe(agent)  # nobody looks, but the env may count it
            action = actions[agent]
            fits = not choosy or _fits(inner.action_space(agent), action)
            (inner if fits else env.aec_env).step(action)
            paid = inner.rewards
            for one in inner.agents:
                rewards[one] = rewards.get(one, 0) + paid[one]
        terminations, truncations = dict(inner.terminations), dict(inner.truncations)
        infos = dict(inner.infos)
        observations = {agent: observe(agent) for agent in inner.agents}
        while inner.agents and (
            inner.terminations[inner.agent_selection]
            or inner.truncations[inner.agent_selection]
        ):
            inner.step(None)
        env.agents = inner.agents
        return observations, rewards, terminations, truncations, infos

    def _refuse(self, agent: Any) -> None:
        inner = self._inner
        over = inner.terminations[agent] or inner.truncations[agent]
        raise AssertionError(
            f"agent {agent!r} should act, but {inner.agent_selection!r} is selected"
            + (f" and {agent!r} has ended" if over else "")
            + ": in an env converted with aec_to_parallel, agents act in the order of "
            "env.agents, and end with the last turn of a cycle"
        )


def _fits(space: Space[Any], action: Any) -> bool:
    """Whether the action is one of the space's."""
    if type(action) in _INTEGERS and type(space) is spaces.Discrete:
        # As `contains` has it, in a quarter of the time.
        return bool(space.start <= action < space.start + space.n)
    return space.contains(action)
