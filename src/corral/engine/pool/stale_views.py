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
from corral.engine.pool.state import Chosen
from corral.engine.tree import mapped
from corral.errors import StaleViewError


class StaleViews:
    """Views that were handed out and have not expired."""

    def __init__(self) -> None:
        self.lent: list[tuple[dict[int, int], list[weakref.ref[NDArray[Any]]]]] = []
        """For each Step: the row of each slot, and the copies behind its views."""

    def track(self, step: Step, rows: NDArray[np.int64]) -> None:
        """Swap a Step's views for copies whose use can be noticed once they expire."""
        copies: list[weakref.ref[NDArray[Any]]] = []

        def private(leaf: Any) -> Any:
            if isinstance(leaf, np.ndarray):
                leaf = leaf.copy()
                copies.append(weakref.ref(leaf))
            return leaf

        for name in ("obs", "final_obs", *SCALAR_FIELDS):
            setattr(step, name, mapped(private, getattr(step, name)))
        row_of = dict(zip(step.slots.tolist(), rows.tolist(), strict=True))
        self.lent.append((row_of, copies))

    def expire(self, slots: Chosen, rows: NDArray[np.int64]) -> None:
        """These slots will write these rows: views of them expire.

        Called before anything is changed, so that a refused send was not sent.
        """
        written = dict(zip(slots.tolist(), rows.tolist(), strict=True)).items()
        for lent in [one for one in self.lent if one[0].items() & written]:
            self.lent.remove(lent)
            row_of, copies = lent
            held = [array for array in (ref() for ref in copies) if array is not None]
            for array in held:
                array.reshape(-1).view(np.uint8).fill(0xFB)
            if held:
                raise StaleViewError(
                    f"your code still holds a view of slots {sorted(row_of)} from an "
                    "earlier recv, and its memory is about to be reused; copy what you "
                    "keep, or use copy=True"
                )
