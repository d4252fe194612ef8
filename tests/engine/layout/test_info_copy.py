"""Copies of what an env holds: equal, apart, and as many objects as there were."""

from __future__ import annotations

import threading
from collections import OrderedDict, deque
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

from corral.engine.layout.info_copy import owned_info


@dataclass
class Point:
    at: list[int]


class Handle:
    """It would be closed twice if there were two of it."""

    closed = 0

    def __del__(self) -> None:
        Handle.closed += 1


class Session:
    def close(self) -> None: ...


class Stubborn:
    def __deepcopy__(self, memo: Any) -> Any:
        raise RuntimeError("no")


class Leaving:
    def __deepcopy__(self, memo: Any) -> Any:
        raise SystemExit(3)

    def __reduce__(self) -> Any:
        raise SystemExit(4)


@pytest.mark.parametrize("value", [None, True, 3, 2.5, "word", b"bytes", np.int8(4)])
def test_what_never_changes_is_not_copied(value: Any) -> None:
    assert owned_info(value) is value


@pytest.mark.parametrize(
    "value",
    [
        [1, [2]],
        {"a": {1, 2}, "b": ([1], "x")},
        OrderedDict(a=[1]),
        deque([1], maxlen=3),
        bytearray(b"ab"),
        Point([1]),
    ],
)
def test_what_can_change_is_another_object_of_the_same_type(value: Any) -> None:
    copy = owned_info(value)
    assert copy == value and type(copy) is type(value) and copy is not value


def test_arrays_of_objects_are_copied_to_the_last_one() -> None:
    array = np.empty(2, object)
    array[:] = [[1], [2]]
    copy = owned_info(array)
    array[0].append(5)
    assert copy.tolist() == [[1], [2]]


def test_what_is_one_object_stays_one() -> None:
    part: list[Any] = [1]
    copy = owned_info([part, (part,), {"a": part}, Point(part)])
    assert copy[0] is copy[1][0] is copy[2]["a"] is copy[3].at is not part


def test_what_holds_itself_can_be_copied() -> None:
    ring: list[Any] = []
    ring.append((ring, {"ring": ring}))
    copy = owned_info(ring)
    assert copy is not ring and copy[0][0] is copy and copy[0][1]["ring"] is copy
    assert owned_info(ring[0])[0][0][1]["ring"] is not ring


@pytest.mark.parametrize("kind", [Handle, Session, threading.Lock, Leaving])
def test_what_owns_something_or_cannot_be_copied_is_handed_on(kind: Any) -> None:
    value, beside = kind(), [1]
    copy = owned_info({"value": value, "beside": beside})
    assert copy["value"] is value and copy["beside"] is not beside


def test_nothing_is_closed_twice() -> None:
    before = Handle.closed
    handle = Handle()
    owned_info([handle])
    assert Handle.closed == before


def test_what_refuses_to_be_copied_is_pickled() -> None:
    value = Stubborn()
    assert type(owned_info(value)) is Stubborn and owned_info(value) is not value


def test_a_tensor_in_a_graph_is_copied() -> None:
    torch = pytest.importorskip("torch")
    tensor = torch.ones(2, requires_grad=True) * 2
    copy = owned_info([tensor])[0]
    with torch.no_grad():
        tensor += 1
    assert copy.tolist() == [2.0, 2.0]
