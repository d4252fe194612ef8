"""The same model, for those who want to know about its last row alone.

    ... ─► 20 rows ─► attention ─┬► 20 rows ─► layers ─► 20 rows of logits
                                 │
                                 └► last row ─► layers ─► 1 row of logits

Behind the last attention no row depends on another, and 19 of 20 are thrown away. There
a model of this kind does a quarter of its work; it is spared by cutting the last row
out before. What comes out is compared, bit for bit, by whoever uses it.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from corral.zoo.tinyphysics.onnx_file import (
    FLOAT,
    Node,
    Port,
    encode_constant,
    encode_node,
    encode_port,
    read,
    write,
)
from corral.zoo.tinyphysics.route import CONTEXT
from corral.zoo.tinyphysics.tokens import TOKENS

GRAPH = 7
NODE, CONSTANT, OUTPUT, SHAPES = 1, 5, 12, 13
"""Fields of a graph."""
INPUTS, RESULTS, KIND = 1, 2, 4
"""Fields of a node."""
NAME_OF_CONSTANT, NAME_OF_PORT = 8, 1
BY_ROW = {"Add", "Div", "Mul", "Pow", "ReduceMean", "Sqrt", "Sub", "Tanh"}
"""What treats every row by itself; as a product with a constant does."""
LAST = "corral.last_row"


@dataclass(slots=True)
class _Read:
    """A node, as far as it matters."""

    content: bytes
    inputs: list[str]
    results: list[str]
    kind: str

    @classmethod
    def of(cls, content: bytes) -> _Read:
        node = cls(content, [], [], "")
        for number, value in read(content):
            if number == INPUTS:
                node.inputs.append(_text(value))
            elif number == RESULTS:
                node.results.append(_text(value))
            elif number == KIND:
                node.kind = _text(value)
        return node

    def reading(self, cut: set[str]) -> bytes:
        """The node, with the last rows of these in their place."""
        fields = []
        for number, value in read(self.content):
            if number == INPUTS and _text(value) in cut:
                value = _cut(_text(value)).encode()
            fields.append(write(number, value))
        return b"".join(fields)


def last_row_only(content: bytes) -> bytes:
    """The model that computes its last row; raises ValueError where there is none."""
    fields = list(read(content))
    return b"".join(
        write(number, _graph(value) if number == GRAPH else value)
        for number, value in fields
    )


def _graph(graph: bytes | int) -> bytes:
    fields = list(read(_part(graph)))
    nodes = [_Read.of(_part(value)) for number, value in fields if number == NODE]
    constants = {
        _name(value, NAME_OF_CONSTANT) for number, value in fields if number == CONSTANT
    }
    constants |= {node.results[0] for node in nodes if node.kind == "Constant"}
    outputs = [
        _name(value, NAME_OF_PORT) for number, value in fields if number == OUTPUT
    ]
    behind = _behind(nodes, constants, outputs[0])
    if not behind:
        raise ValueError("no layer treats its rows by themselves")
    inside = {name for place in behind for name in nodes[place].results}
    cut = {name for place in behind for name in nodes[place].inputs}
    cut -= inside | constants
    port = Port(outputs[0], FLOAT, ["b", 1, TOKENS])
    kept = [(number, value) for number, value in fields if number not in (NODE, OUTPUT)]
    return b"".join(
        [
            *(write(NODE, one) for one in _rewritten(nodes, behind, cut)),
            # Shapes that were noted down may not be true any more.
            *(write(number, value) for number, value in kept if number != SHAPES),
            write(CONSTANT, encode_constant(LAST, np.array([CONTEXT - 1], np.int64))),
            write(OUTPUT, encode_port(port)),
        ]
    )


def _behind(nodes: list[_Read], constants: set[str], output: str) -> set[int]:
    """The nodes from the output back to where rows begin to depend on each other."""
    readers: dict[str, set[int]] = {output: set()}
    for place, node in enumerate(nodes):
        for name in node.inputs:
            readers.setdefault(name, set()).add(place)
    behind: set[int] = set()
    for place in reversed(range(len(nodes))):
        node = nodes[place]
        used = [readers[name] for name in node.results if name in readers]
        if used and set().union(*used) <= behind and _is_by_row(node, constants):
            behind.add(place)
    return behind


def _is_by_row(node: _Read, constants: set[str]) -> bool:
    if node.kind == "MatMul":  # the other way round it would mix rows
        return node.inputs[1] in constants
    return node.kind in BY_ROW


def _rewritten(nodes: list[_Read], behind: set[int], cut: set[str]) -> list[bytes]:
    """All nodes in order, and before its first reader each cut."""
    written: list[bytes] = []
    done: set[str] = set()
    for place, node in enumerate(nodes):
        if place not in behind:
            written.append(node.content)
            continue
        for name in sorted(cut.intersection(node.inputs) - done):
            done.add(name)
            gather = Node("Gather", [name, LAST], _cut(name), {"axis": 1})
            written.append(encode_node(gather))
        written.append(node.reading(cut))
    return written


def _cut(name: str) -> str:
    return f"{name}.last_row"


def _name(message: bytes | int, number: int) -> str:
    return next(_text(value) for one, value in read(_part(message)) if one == number)


def _text(value: bytes | int) -> str:
    return _part(value).decode()


def _part(value: bytes | int) -> bytes:
    if isinstance(value, int):
        raise ValueError(f"a number, {value}, in the place of a message")
    return value
