"""Arrays that a crew shares with its workers, one copy of each, and their version.

arrays.update(values)      in place: workers see it without a message
arrays.share(values)       new memory, which workers open with their next call
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from corral.engine.transport.segment import Arrays, Segment
from corral.engine.transport.shared_arrays import shareable
from corral.engine.worker.commands import MapCall
from corral.errors import OptionError


class CrewArrays:
    """The shared arrays of one crew.

    Args:
        first: what the workers were started with, as the caller can write to it.
        across_processes: whether workers are processes.

    Attributes:
        version: How often they were changed.
    """

    def __init__(
        self, first: Mapping[str, NDArray[Any]], across_processes: bool
    ) -> None:
        self.version = 0
        self._first = first
        self._across_processes = across_processes
        # The latest last.
        self._later: list[tuple[Segment, Arrays]] = []

    def update(self, given: Mapping[str, Any]) -> int:
        """Write new values; returns the version."""
        arrays = dict(self._first)
        for _, lent in self._later:
            arrays |= lent
        values = {name: np.asarray(value) for name, value in given.items()}
        for name, value in values.items():
            _check_fits(name, value, arrays)
        for name, value in values.items():
            arrays[name][...] = value
        self.version += 1
        return self.version

    def share(self, given: Mapping[str, Any]) -> int:
        """Copy values into new memory; returns the version."""
        values = shareable(given)
        shapes = {name: (one.shape, one.dtype) for name, one in values.items()}
        segment = Segment(shapes, self._across_processes)
        lent = segment.lend()
        for name, value in values.items():
            lent[name][...] = value
        kept = [one for one in self._later if not one[1].keys() <= lent.keys()]
        self._later = [*kept, (segment, lent)]
        self.version += 1
        return self.version

    def call(self, function: Any) -> MapCall:
        """What workers get with their first item of a `map`."""
        segments, arrays = [], dict[str, NDArray[Any]]()
        for segment, lent in self._later:
            if segment.address is not None:
                segments.append(segment.address)
            else:  # views that cannot be written to
                arrays |= {n: np.broadcast_to(a, a.shape) for n, a in lent.items()}
        return MapCall(function, self.version, tuple(segments), arrays)

    def close(self) -> None:
        """Let go of the memory."""
        self._first, self._later = {}, []


def _check_fits(name: str, value: NDArray[Any], arrays: Arrays) -> None:
    """Refuse what cannot be written into the array of that name."""
    another = f"crew.share({name}=...) shares another one"
    if name not in arrays:
        raise OptionError(
            f"update({name}=...): the crew shares no such array; its arrays are: "
            f"{', '.join(arrays) or 'none'}. {another}"
        )
    old = arrays[name]
    if value.shape != old.shape or not np.can_cast(value.dtype, old.dtype, "same_kind"):
        raise OptionError(
            f"update({name}=...) has shape {value.shape} and dtype {value.dtype}; the "
            f"shared array has {old.shape} and {old.dtype}. {another}"
        )
