"""A packed value is one array of bytes, and its batches are the inner codec's."""

from __future__ import annotations

import numpy as np
from gymnasium import spaces

from corral.engine.layout.codec import codec_for
from corral.engine.layout.composite import CACHE_LINE_BYTES, PackedCodec

SPACE = spaces.Dict(
    {
        "flags": spaces.Box(0, 1, (3,), np.bool_),
        "counts": spaces.Tuple(
            [spaces.Discrete(5), spaces.Box(-9, 9, (2, 2), np.int16)]
        ),
        "speed": spaces.Box(-1, 1, (2,), np.float64),
    }
)


def same(one, other) -> bool:
    return all(
        np.array_equal(a, b) and a.dtype == b.dtype
        for a, b in zip(
            (one["flags"], *one["counts"], one["speed"]),
            (other["flags"], *other["counts"], other["speed"]),
            strict=True,
        )
    )


def test_what_is_written_to_the_buffer_is_in_the_batch() -> None:
    codec = PackedCodec(codec_for(SPACE))
    assert codec.plain and codec.size % CACHE_LINE_BYTES == 0
    SPACE.seed(1)
    samples = [SPACE.sample() for _ in range(3)]
    block = np.zeros((2, 3, codec.size), np.uint8)
    encode = codec.encoder([block])
    buffer, leaves = codec.buffer()
    inner = codec.inner.encoder([leaf[np.newaxis] for leaf in leaves])
    for slot, sample in enumerate(samples):
        inner(0, 0, sample)
        encode(1, slot, buffer)
    batch = codec.assemble([block[1]], ())
    decode = codec.decoder([block])
    for slot, sample in enumerate(samples):
        assert batch["flags"][slot].tolist() == sample["flags"].tolist()
        assert batch["counts"][1].dtype == np.int16
        assert same(decode(1, slot, None), sample)
    assert np.shares_memory(batch["speed"], block)  # views, made once
    (packed,), _ = codec.split(batch, 3)
    assert same(codec.assemble([packed], ()), batch)
    walk = codec.walker([block])
    assert walk is not None and same(list(walk(1))[2], samples[2])
