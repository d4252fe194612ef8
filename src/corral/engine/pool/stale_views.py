"""(debug) Loans: views that were handed out, and whether they are kept too long.

In debug mode the views of a Step are private copies. When the memory they stand for is
about to be reused, whoever still holds one is told by an error, and reads garbage.
"""

from __future__ import annotations

import weakref
from typing import Any

import numpy as np
from numpy.typing import NDArray

from corral.core import Step
from corral.engine.pool.rows import SCALARS
from corral.errors import StaleViewError


class Loans:
    """All views on loan."""

    def __init__(self) -> None:
        self.out: list[_Loan] = []

    def lend(self, step: Step, rows: NDArray[np.int64]) -> None:
        """Swap a Step's views for copies that can be told when they expire."""
        self.out.append(_Loan(step, rows))

    def recall(self, slots: NDArray[np.intp], rows: NDArray[np.int64]) -> None:
        """These slots will write these rows: views of them expire.

        Called before anything is changed, so that a refused send was not sent.
        """
        for loan in list(self.out):
            if loan.expires(slots, rows):
                self.out.remove(loan)
                loan.collect()


class _Loan:
    """The private copies behind one Step's views, and when they expire."""

    def __init__(self, step: Step, rows: NDArray[np.int64]) -> None:
        self._row = dict(zip(step.slots.tolist(), rows.tolist(), strict=True))
        self._arrays: list[weakref.ref[NDArray[Any]]] = []
        for name in ("obs", "final_obs", *SCALARS):
            setattr(step, name, self._private(getattr(step, name)))

    def _private(self, value: Any) -> Any:
        if isinstance(value, dict):
            return {key: self._private(part) for key, part in value.items()}
        if isinstance(value, tuple):
            return tuple(self._private(part) for part in value)
        if not isinstance(value, np.ndarray):
            return value
        copied = value.copy()
        self._arrays.append(weakref.ref(copied))
        return copied

    def expires(self, slots: NDArray[np.intp], rows: NDArray[np.int64]) -> bool:
        """Whether one of its slots is about to write the row it was lent."""
        written = zip(slots.tolist(), rows.tolist(), strict=True)
        return any(self._row.get(slot) == row for slot, row in written)

    def collect(self) -> None:
        """Spoil the memory; whoever still holds it is told."""
        held = [array for array in (ref() for ref in self._arrays) if array is not None]
        for array in held:
            array.reshape(-1).view(np.uint8).fill(0xFB)
        if held:
            raise StaleViewError(
                f"a view of slots {sorted(self._row)} from an earlier recv is still "
                "held, and its memory is about to be reused; copy what you keep, or "
                "use copy=True"
            )
