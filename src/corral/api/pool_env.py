"""What the vector envs of every API have in common: a pool, and its last Step.

Also observations that outlive the block, and episodes' ends as Gymnasium has them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from copy import deepcopy
from dataclasses import replace
from functools import partial
from itertools import compress
from typing import Any, TypeVar

import numpy as np
from gymnasium import Space, spaces
from gymnasium.vector.utils import batch_space, iterate
from numpy.typing import NDArray

from corral.core import Step
from corral.engine.layout.infos import Infos
from corral.engine.layout.plan import SCALAR_FIELDS
from corral.engine.pool import Pool, Stats
from corral.engine.tree import by_space
from corral.errors import OrderError

Self = TypeVar("Self", bound="PoolOwner")


class PoolOwner:
    """Closes its pool, also at the end of a `with` block."""

    pool: Pool

    @property
    def closed(self) -> bool:
        """Whether the pool has been closed."""
        return self.pool.closed

    def close(self, timeout: float | None = None) -> None:
        """Close every env and end every worker; bounded, idempotent, never raises."""
        self.pool.close(timeout)

    def __enter__(self: Self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()


def sent_raw(pool: Pool, actions: Callable[[], Iterable[Any]]) -> bool:
    """Send actions that do not fit their space unchecked; False if impossible."""
    if pool.check_actions:
        return False
    try:
        each = list(actions())
    except (TypeError, ValueError, LookupError):  # not iterable
        return False
    if len(each) != pool.num_envs:
        return False
    pool.send_raw(each)
    return True


def overlaid(pool: Pool, before: Step | None, part: Step) -> Step:
    """A Step of all slots after a reset of some slots."""
    changed: dict[str, Any] = {}
    for name in SCALAR_FIELDS:
        held = getattr(part, name)
        changed[name] = np.zeros(pool.num_envs, held.dtype)
        if before is not None:
            changed[name][:] = getattr(before, name)
        changed[name][part.slots] = held
    each = zip(part.slots.tolist(), part.infos.to_list(len(part)), strict=True)
    return replace(
        part,
        slots=np.arange(pool.num_envs),
        obs=pool.observe(),
        infos=Infos([], {slot: info for slot, info in each if info}),
        **changed,
    )


class PoolAttributes:
    """Attributes that no API has a place for; read from the last Step."""

    pool: Pool
    _last: Step | None = None

    @property
    def valid(self) -> NDArray[np.bool_]:
        """False for padding rows of the last step: a next-step reset, or a fault."""
        return self._latest().valid.copy()

    @property
    def started(self) -> NDArray[np.bool_]:
        """True where the last observation is the first of an episode."""
        return self._latest().started.copy()

    def stats(self) -> Stats:
        """How busy each worker was and how long each part took, since the start."""
        return self.pool.stats()

    def _latest(self) -> Step:
        if self._last is None:
            raise OrderError("no observation yet: call reset first")
        return self._last


# Observations -------------------------------------------------------------------------


def owned(obs: Any) -> Any:
    """A batch of observations in the caller's own memory."""
    if type(obs) is np.ndarray:
        return obs.copy()
    if type(obs) is dict:
        return {key: owned(part) for key, part in obs.items()}
    return tuple(map(owned, obs)) if type(obs) is tuple else deepcopy(obs)


def at_position(space: Space[Any], batch: Any, position: int) -> Any:
    """One observation of a batch, as an env returns it, in the caller's memory."""
    if type(batch) is np.ndarray:  # one leaf: no need to ask its space
        return _at_position(position, space, batch)
    return by_space(partial(_at_position, position), space, batch)


def _at_position(position: int, leaf: Space[Any], values: Any) -> Any:
    if isinstance(leaf, spaces.Discrete):
        return values[position].item()
    if type(values) is np.ndarray:
        return np.array(values[position])
    if type(values) is tuple:
        return deepcopy(values[position])
    every = list(iterate(batch_space(leaf, len(values)), values))
    return deepcopy(every[position])


def finals_of(step: Step, space: Space[Any]) -> Iterator[tuple[int, dict[str, Any]]]:
    """`final_obs` and `final_info` of each position where an episode ended."""
    for position in compress(range(len(step)), step.ended.tolist()):
        final = {"final_obs": at_position(space, step.final_obs, position)}
        if position in step.final_infos:
            final["final_info"] = step.final_infos[position]
        yield position, final
