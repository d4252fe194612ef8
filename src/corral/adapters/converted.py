"""Steps of an env that `aec_to_parallel` of PettingZoo has converted, without detours.

Most of PettingZoo's and MPE's parallel envs are of this kind: agents in turn inside, a
conversion around them. The conversion reads `agents`, `rewards` and the like some
seventy times a step, each time through every wrapper; in a small env that is most of
the time. Here they are read where they are.

The env notices nothing: `reset`, `step` and `observe` are called as the conversion
calls them, through the same wrappers, in the same order.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

_CONVERSION = ("pettingzoo.utils.conversions", "aec_to_parallel_wrapper")
_HAND_ON = {
    ("pettingzoo.utils.wrappers.assert_out_of_bounds", "AssertOutOfBoundsWrapper"),
    ("pettingzoo.utils.wrappers.clip_out_of_bounds", "ClipOutOfBoundsWrapper"),
    ("pettingzoo.utils.wrappers.order_enforcing", "OrderEnforcingWrapper"),
}
"""Wrappers that have none of what is read here, and hand it on as it is."""

Step = Callable[[Mapping[Any, Any]], tuple[Any, Any, Any, Any, Any]]


def stepper(env: Any) -> Step:
    """How to step a ParallelEnv: `env.step`, or the same in less time."""
    if _kind(env) != _CONVERSION or "step" in vars(env):
        return env.step  # type: ignore[no-any-return]
    inner = env.aec_env
    while _kind(inner) in _HAND_ON:
        inner = inner.env
    # Bare envs may have a `last` of their own, which only the conversion knows to call.
    return env.step if inner is env.aec_env else Cycle(env, inner).step


class Cycle:
    """One turn of every agent, as a step of all.

    Args:
        env: the converted env.
        inner: what is inside the wrappers that hand everything on.
    """

    def __init__(self, env: Any, inner: Any) -> None:
        self._env = env
        self._inner = inner

    def step(self, actions: Mapping[Any, Any]) -> tuple[Any, Any, Any, Any, Any]:
        """Every agent's turn; observations, rewards, ends and infos after the last."""
        env, inner = self._env, self._inner
        take_turn, observe = env.aec_env.step, inner.observe
        rewards: dict[Any, Any] = {}
        for agent in inner.agents:
            if agent != inner.agent_selection:
                self._refuse(agent)
            observe(agent)  # nobody looks, but the env may count it
            take_turn(actions[agent])
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
            take_turn(None)
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


def _kind(env: Any) -> tuple[str, str]:
    return type(env).__module__, type(env).__name__
