"""Lateral accelerations as the model's tokens: 1024 values between -5 and 5 m/s²."""

from __future__ import annotations

from bisect import bisect_left

import numpy as np
from numpy.typing import NDArray

from corral.errors import OptionError

TOKENS = 1024
LIMIT = 5.0
TEMPERATURE = 0.8
# Tokens are summed in 32 blocks of 32.
BLOCK = 32
# Far more than the rounding error of 1024 probabilities summed in another order.
SURE = 1e-9
# The value of each token.
BINS = np.linspace(-LIMIT, LIMIT, TOKENS)
_VALUES: list[float] = BINS.tolist()


def encode(lataccel: NDArray[np.float64]) -> NDArray[np.intp]:
    """The token of each value: the first whose value is not less, or the last."""
    return np.minimum(BINS.searchsorted(lataccel), TOKENS - 1)


def encode_one(lataccel: float) -> int:
    """The same for one value, and quicker."""
    return min(bisect_left(_VALUES, lataccel), TOKENS - 1)


def decode_one(token: int) -> float:
    """The value of a token."""
    return _VALUES[token]


def sample(logits: NDArray[np.float32], draws: NDArray[np.float64]) -> NDArray[np.intp]:
    """Sample one token per row, with a draw from [0, 1) each.

    The result is that of `np.random.choice` with a float32 softmax, bit for bit;
    another order of operations would sometimes give another token. Its sequential sum
    is slow, so it is computed only where the draw is within SURE of a bound.

    Args:
        logits: (rows, TOKENS).
        draws: (rows,).
    """
    chances = _chances(logits)
    row = np.arange(len(chances))
    blocks = chances.astype(np.float64).reshape(-1, BLOCK, BLOCK)
    # Quicker than np.sum over such a short axis.
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
            "the model's output is nan; check the route and the model for numbers that "
            "are far too large"
        )


def _sample_exactly(
    chances: NDArray[np.float32], draws: NDArray[np.float64]
) -> NDArray[np.intp]:
    heights = np.add.accumulate(chances, axis=1, dtype=np.float64)
    heights /= heights[:, -1:].copy()
    # The first that is above the draw; the last one is 1, so there is one.
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
