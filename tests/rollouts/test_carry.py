"""Carries of any structure are read, written and joined by row."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import pytest
from contracts.reference import same

from corral.errors import OptionError
from corral.rollouts import carry as carries


class Pair(NamedTuple):
    hidden: Any
    cell: Any


def nested(rows: int, value: float = 0.0) -> Any:
    return {
        "lstm": Pair(np.full((rows, 2), value), np.full((rows, 3), value, np.float32)),
        "rest": [np.full(rows, int(value)), (None,)],
    }


def test_rows_are_read_and_written_wherever_they_are() -> None:
    carry = nested(4)
    carries.write_rows(carry, [1, 3], nested(2, 7.0))
    assert same(carries.rows_of(carry, [3, 1]), nested(2, 7.0))
    assert same(carries.rows_of(carry, [0, 2]), nested(2))
    assert isinstance(carry["lstm"], Pair)


def test_a_copy_shares_nothing() -> None:
    carry = nested(2)
    copied = carries.copied(carry)
    carries.write_rows(copied, [0], nested(1, 1.0))
    assert same(carry, nested(2))


def test_carries_are_joined_row_by_row() -> None:
    joined = carries.joined([nested(2, 1.0), nested(1, 5.0)])
    assert same(carries.rows_of(joined, [0, 1]), nested(2, 1.0))
    assert same(carries.rows_of(joined, [2]), nested(1, 5.0))


def test_no_carry_stays_none() -> None:
    assert carries.rows_of(None, [0]) is None
    assert carries.copied(None) is None
    assert carries.joined([None, None]) is None


def test_tensors_are_joined_too() -> None:
    torch = pytest.importorskip("torch")
    with torch.inference_mode():
        parts = [torch.ones(2, 3), torch.zeros(1, 3)]
    joined = carries.joined(parts)
    assert joined.tolist() == [[1, 1, 1], [1, 1, 1], [0, 0, 0]]


@pytest.mark.parametrize("leaf", [np.zeros((3, 2)), np.zeros(()), 5.0])
def test_a_leaf_without_a_row_each_is_refused(leaf: Any) -> None:
    with pytest.raises(OptionError, match=r"expected \(2, \.\.\.\)"):
        carries.check_rows({"a": leaf}, 2)
