"""Several sinks as one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from corral.train.sinks.sink import Sink


class Fanout:
    """Hands everything to each of its sinks, in order."""

    def __init__(self, sinks: Sequence[Sink]) -> None:
        self._sinks = list(sinks)

    def write(self, metrics: Mapping[str, float], step: int) -> None:
        """Hand the metrics on."""
        for sink in self._sinks:
            sink.write(metrics, step)

    def close(self) -> None:
        """Close all of them, whichever of them cannot; then raise the first error."""
        errors: list[Exception] = []
        while self._sinks:
            try:
                self._sinks.pop(0).close()
            except Exception as error:
                errors.append(error)
        if errors:
            raise errors[0]
