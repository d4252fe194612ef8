"""ONNX files by hand: the few messages of the format that are needed here.

An ONNX file is a protobuf message: fields, each a number and its content. Reading and
writing them takes a page, so that nobody has to install a package for it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

FLOAT, INT64 = 1, 7
"""Element types, as the format numbers them."""
INT, INTS = 2, 7
"""Types of attributes."""
IR_VERSION, OPSET = 8, 14
VARINT, PART = 0, 2
"""Kinds of fields."""
Constants = dict[str, NDArray[np.float32] | NDArray[np.int64]]


@dataclass(frozen=True, slots=True)
class Node:
    """One operation."""

    kind: str
    inputs: Sequence[str]
    output: str
    attributes: Mapping[str, int | Sequence[int]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Port:
    """An input or output of the model; a name in its shape may be any number."""

    name: str
    element: int
    shape: Sequence[int | str]


def onnx_bytes(
    nodes: Sequence[Node],
    constants: Constants,
    inputs: Sequence[Port],
    outputs: Sequence[Port],
) -> bytes:
    """The whole file."""
    graph = b"".join(
        [
            *(_part(1, encode_node(node)) for node in nodes),
            _text(2, "graph"),
            *(
                _part(5, encode_constant(name, each))
                for name, each in constants.items()
            ),
            *(_part(11, encode_port(port)) for port in inputs),
            *(_part(12, encode_port(port)) for port in outputs),
        ]
    )
    opset = _text(1, "") + _whole(2, OPSET)
    return _whole(1, IR_VERSION) + _part(7, graph) + _part(8, opset)


def encode_node(node: Node) -> bytes:
    """One node of a graph."""
    content = b"".join(_text(1, name) for name in node.inputs)
    content += _text(2, node.output) + _text(3, node.output) + _text(4, node.kind)
    for name, value in node.attributes.items():
        content += _part(5, _attribute(name, value))
    return content


def _attribute(name: str, value: int | Sequence[int]) -> bytes:
    if isinstance(value, int):
        return _text(1, name) + _whole(3, value) + _whole(20, INT)
    numbers = b"".join(_whole(8, number) for number in value)
    return _text(1, name) + numbers + _whole(20, INTS)


def encode_constant(name: str, array: NDArray[np.float32] | NDArray[np.int64]) -> bytes:
    """One constant of a graph."""
    element = {"float32": FLOAT, "int64": INT64}[array.dtype.name]
    shape = b"".join(_whole(1, size) for size in array.shape)
    little = array.astype(array.dtype.newbyteorder("<"))
    return shape + _whole(2, element) + _text(8, name) + _part(9, little.tobytes())


def encode_port(port: Port) -> bytes:
    """An input or output of a graph."""
    sizes = b"".join(
        _part(1, _text(2, size) if isinstance(size, str) else _whole(1, size))
        for size in port.shape
    )
    tensor = _whole(1, port.element) + _part(2, sizes)
    return _text(1, port.name) + _part(2, _part(1, tensor))


# Fields of a protobuf message ---------------------------------------------------------


def _whole(number: int, value: int) -> bytes:
    return _varint(number << 3) + _varint(value)


def _text(number: int, text: str) -> bytes:
    return _part(number, text.encode())


def _part(number: int, content: bytes) -> bytes:
    return _varint(number << 3 | 2) + _varint(len(content)) + content


def _varint(value: int) -> bytes:
    """Seven bits a byte, the lowest first; the eighth says that more follow."""
    value &= (1 << 64) - 1
    encoded = bytearray()
    while value > 127:
        encoded.append(value & 127 | 128)
        value >>= 7
    encoded.append(value)
    return bytes(encoded)


def read(message: bytes) -> Iterator[tuple[int, bytes | int]]:
    """The fields of a message, in order: their numbers, and parts or whole numbers."""
    place = 0
    while place < len(message):
        key, place = _read_varint(message, place)
        number, kind = key >> 3, key & 7
        if kind == VARINT:
            value, place = _read_varint(message, place)
            yield number, value
            continue
        if kind != PART:
            raise ValueError(f"a field of kind {kind} at byte {place}")
        length, place = _read_varint(message, place)
        yield number, message[place : place + length]
        place += length


def write(number: int, value: bytes | int) -> bytes:
    """The field, as `read` gave it."""
    return _whole(number, value) if isinstance(value, int) else _part(number, value)


def _read_varint(message: bytes, place: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = message[place]
        value |= (byte & 127) << shift
        place, shift = place + 1, shift + 7
        if byte < 128:
            return value, place
