"""(debug) Stale views: views of a step that the caller keeps longer than they live.

In debug mode the views of a Step are private copies. When the memory that they stand
for is about to be reused, the copies are overwritten, and a caller that still holds one
gets an error.
"""

from __future__ import annotations

import weakref
from typing import Any

import numpy as np
from numpy.typing import NDArray

from corral.core import Step
from corral.engine.layout.plan import SCALAR_FIELDS
from corral.engine.tree import mapped
from corral.errors import StaleViewError


class StaleViews:
    """Views that were handed out and have not expired."""

    def __init__(self) -> None:
        self.lent: list[_LentStep] = []

    def track(self, step: Step, rows: NDArray[np.int64]) -> None:
        """Swap a Step's views for copies whose use can be noticed once they expire."""
        self.lent.append(_LentStep(step, rows))

    def expire(self, slots: NDArray[np.intp], rows: NDArray[np.int64]) -> None:
        """These slots will write these rows: views of them expire.

        Called before anything is changed, so that a refused send was not sent.
        """
        for view in list(self.lent):
            if view.expires(slots, rows):
                self.lent.remove(view)
                view.spoil()


class _LentStep:
    """The private copies behind one Step's views, and when they expire."""

    def __init__(self, step: Step, rows: NDArray[np.int64]) -> None:
        self._row = dict(zip(step.slots.tolist(), rows.tolist(), strict=True))
        self._arrays: list[weakref.ref[NDArray[Any]]] = []
        for name in ("obs", "final_obs", *SCALAR_FIELDS):
            setattr(step, name, mapped(self._private, getattr(step, name)))

    def _private(self, leaf: Any) -> Any:
        if not isinstance(leaf, np.ndarray):
            return leaf
        copied = leaf.copy()
        self._arrays.append(weakref.ref(copied))
        return copied

    def expires(self, slots: NDArray[np.intp], rows: NDArray[np.int64]) -> bool:
        """Whether one of its slots is about to write the row it was lent."""
        written = zip(slots.tolist(), rows.tolist(), strict=True)
        return any(self._row.get(slot) == row for slot, row in written)

    def spoil(self) -> None:
        """Spoil the memory; an error if the caller still holds it."""
        held = [array for array in (ref() for ref in self._arrays) if array is not None]
        for array in held:
            array.reshape(-1).view(np.uint8).fill(0xFB)
        if held:
            raise StaleViewError(
                f"your code still holds a view of slots {sorted(self._row)} from an "
                "earlier recv, and its memory is about to be reused; copy what you "
                "keep, or use copy=True"
            )
