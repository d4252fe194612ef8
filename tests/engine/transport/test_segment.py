"""Segments: memory that a running process can open, and that is used again."""

from __future__ import annotations

import gc
import subprocess
import sys

import numpy as np
import pytest

from corral.engine.transport.segment import Segment, open_segment
from corral.engine.worker.serialization import dumps
from corral.errors import ClosedError

SHAPES = {"reward": ((3, 2), np.float64), "valid": ((3,), np.bool_)}
WRITE = """
import pickle, sys
from corral.engine.transport.segment import open_segment
arrays = open_segment(pickle.load(sys.stdin.buffer))
arrays["reward"][1] = 7.0
arrays["valid"][2] = True
"""


def test_a_child_process_writes_into_the_arrays_of_its_parent() -> None:
    segment = Segment(SHAPES)
    arrays = segment.lend()
    data = dumps(segment.address)
    subprocess.run([sys.executable, "-c", WRITE], input=data, check=True)
    assert arrays["reward"].tolist() == [[0, 0], [7, 7], [0, 0]]
    assert arrays["valid"].tolist() == [False, False, True]
    segment.close()


def test_a_segment_is_free_when_the_last_view_of_its_arrays_is_gone() -> None:
    segment = Segment(SHAPES)
    assert segment.free
    view = segment.lend()["reward"][1:, :1].T
    assert not segment.free
    del view
    gc.collect()
    assert segment.free
    again = segment.lend()
    assert not segment.free and again["reward"].shape == (3, 2)


def test_arrays_stay_valid_when_the_segment_is_closed() -> None:
    segment = Segment(SHAPES)
    reward = segment.lend()["reward"]
    segment.close()
    segment.close()
    reward[:] = 3.0
    assert reward.sum() == 18


def test_a_closed_segment_cannot_be_opened() -> None:
    segment = Segment(SHAPES)
    address = segment.address
    segment.close()
    with pytest.raises(ClosedError, match="closed by its owner"):
        open_segment(address)


def test_an_address_does_not_open_other_memory() -> None:
    one, other = Segment(SHAPES), Segment(SHAPES)
    assert one.address is not None and other.address is not None
    stale = one.address._replace(descriptor=other.address.descriptor)
    with pytest.raises(ClosedError, match="closed by its owner"):
        open_segment(stale)


def test_a_private_segment_has_no_address() -> None:
    segment = Segment(SHAPES, shared=False)
    assert segment.address is None and open_segment(None) == {}
    assert segment.lend()["valid"].shape == (3,)
