"""Lateral accelerations as the model counts them: 1024 tokens between -5 and 5 m/s²."""

from __future__ import annotations

from bisect import bisect_left

import numpy as np
from numpy.typing import NDArray

from corral.errors import OptionError

TOKENS = 1024
LIMIT = 5.0
TEMPERATURE = 0.8
BLOCK = 32
"""Tokens are added up in blocks of so many, of which there are as many."""
SURE = 1e-9
"""Far more than sums of 1024 chances differ by when added up in another order."""
BINS = np.linspace(-LIMIT, LIMIT, TOKENS)
"""What each token stands for."""
_VALUES = BINS.tolist()


def encode(lataccel: NDArray[np.float64]) -> NDArray[np.intp]:
    """The token of each value: the first one that stands for no less, or the last."""
    return np.minimum(BINS.searchsorted(lataccel), TOKENS - 1)


def encode_one(lataccel: float) -> int:
    """The same, quicker for one."""
    return min(bisect_left(_VALUES, lataccel), TOKENS - 1)


def decode_one(token: int) -> float:
    """What it stands for."""
    value: float = _VALUES[token]
    return value


def sample(logits: NDArray[np.float32], draws: NDArray[np.float64]) -> NDArray[np.intp]:
    """The token that each row's draw from [0, 1) falls on.

    In the order of operations, and with the precision, in which `np.random.choice`
    takes a float32 softmax: another order would now and then give another token. Adding
    up one after the other is slow, so it is done where it matters: where the draw is
    within SURE of a bound.

    Args:
        logits: (rows, TOKENS).
        draws: (rows,).
    """
    chances = _chances(logits)
    row = np.arange(len(chances))
    blocks = chances.astype(np.float64).reshape(-1, BLOCK, BLOCK)
    # Quicker than a sum over an axis as short as this.
    sums = np.einsum("rbt->rb", blocks)
    tops = np.add.accumulate(sums, axis=1)
    height = draws * tops[:, -1]
    block = (tops <= height[:, None]).argmin(axis=1)
    heights = np.empty((len(row), BLOCK + 1))
    heights[:, 0] = tops[row, block] - sums[row, block]
    heights[:, 1:] = blocks[row, block]
    np.add.accumulate(heights, axis=1, out=heights)
    heights -= height[:, None]
    place = (heights[:, 1:] <= 0).argmin(axis=1)
    tokens: NDArray[np.intp] = BLOCK * block + place
    near = np.minimum(heights[row, place + 1], -heights[row, place]) < SURE
    if near.any():
        tokens[near] = _sample_exactly(chances[near], draws[near])
    return tokens


def _chances(logits: NDArray[np.float32]) -> NDArray[np.float32]:
    chances = logits / np.float32(TEMPERATURE)
    chances -= np.maximum.reduce(chances, axis=1, keepdims=True)
    np.exp(chances, out=chances)
    total = np.add.reduce(chances, axis=1, keepdims=True)
    _check(bool(np.isnan(total).any()))
    chances /= total
    return chances


def _check(nan: bool) -> None:
    if nan:
        raise OptionError(
            "the model's output is nan: has the route, or the model, numbers that are "
            "out of all bounds?"
        )


def _sample_exactly(
    chances: NDArray[np.float32], draws: NDArray[np.float64]
) -> NDArray[np.intp]:
    heights = np.add.accumulate(chances, axis=1, dtype=np.float64)
    heights /= heights[:, -1:].copy()
    # The first that is above; the last one is, since it is 1.
    tokens: NDArray[np.intp] = (heights <= draws[:, None]).argmin(axis=1)
    return tokens


def sample_one(logits: NDArray[np.float32], draw: float) -> int:
    """The same for one row, (TOKENS,)."""
    chances = logits / np.float32(TEMPERATURE)
    chances -= np.maximum.reduce(chances)
    np.exp(chances, out=chances)
    total = np.add.reduce(chances)
    _check(total != total)
    chances /= total
    heights = np.add.accumulate(chances, dtype=np.float64)
    heights /= heights[-1]
    return int(heights.searchsorted(draw, side="right"))
