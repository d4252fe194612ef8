"""Rows of the block as Steps: views where one view can show it, else gathered."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from corral.core import Step
from corral.engine.layout.codec import Codec
from corral.engine.layout.infos import Infos
from corral.engine.layout.plan import DataViews

NO_INFOS = Infos([], {})
SCALAR_FIELDS = (
    "reward",
    "terminated",
    "truncated",
    "started",
    "valid",
    "episode_return",
    "episode_length",
    "seed",
)
"""The fields of a record that a Step shows, under the same names."""


class BlockRow:
    """One row of all slots, or of one shard; made once, used every other step."""

    def __init__(
        self,
        codec: Codec,
        views: DataViews,
        row: int,
        slots: NDArray[np.intp],
        part: slice = slice(None),
    ) -> None:
        self._slots = slots
        self._codec = codec
        record = views.record[row, part]
        self._leaves = [array[row, part] for array in views.obs]
        self._final = [array[0, part] for array in views.final_obs]
        self._scalars = [record[name] for name in SCALAR_FIELDS]
        # Letters complete the observations of a space with mailed leaves.
        self._reusable = None if codec.mailed else self._make(NO_INFOS, copy=False)

    def step(self, infos: Infos, copy: bool) -> Step:
        """The row as it stands.

        A Step of views lives as long as its views, so the same one serves again when
        the row does: making one costs 1 µs, a fiftieth of eight CartPole steps.
        """
        step = self._reusable
        if copy or step is None:
            return self._make(infos, copy)
        step.infos = infos
        step.final_infos = {}
        return step

    def _make(self, infos: Infos, copy: bool) -> Step:
        leaves, final, scalars = self._leaves, self._final, self._scalars
        if copy:
            leaves = [leaf.copy() for leaf in leaves]
            final = [leaf.copy() for leaf in final]
            scalars = [scalar.copy() for scalar in scalars]
        return _step(self._codec, self._slots, leaves, final, scalars, infos)


def gather(
    codec: Codec,
    views: DataViews,
    rows: NDArray[np.int64],
    slots: NDArray[np.intp],
    infos: Infos,
) -> Step:
    """Slots from anywhere in the block, copied together."""
    record = views.record[rows, slots]
    return _step(
        codec,
        slots,
        [array[rows, slots] for array in views.obs],
        [array[0, slots] for array in views.final_obs],
        [np.ascontiguousarray(record[name]) for name in SCALAR_FIELDS],
        infos,
    )


def _step(
    codec: Codec,
    slots: NDArray[np.intp],
    leaves: list[Any],
    final: list[Any],
    scalars: list[Any],
    infos: Infos,
) -> Step:
    # With mailed leaves the batch is assembled when the letters are opened.
    whole = not codec.mailed
    return Step(
        slots=slots,
        obs=codec.assemble(leaves, ()) if whole else leaves,
        final_obs=codec.assemble(final, ()) if whole else final,
        infos=infos,
        final_infos={},
        **dict(zip(SCALAR_FIELDS, scalars, strict=True)),
    )
