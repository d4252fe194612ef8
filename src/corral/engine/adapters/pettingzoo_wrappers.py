"""PettingZoo's own wrappers, and shortcuts past them.

An AECEnv keeps `agents`, `rewards` and the like in tables, and each wrapper around it
passes a read on to the next, at 0.5 µs and more each. What the wrappers named here only
pass on can be read from the env itself.

Most of PettingZoo's and MPE's parallel envs are converted by `aec_to_parallel`: agents
in turn inside, a conversion around them. The conversion reads the tables some seventy
times a step, each time through every wrapper; in a small env that is most of the time.
`Cycle` reads them from the env itself, and an action that every wrapper would pass on
goes to the env itself; an action that does not fit its space goes through all of them.
The env notices nothing: its `reset`, `step` and `observe` are called with the same
arguments in the same order.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
from gymnasium import Space, spaces

# They check that an action is in its space, and pass it on if it is.
PASS_LEGAL_ACTIONS = {"AssertOutOfBoundsWrapper", "ClipOutOfBoundsWrapper"}
# They pass on every action that is in its space, every observation and every table.
PASS_ACTIONS = PASS_LEGAL_ACTIONS | {"OrderEnforcingWrapper"}
# They pass on every table; what they change in one they change in the env's.
PASS_TABLES = PASS_ACTIONS | {"TerminateIllegalWrapper"}

TABLES = frozenset(
    ("agents", "agent_selection", "rewards", "terminations", "truncations", "infos")
)


def kind_of(layer: Any) -> str:
    """The class of a layer of PettingZoo's own, without importing it; "" of others."""
    kind = type(layer)
    return kind.__name__ if kind.__module__.startswith("pettingzoo.utils.") else ""


def is_patched(layer: Any, methods: Iterable[str], tables: Iterable[str] = ()) -> bool:
    """Whether one of these is overridden on this object, or on its class."""
    own, kind = vars(layer), type(layer)
    return (
        any(name in own for name in (*methods, *tables))
        or any(hasattr(kind, name) for name in tables)
        or not all(_is_theirs(getattr(kind, name)) for name in methods)
    )


def _is_theirs(method: Any) -> bool:
    # Not `__module__`, which `functools.wraps` takes from what it wraps.
    home = getattr(method, "__globals__", {}).get("__name__", "")
    return str(home).startswith("pettingzoo.")


class PassThroughLayers:
    """Layers that only pass on, for as long as they are unchanged.

    User code can give each of them another `step`, another env or another class at any
    time, also in the middle of an episode, so `stands` is called before every step. It
    takes 1 µs for three layers.

    Args:
        names: attributes that must not be overridden on a layer.
    """

    def __init__(self, names: frozenset[str]) -> None:
        self._names = names
        self._layers: list[tuple[Any, type, str, Any, frozenset[str]]] = []
        self._methods: list[tuple[type, str, Any]] = []

    def add(self, layer: Any, methods: Iterable[str] = (), inside: str = "env") -> Any:
        """Add a layer and its known methods; returns the layer inside it."""
        names = self._names if inside == "env" else frozenset(methods)
        kind, following = type(layer), vars(layer)[inside]
        self._layers.append((layer, kind, inside, following, names))
        self._methods += [(kind, name, getattr(kind, name)) for name in methods]
        return following

    def stands(self) -> bool:
        """Whether every layer is unchanged."""
        for layer, kind, inside, following, names in self._layers:
            held = vars(layer)
            same = held[inside] is following and type(layer) is kind
            if not (same and names.isdisjoint(held)):
                return False
        # Not `all` of a generator, which takes twice as long.
        for kind, name, own in self._methods:  # noqa: SIM110
            if getattr(kind, name) is not own:
                return False
        return True


def keeper_of(env: Any) -> tuple[Any, PassThroughLayers]:
    """The layer of an AECEnv whose tables can be read, and the layers around it."""
    layer, passage = env, PassThroughLayers(TABLES)
    while kind_of(layer) in PASS_TABLES and not is_patched(layer, (), TABLES):
        layer = passage.add(layer)
    return layer, passage


# Converted envs -----------------------------------------------------------------------
_CONVERSION = "aec_to_parallel_wrapper"
_COURSE = frozenset(("reset", "step"))
# What the conversion calls of a wrapper.
_ASKED = _COURSE | {"observe", "last", "action_space"}
# What it reads, `last` included.
_READ = TABLES | {"_cumulative_rewards"}
_NAMES = _ASKED | _READ


def without_detours(env: Any) -> Any:
    """A ParallelEnv's `reset` and `step`: its own, or a shortcut."""
    if kind_of(env) != _CONVERSION or is_patched(env, _COURSE):
        return env
    passage, choosy = PassThroughLayers(_NAMES), False
    first = layer = passage.add(env, _COURSE, inside="aec_env")
    while kind_of(layer) in PASS_ACTIONS and not is_patched(layer, _ASKED, _READ):
        choosy |= kind_of(layer) in PASS_LEGAL_ACTIONS
        layer = passage.add(layer, _ASKED)
    # Bare envs may have a `last` of their own, which only the conversion calls.
    return env if layer is first else Cycle(env, layer, passage, choosy)


class Cycle:
    """One turn of every agent, as a step of all.

    Args:
        env: the converted env.
        inner: the env inside the wrappers that pass everything on.
        passage: those wrappers, including the conversion.
        choosy: whether one of them checks the actions.
    """

    def __init__(
        self, env: Any, inner: Any, passage: PassThroughLayers, choosy: bool
    ) -> None:
        self._env = env
        self._inner = inner
        self._passage = passage
        self._choosy = choosy
        # Whether the conversion is left out, in this episode.
        self._direct = False

    def reset(
        self, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, Any]:
        """Start an episode; observations and infos of the living agents."""
        env, inner, self._direct = self._env, self._inner, False
        if not self._passage.stands():
            return env.reset(seed=seed, options=options)  # type: ignore[no-any-return]
        env.aec_env.reset(seed=seed, options=options)
        env.agents = inner.agents[:]
        terminations, truncations = inner.terminations, inner.truncations
        observations = {
            agent: inner.observe(agent)
            for agent in inner.agents
            if not (terminations[agent] or truncations[agent])
        }
        self._direct = True
        return observations, dict(inner.infos)

    def step(self, actions: Mapping[Any, Any]) -> tuple[Any, Any, Any, Any, Any]:
        """Every agent's turn; observations, rewards, ends and infos after the last."""
        env, inner, choosy = self._env, self._inner, self._choosy
        if not (self._direct and self._passage.stands()):
            self._direct = False
            return env.step(actions)  # type: ignore[no-any-return]
        rewards: dict[Any, Any] = {}
        for agent in inner.agents:
            if agent != inner.agent_selection:
                self._refuse(agent)
            inner.observe(agent)  # the result is not used, but the env may count it
            action = actions[agent]
            # Without agents, a wrapper does not pass the action on.
            fits = inner.agents and (
                not choosy or _fits(inner.action_space(agent), action)
            )
            (inner if fits else env.aec_env).step(action)
            paid = inner.rewards
            for one in inner.agents:
                rewards[one] = rewards.get(one, 0) + paid[one]
        terminations, truncations = dict(inner.terminations), dict(inner.truncations)
        infos = dict(inner.infos)
        observations = {agent: inner.observe(agent) for agent in inner.agents}
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
    kind = type(action)
    if type(space) is spaces.Discrete and (
        kind is int or (kind is np.int64 and space.dtype == np.int64)
    ):
        # As `contains` has it, in a quarter of the time.
        return bool(space.start <= action < space.start + space.n)
    return space.contains(action)
