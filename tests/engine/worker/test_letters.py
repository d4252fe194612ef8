"""Replies without anything that users wrote are pickled their own way."""

from __future__ import annotations

import pickle
from typing import Any

import numpy as np
import pytest

from corral.engine.pool.local import SiteReply
from corral.engine.worker.letters import SealedMessage

ARRAYS = [
    np.arange(6.0).reshape(2, 3).T,
    np.zeros((0, 4), np.float32),
    np.array([True, False]),
    np.arange(3, dtype=">i4"),
    np.array(3, np.uint8),
    np.array(["a", "bc"]),
]


@pytest.mark.parametrize("array", ARRAYS, ids=lambda one: str(one.dtype))
def test_arrays_of_a_plain_reply_arrive_equal_and_writable(array: Any) -> None:
    sealed = SealedMessage(SiteReply([array], [], plain=True))
    reply = pickle.loads(pickle.dumps(sealed)).open(0)
    (found,) = reply.values
    assert found.dtype == array.dtype
    np.testing.assert_array_equal(found, array, strict=True)
    assert found.flags.writeable
