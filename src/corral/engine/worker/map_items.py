"""Items of `map`, in a worker: the function that is mapped, and the shared arrays."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from numpy.typing import NDArray

from corral.engine.transport.segment import SegmentAddress, open_segment
from corral.engine.worker.commands import MapCall, MapItem
from corral.engine.worker.context import WorkerContext
from corral.engine.worker.serialization import opened


class MapItems:
    """Runs the items of one worker, `map` after `map`."""

    def __init__(self, context: WorkerContext) -> None:
        self._context = context
        self._first = context.shared
        self._call: MapCall | None = None
        self._ready = False
        self._function: Any = None
        self._segments: dict[SegmentAddress, Mapping[str, NDArray[Any]]] = {}

    def run(self, asked: MapItem) -> Any:
        """Call the function with an item."""
        if asked.call is not None:
            self._call, self._ready = asked.call, False
        if not self._ready:
            # Here, so that what cannot be opened is the fault of every item, and no
            # item is run by the function before.
            assert self._call is not None
            self._begin(self._call)
            self._ready = True
        return self._function(opened(asked.item))

    def _begin(self, call: MapCall) -> None:
        """Open what a call has brought."""
        self._segments = {
            address: self._segments.get(address) or _read_only(open_segment(address))
            for address in call.segments
        }
        arrays = dict(self._first)
        for more in (*self._segments.values(), call.arrays):
            arrays |= more
        self._context.shared, self._context.version = arrays, call.version
        self._function = opened(call.function)


def _read_only(arrays: dict[str, NDArray[Any]]) -> dict[str, NDArray[Any]]:
    for array in arrays.values():
        array.flags.writeable = False
    return arrays
