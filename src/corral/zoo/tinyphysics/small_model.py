"""A small model with the official one's inputs, for machines that have none.

    pull     = GAIN * steer + roll lataccel, as it was over the last half second
    lataccel = the last one + a part of what is missing from the pull, and noise

It drives somewhat like a car: late, and never twice alike. Nothing was learnt.
"""

from __future__ import annotations

import numpy as np

from corral.zoo.tinyphysics.onnx_file import (
    FLOAT,
    INT64,
    Constants,
    Node,
    Port,
    onnx_bytes,
)
from corral.zoo.tinyphysics.route import CONTEXT
from corral.zoo.tinyphysics.tokens import BINS, TEMPERATURE, TOKENS

GAIN = 1.5
"""Lateral acceleration that a steer of 1 leads to, m/s²."""
ANSWER = 0.35
"""The part of what is missing that comes with one row."""
NOISE = 0.03
"""Standard deviation of a row's lateral acceleration, m/s²."""
DELAYS = (0.1, 0.3, 0.3, 0.2, 0.1)
"""How much of a steer comes with its own row, the next one, and so on."""


def small_model() -> bytes:
    """The model as an ONNX file."""
    weights = np.zeros((CONTEXT, 1), np.float32)
    weights[-len(DELAYS) :, 0] = DELAYS[::-1]
    # The simulation divides by its temperature before it draws.
    sharpness = -TEMPERATURE / (2 * NOISE**2)
    constants: Constants = {
        "bins": BINS.astype(np.float32),
        "weights": weights,
        "pulls": np.array([[GAIN, 1.0, 0.0, 0.0]], np.float32),
        "answer": np.array(ANSWER, np.float32),
        "sharpness": np.array(sharpness, np.float32),
        "last": np.array([CONTEXT - 1], np.int64),
        "last_axis": np.array([2], np.int64),
    }
    nodes = [
        Node("Transpose", ["states"], "signals", {"perm": (0, 2, 1)}),
        Node("MatMul", ["signals", "weights"], "felt"),
        Node("MatMul", ["pulls", "felt"], "pull"),
        Node("Gather", ["tokens", "last"], "token", {"axis": 1}),
        Node("Gather", ["bins", "token"], "now"),
        Node("Unsqueeze", ["now", "last_axis"], "lataccel"),
        Node("Sub", ["pull", "lataccel"], "missing"),
        Node("Mul", ["missing", "answer"], "change"),
        Node("Add", ["lataccel", "change"], "mean"),
        Node("Sub", ["bins", "mean"], "distance"),
        Node("Mul", ["distance", "distance"], "square"),
        Node("Mul", ["square", "sharpness"], "output"),
    ]
    inputs = [
        Port("states", FLOAT, ["b", CONTEXT, 4]),
        Port("tokens", INT64, ["b", CONTEXT]),
    ]
    # Of the last row alone, which is all that is drawn from.
    return onnx_bytes(
        nodes, constants, inputs, [Port("output", FLOAT, ["b", 1, TOKENS])]
    )
