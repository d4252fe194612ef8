"""Weights with versions: published once per change, loaded elsewhere."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from corral.engine.transport.weights import SharedWeights, WeightsReader
from corral.errors import OptionError, OrderError


def weights(number: float) -> dict[str, Any]:
    return {"layer": np.full((2, 3), number, np.float32), "count": np.array(number)}


def loaded(reader: WeightsReader, store: SharedWeights) -> dict[str, Any]:
    return {name: one.tolist() for name, one in reader.load(store.published()).items()}


def listed(number: float) -> dict[str, Any]:
    return {name: one.tolist() for name, one in weights(number).items()}


@pytest.mark.parametrize("shared", [True, False])
def test_what_was_published_is_loaded(shared: bool) -> None:
    store, reader = SharedWeights(shared=shared), WeightsReader()
    for number in range(1, 5):
        assert store.publish(weights(number)) == number == store.version
        assert loaded(reader, store) == listed(number)
    store.close()


@given(st.lists(st.integers(0, 2), max_size=12))
def test_the_version_counts_changes(numbers: list[int]) -> None:
    store, reader, changes, last = SharedWeights(after=5), WeightsReader(), 5, None
    for number in numbers:
        changes += number != last
        last = number
        assert store.publish(weights(number)) == changes
        assert loaded(reader, store) == listed(number)
    store.close()


def test_a_version_can_be_loaded_until_the_next_but_one_is_published() -> None:
    store, reader = SharedWeights(), WeightsReader()
    store.publish(weights(1))
    first = store.published()
    store.publish(weights(2))
    assert reader.load(first)["count"] == 1
    store.publish(weights(3))
    with pytest.raises(OrderError, match=r"version 1 .* \(found 3\)"):
        reader.load(first)


def test_weights_of_another_shape_are_refused() -> None:
    store = SharedWeights()
    store.publish(weights(1))
    wrong = weights(2) | {"layer": np.zeros((2, 4), np.float32)}
    with pytest.raises(OptionError, match=r"'layer'.* shape \(2, 4\).* expected \(2"):
        store.publish(wrong)
    with pytest.raises(OptionError, match="other names than before: more"):
        store.publish(weights(2) | {"more": np.zeros(1)})
    assert store.version == 1


def test_weights_that_are_objects_are_refused() -> None:
    with pytest.raises(OptionError, match=r"'layer'\] has dtype object"):
        SharedWeights().publish({"layer": np.array([None])})


def test_equal_weights_with_nan_are_one_version() -> None:
    store = SharedWeights()
    for _ in range(2):
        assert store.publish(weights(np.nan)) == 1
    assert store.publish(weights(0.0)) == 2


@pytest.mark.parametrize("dtype", [np.float16, np.float64, np.complex128])
def test_a_zero_of_another_sign_is_another_version(dtype: Any) -> None:
    store, reader = SharedWeights(), WeightsReader()
    for version, number in enumerate((0.0, -0.0, -0.0), start=1):
        store.publish({"weight": np.array([number], dtype)})
        assert store.version == min(version, 2)
        found = reader.load(store.published())["weight"]
        assert np.signbit(found.real).item() == np.signbit(number)
    store.close()


def test_the_publisher_may_change_its_arrays_afterwards() -> None:
    store, reader, mine = SharedWeights(), WeightsReader(), weights(1)
    store.publish(mine)
    mine["layer"][:] = 9
    assert loaded(reader, store) == listed(1)
    assert store.publish(mine) == 2


@pytest.mark.parametrize("shared", [True, False])
def test_what_was_loaded_may_be_kept_and_changed(shared: bool) -> None:
    store, readers = SharedWeights(shared=shared), [WeightsReader(), WeightsReader()]
    store.publish(weights(1))
    kept = readers[0].load(store.published())
    for number in (2, 3):  # both buffers are written again
        store.publish(weights(number))
    assert kept["layer"].max() == 1
    readers[0].load(store.published())["layer"][:] = 9
    assert loaded(readers[1], store) == listed(3)
    store.close()
