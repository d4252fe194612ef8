"""The ONNX graphs that are made here: a small car, and the last row of any model.

The small model is for machines without the official one. It has the same inputs:

    pull     = GAIN * steer + roll lataccel, as it was over the last half second
    lataccel = the last one + a part of the difference to the pull, and noise

It drives somewhat like a car: late, and never twice alike. Nothing in it was trained.

`last_row_only` makes any model faster that computes all rows and is asked for the last:

    ... ─► 20 rows ─► attention ─┬► 20 rows ─► layers ─► 20 rows of logits
                                 │
                                 └► last row ─► layers ─► 1 row of logits

After the last attention no row depends on another, and 19 of 20 are thrown away: a
quarter of the work. `Model` compares the results of both graphs bit for bit.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from corral.errors import requires
from corral.zoo.tinyphysics.route import CONTEXT, GAIN
from corral.zoo.tinyphysics.tokens import BINS, TEMPERATURE, TOKENS

with requires("tinyphysics needs onnx ({error}): pip install 'corral[tinyphysics]'"):
    import onnx
    from onnx import TensorProto, helper, numpy_helper

IR_VERSION, OPSET = 8, 14
# The part of the difference that the car makes up for in one row.
ANSWER = 0.35
# Standard deviation of a row's lateral acceleration, m/s².
NOISE = 0.03
# The part of a steer that takes effect in its own row, the next one, and so on.
DELAYS = (0.1, 0.3, 0.3, 0.2, 0.1)
# Operations that treat every row by itself; so does a product with a constant.
BY_ROW = {"Add", "Div", "Mul", "Pow", "ReduceMean", "Sqrt", "Sub", "Tanh"}
LAST = "corral.last_row"


def small_model() -> bytes:
    """Return the small model as an ONNX file."""
    weights = np.zeros((CONTEXT, 1), np.float32)
    weights[-len(DELAYS) :, 0] = DELAYS[::-1]
    # The simulation divides by its temperature before it draws.
    sharpness = -TEMPERATURE / (2 * NOISE**2)
    constants = {
        "bins": BINS.astype(np.float32),
        "weights": weights,
        "pulls": np.array([[GAIN, 1.0, 0.0, 0.0]], np.float32),
        "answer": np.array(ANSWER, np.float32),
        "sharpness": np.array(sharpness, np.float32),
        "last": np.array([CONTEXT - 1], np.int64),
        "last_axis": np.array([2], np.int64),
    }
    nodes = [
        node("Transpose", ["states"], "signals", perm=(0, 2, 1)),
        node("MatMul", ["signals", "weights"], "felt"),
        node("MatMul", ["pulls", "felt"], "pull"),
        node("Gather", ["tokens", "last"], "token", axis=1),
        node("Gather", ["bins", "token"], "now"),
        node("Unsqueeze", ["now", "last_axis"], "lataccel"),
        node("Sub", ["pull", "lataccel"], "missing"),
        node("Mul", ["missing", "answer"], "change"),
        node("Add", ["lataccel", "change"], "mean"),
        node("Sub", ["bins", "mean"], "distance"),
        node("Mul", ["distance", "distance"], "square"),
        node("Mul", ["square", "sharpness"], "output"),
    ]
    # Logits of the last row alone: the simulation draws from no other.
    return onnx_bytes(
        nodes,
        constants,
        states=["b", CONTEXT, 4],
        tokens=["b", CONTEXT],
        output=["b", 1, TOKENS],
    )


def node(kind: str, inputs: Sequence[str], output: str, **attributes: Any) -> Any:
    """One operation of a graph."""
    return helper.make_node(kind, inputs, [output], **attributes)


def onnx_bytes(
    nodes: Sequence[Any], constants: dict[str, Any], **shapes: Sequence[Any]
) -> bytes:
    """Return a model whose last named shape is the output's; tokens are integers."""
    *inputs, output = (
        helper.make_tensor_value_info(
            name, TensorProto.INT64 if name == "tokens" else TensorProto.FLOAT, shape
        )
        for name, shape in shapes.items()
    )
    arrays = [numpy_helper.from_array(each, name) for name, each in constants.items()]
    graph = helper.make_graph(nodes, "graph", inputs, [output], arrays)
    opsets = [helper.make_opsetid("", OPSET)]
    model = helper.make_model(graph, opset_imports=opsets, ir_version=IR_VERSION)
    return bytes(model.SerializeToString())


def last_row_only(content: bytes) -> bytes:
    """Return the model that computes its last row; ValueError if it has no such part.

    Shapes that the file states for values in between are left out: they change.
    """
    model = onnx.load_model_from_string(content)
    graph = model.graph
    constants = {one.name for one in graph.initializer}
    constants |= {one.output[0] for one in graph.node if one.op_type == "Constant"}
    output = graph.output[0].name
    by_row = _nodes_by_row(graph.node, constants, output)
    if not by_row:
        raise ValueError("no layer treats its rows by themselves")
    computed = {name for place in by_row for name in graph.node[place].output}
    cut = {name for place in by_row for name in graph.node[place].input}
    rewritten = helper.make_graph(
        _with_cuts(graph.node, by_row, cut - computed - constants),
        graph.name,
        graph.input,
        [helper.make_tensor_value_info(output, TensorProto.FLOAT, ["b", 1, TOKENS])],
        [*graph.initializer, numpy_helper.from_array(np.array([CONTEXT - 1]), LAST)],
    )
    model.graph.CopyFrom(rewritten)
    return bytes(model.SerializeToString())


def _nodes_by_row(nodes: Sequence[Any], constants: set[str], output: str) -> set[int]:
    """The nodes from the output back to where rows begin to depend on each other."""
    readers: dict[str, set[int]] = {output: set()}
    for place, one in enumerate(nodes):
        for name in one.input:
            readers.setdefault(name, set()).add(place)
    by_row: set[int] = set()
    for place in reversed(range(len(nodes))):
        one = nodes[place]
        used = [readers[name] for name in one.output if name in readers]
        # With the constant on the left, a product would mix rows.
        product = one.op_type == "MatMul" and one.input[1] in constants
        alone = product or one.op_type in BY_ROW
        if alone and used and set().union(*used) <= by_row:
            by_row.add(place)
    return by_row


def _with_cuts(nodes: Sequence[Any], by_row: set[int], cut: set[str]) -> list[Any]:
    """All nodes in order; before its first reader, the last row of each value cut."""
    written: list[Any] = []
    done: set[str] = set()
    for place, one in enumerate(nodes):
        if place in by_row:
            for name in sorted(cut.intersection(one.input) - done):
                done.add(name)
                written.append(node("Gather", [name, LAST], f"{name}.last_row", axis=1))
            one.input[:] = [
                f"{name}.last_row" if name in cut else name for name in one.input
            ]
        written.append(one)
    return written
