"""The environments of a pool that runs in the caller's thread, as a list."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, NoReturn

from corral.errors import OptionError


class EnvList(list[Any]):
    """One env per slot: `envs[0] = Wrapper(envs[0])` puts the wrapper into slot 0.

    There are as many slots as there are, so nothing can be added or taken away.

    >>> slots = ["a", "b"]
    >>> envs = EnvList(slots, slots.__setitem__)
    >>> envs[-1] = "c"
    >>> envs, slots
    (['a', 'c'], ['a', 'c'])

    Args:
        envs: those there are now.
        exchange: called with a slot and the env that is to go on in it.
    """

    def __init__(
        self, envs: Iterable[Any], exchange: Callable[[int, Any], None]
    ) -> None:
        super().__init__(envs)
        self._exchange = exchange

    def __setitem__(self, at: Any, env: Any) -> None:
        if not isinstance(at, slice):
            slot = range(len(self))[at]
            self._exchange(slot, env)
            super().__setitem__(slot, env)
            return
        slots, envs = range(*at.indices(len(self))), list(env)
        if len(envs) != len(slots):
            self._refuse()
        for slot, one in zip(slots, envs, strict=True):
            self[slot] = one

    def _refuse(self, *_: Any, **__: Any) -> NoReturn:
        raise OptionError(
            f"there are {len(self)} slots, each with one env; envs[slot] = env puts "
            "another one there, and nothing else changes this list"
        )

    append = extend = insert = pop = remove = clear = sort = reverse = _refuse
    __delitem__ = __iadd__ = __imul__ = _refuse

    def __reduce_ex__(self, _: Any) -> tuple[Any, ...]:
        return list, (list(self),)  # a copy is nobody's
