"""Frames become a GIF that a page can show."""

import io

import numpy as np
import pytest
from PIL import Image

from corral.train.sinks.video import MAX_FRAMES, VIDEO_WIDTH, encode


def frames(count, shape=(20, 30, 3)):
    return [np.full(shape, number % 256, np.uint8) for number in range(count)]


def test_every_frame_is_there():
    picture = Image.open(io.BytesIO(encode(frames(12), 20)))
    assert picture.format == "GIF"
    assert picture.n_frames == 12
    assert picture.size == (30, 20)
    assert picture.info["duration"] == 50


def test_large_frames_become_smaller():
    picture = Image.open(io.BytesIO(encode(frames(2, (400, 600, 3)), 30)))
    assert picture.size == (VIDEO_WIDTH, 200)


@pytest.mark.parametrize("count", [MAX_FRAMES + 1, 3 * MAX_FRAMES])
def test_long_episodes_are_shown_with_fewer(count):
    picture = Image.open(io.BytesIO(encode(frames(count), 50)))
    assert picture.n_frames <= MAX_FRAMES
