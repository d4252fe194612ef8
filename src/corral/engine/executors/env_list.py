"""The environments of a pool that runs in the caller's thread, as a list."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, NoReturn

from corral.errors import OptionError


class EnvList(list[Any]):
    """One env per slot: `envs[0] = Wrapper(envs[0])` puts the wrapper into slot 0.

    The number of slots is fixed, so nothing can be added or removed.

    >>> slots = ["a", "b"]
    >>> envs = EnvList(slots, slots.__setitem__)
    >>> envs[-1] = "c"
    >>> envs, slots
    (['a', 'c'], ['a', 'c'])

    Args:
        envs: the present envs.
        exchange: called with a slot and its new env.
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
            f"this list has one env for each of {len(self)} slots, and its length is "
            "fixed; envs[slot] = env replaces an env"
        )

    append = extend = insert = pop = remove = clear = sort = reverse = _refuse
    __delitem__ = __iadd__ = __imul__ = _refuse

    def __reduce_ex__(self, _: Any) -> tuple[Any, ...]:
        return list, (list(self),)  # a copy is a plain list
