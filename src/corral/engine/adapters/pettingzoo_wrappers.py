"""PettingZoo's own wrappers, and what is behind them.

An AECEnv keeps `agents`, `rewards` and the like in tables, and each wrapper around it
hands a question for one on to the next, at 0.5 µs and more a time. What the wrappers
named here would only hand on can be had from the env itself.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

_WRAPPERS = "pettingzoo.utils.wrappers"
PASS_LEGAL_ACTIONS = {
    (f"{_WRAPPERS}.assert_out_of_bounds", "AssertOutOfBoundsWrapper"),
    (f"{_WRAPPERS}.clip_out_of_bounds", "ClipOutOfBoundsWrapper"),
}
"""They hand on every action that is in its space, and see to it that it is."""
PASS_ACTIONS = PASS_LEGAL_ACTIONS | {
    (f"{_WRAPPERS}.order_enforcing", "OrderEnforcingWrapper")
}
"""They hand on every action that is in its space, every observation and every table."""
PASS_TABLES = PASS_ACTIONS | {
    (f"{_WRAPPERS}.terminate_illegal", "TerminateIllegalWrapper"),
}
"""They hand on every table; what they change in one they change in the env's."""

TABLES = frozenset(
    ("agents", "agent_selection", "rewards", "terminations", "truncations", "infos")
)


def kind_of(layer: Any) -> tuple[str, str]:
    """What it is, for those who do not import PettingZoo."""
    return type(layer).__module__, type(layer).__name__


def is_patched(layer: Any, methods: Iterable[str], tables: Iterable[str] = ()) -> bool:
    """Whether somebody has put one of these on this very object, or on its class."""
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
    """Layers that only hand on, for as long as that is what they are.

    Each of them can be given another `step`, another env or another class at any time,
    also in the middle of an episode, so whoever goes past them asks before every step.
    That takes 1 µs for three layers.

    Args:
        names: what may not be put on a layer, since it is handed on.
    """

    def __init__(self, names: frozenset[str]) -> None:
        self._names = names
        self._layers: list[tuple[Any, type, str, Any, frozenset[str]]] = []
        self._methods: list[tuple[type, str, Any]] = []

    def add(self, layer: Any, methods: Iterable[str] = (), inside: str = "env") -> Any:
        """Go past this layer, whose methods are known; returns what is inside it."""
        names = self._names if inside == "env" else frozenset(methods)
        kind, following = type(layer), vars(layer)[inside]
        self._layers.append((layer, kind, inside, following, names))
        self._methods += [(kind, name, getattr(kind, name)) for name in methods]
        return following

    def stands(self) -> bool:
        """Whether every layer is where and what it was."""
        for layer, kind, inside, following, names in self._layers:
            held = vars(layer)
            if held[inside] is not following or not names.isdisjoint(held):
                return False
            if type(layer) is not kind:
                return False
        for kind, name, method in self._methods:
            if getattr(kind, name) is not method:
                return False
        return True


def keeper_of(env: Any) -> tuple[Any, PassThroughLayers]:
    """The layer of an AECEnv that its tables can be read from, and the way there."""
    layer, passage = env, PassThroughLayers(TABLES)
    while kind_of(layer) in PASS_TABLES and not is_patched(layer, (), TABLES):
        layer = passage.add(layer)
    return layer, passage
