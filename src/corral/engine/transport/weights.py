"""Weights: a policy's arrays with a version, published by the caller for the workers.

    version = store.publish(policy.weights())        in the caller, once per update
    policy.load_weights(reader.load(published))      in a worker

Two buffers alternate, so a version can be loaded until the next but one is published.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from corral.engine.transport.segment import (
    Arrays,
    Segment,
    SegmentAddress,
    open_segment,
)
from corral.errors import OptionError, OrderError

GivenWeights = Mapping[str, NDArray[Any]]
# Of a segment: the versions in the two buffers.
VERSIONS = "versions"


class PublishedWeights(NamedTuple):
    """What a worker needs to load one version.

    Attributes:
        address: The memory that they are in.
        arrays: The weights themselves, if no memory is shared.
    """

    version: int
    address: SegmentAddress | None = None
    arrays: Arrays | None = None


class SharedWeights:
    """Weights in memory that workers map.

    Args:
        after: the version before the first that is published here.
        shared: False to only count versions, for a policy that acts in the caller.
    """

    def __init__(self, after: int = 0, shared: bool = True) -> None:
        self.version = after
        self._shared = shared
        self._segment: Segment | None = None
        self._arrays: Arrays = {}
        self._shapes: dict[str, Any] = {}

    def publish(self, weights: GivenWeights) -> int:
        """Copy weights into shared memory, if they differ from the latest.

        Raises:
            OptionError: they have other names, shapes or dtypes than before.
        """
        values = {name: _array(name, array) for name, array in weights.items()}
        if self._segment is None:
            self._open(values)
        check_weights(values, self._shapes)
        latest = self._side(self.version)
        if self._arrays[VERSIONS][self.version % 2] == self.version and all(
            _equal(latest[name], array) for name, array in values.items()
        ):
            return self.version
        version = self.version + 1
        side = self._side(version)
        self._arrays[VERSIONS][version % 2] = -1  # while it is written
        for name, array in values.items():
            side[name][...] = array
        self._arrays[VERSIONS][version % 2] = self.version = version
        return version

    def _open(self, values: Arrays) -> None:
        self._shapes = {name: (one.shape, one.dtype) for name, one in values.items()}
        sides = {
            f"{side}/{name}": shape
            for side in range(2)
            for name, shape in self._shapes.items()
        }
        shapes: dict[str, Any] = {VERSIONS: ((2,), np.int64), **sides}
        self._segment = Segment(shapes, self._shared)
        self._arrays = self._segment.lend()
        self._arrays[VERSIONS][:] = -1

    def _side(self, version: int) -> Arrays:
        return _side_of(self._arrays, version, self._shapes)

    def published(self) -> PublishedWeights:
        """The latest version."""
        assert self._segment is not None, "publish comes first"
        address = self._segment.address
        arrays = None if address is not None else self._side(self.version)
        return PublishedWeights(self.version, address, arrays)

    def close(self) -> None:
        """Let go of the memory; idempotent."""
        self._arrays = {}
        if self._segment is not None:
            self._segment.close()


class WeightsReader:
    """Reads published weights, in a worker; keeps their memory mapped."""

    def __init__(self) -> None:
        self._address: SegmentAddress | None = None
        self._arrays: Arrays = {}

    def load(self, published: PublishedWeights) -> Arrays:
        """Copies of the arrays of this version, which a policy may keep and change.

        Raises:
            OrderError: newer weights have taken their place.
        """
        if published.address is None:
            return _copied(published.arrays or {})
        if published.address != self._address:
            self._arrays = open_segment(published.address)
            self._address = published.address
        version = published.version
        prefix = f"{version % 2}/"
        names = [n[len(prefix) :] for n in self._arrays if n.startswith(prefix)]
        loaded = _copied(_side_of(self._arrays, version, names))
        # Afterwards: they may have been overwritten while they were copied.
        found = int(self._arrays[VERSIONS][version % 2])
        if found != version:
            raise OrderError(
                f"version {version} of the weights is not there (found {found}); only "
                "the latest two are kept"
            )
        return loaded


def weights_of(policy: Any) -> GivenWeights:
    """The weights of a policy that has `load_weights`; raises OptionError without."""
    who, weights = type(policy).__qualname__, getattr(policy, "weights", None)
    wanted = "return a dict of arrays by name, which load_weights is given in workers"
    if not callable(weights):
        raise OptionError(f"{who} has load_weights, but no method weights(); {wanted}")
    found = weights()
    if not isinstance(found, Mapping):
        kind = type(found).__qualname__
        raise OptionError(f"{who}.weights() returned a value of type {kind}; {wanted}")
    return found


def _array(name: Any, value: Any) -> NDArray[Any]:
    """One of the weights as an array; raises OptionError if it is none."""
    if not isinstance(name, str):
        raise OptionError(f"weights() has the name {name!r}; names must be text")
    try:
        array = np.asarray(value)
    except (RuntimeError, TypeError, ValueError) as error:
        raise OptionError(
            f"weights()[{name!r}] is no array ({error}); return arrays, such as "
            "tensor.detach().cpu().numpy()"
        ) from error
    if array.dtype.hasobject:
        raise OptionError(
            f"weights()[{name!r}] has dtype object; return arrays of numbers"
        )
    return array


def _equal(one: NDArray[Any], other: NDArray[Any]) -> bool:
    """Whether arrays of the same shape and dtype are equal, bit for bit."""
    # As integers: 0.0 is not -0.0, and nan is nan.
    size = one.dtype.itemsize
    if size in (1, 2, 4, 8):
        return np.array_equal(one.view(f"u{size}"), other.view(f"u{size}"))
    return one.tobytes() == other.tobytes()


def _side_of(arrays: Arrays, version: int, names: Any) -> Arrays:
    return {name: arrays[f"{version % 2}/{name}"] for name in names}


def _copied(arrays: Arrays) -> Arrays:
    return {name: array.copy() for name, array in arrays.items()}


def check_weights(weights: GivenWeights, shapes: Mapping[str, Any]) -> None:
    """Raise OptionError if weights have not these names, shapes and dtypes."""
    if weights.keys() != shapes.keys():
        other = sorted(weights.keys() ^ shapes.keys())
        raise OptionError(
            f"the weights have other names than before: {', '.join(other[:5])}; for "
            "another net, set collector.policy to a new policy"
        )
    for name, array in weights.items():
        shape, dtype = shapes[name]
        if (array.shape, array.dtype) != (shape, dtype):
            raise OptionError(
                f"weights()[{name!r}] has shape {array.shape} and dtype {array.dtype}; "
                f"expected {shape} and {dtype}. For another net, set collector.policy "
                "to a new policy"
            )
