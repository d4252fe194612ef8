"""Gymnasium's `flatten`, for a batch of observations."""

from __future__ import annotations

from typing import Any

import numpy as np
from gymnasium import Space, spaces
from numpy.typing import NDArray

Rows = NDArray[np.float32]


def flat_batch(space: Space[Any], batch: Any, count: int) -> Rows:
    """`(count, ...)` of a space as `(count, numbers)`; discrete values are one-hot."""
    if isinstance(space, spaces.Dict):
        parts = [flat_batch(part, batch[key], count) for key, part in space.items()]
        return np.concatenate(parts, axis=1)
    if isinstance(space, spaces.Tuple):
        pairs = zip(space, batch, strict=True)
        return np.concatenate([flat_batch(p, b, count) for p, b in pairs], axis=1)
    values = np.asarray(batch).reshape(count, -1)
    if isinstance(space, spaces.Discrete):
        return _one_hot(values[:, 0] - space.start, int(space.n))
    if isinstance(space, spaces.MultiDiscrete):
        sizes, first = space.nvec.ravel().tolist(), space.start.ravel()
        columns = [_one_hot(values[:, i] - first[i], n) for i, n in enumerate(sizes)]
        return np.concatenate(columns, axis=1)
    return values.astype(np.float32)


def _one_hot(values: NDArray[Any], size: int) -> Rows:
    hot: Rows = (np.arange(size) == values[:, None]).astype(np.float32)
    return hot
