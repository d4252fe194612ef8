"""PettingZoo's own wrappers, and shortcuts past them.

An AECEnv keeps `agents`, `rewards` and the like in tables, and each wrapper around it
passes a read on to the next, at 0.5 µs and more each. What the wrappers named here only
pass on can be read from the env itself.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

_WRAPPERS = "pettingzoo.utils.wrappers"
PASS_LEGAL_ACTIONS = {
    (f"{_WRAPPERS}.assert_out_of_bounds", "AssertOutOfBoundsWrapper"),
    (f"{_WRAPPERS}.clip_out_of_bounds", "ClipOutOfBoundsWrapper"),
}
"""They check that an action is in its space, and pass it on if it is."""
PASS_ACTIONS = PASS_LEGAL_ACTIONS | {
    (f"{_WRAPPERS}.order_enforcing", "OrderEnforcingWrapper")
}
"""They pass on every action that is in its space, every observation and every table."""
PASS_TABLES = PASS_ACTIONS | {
    (f"{_WRAPPERS}.terminate_illegal", "TerminateIllegalWrapper"),
}
"""They pass on every table; what they change in one they change in the env's."""

TABLES = frozenset(
    ("agents", "agent_selection", "rewards", "terminations", "truncations", "infos")
)


def kind_of(layer: Any) -> tuple[str, str]:
    """The layer's module and class, without importing PettingZoo."""
    return type(layer).__module__, type(layer).__name__


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
            if held[inside] is not following or not names.isdisjoint(held):
                return False
            if type(layer) is not kind:
                return False
        for kind, name, method in self._methods:
            if getattr(kind, name) is not method:
                return False
        return True


def keeper_of(env: Any) -> tuple[Any, PassThroughLayers]:
    """The layer of an AECEnv whose tables can be read, and the layers around it."""
    layer, passage = env, PassThroughLayers(TABLES)
    while kind_of(layer) in PASS_TABLES and not is_patched(layer, (), TABLES):
        layer = passage.add(layer)
    return layer, passage
