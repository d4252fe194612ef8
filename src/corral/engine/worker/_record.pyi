from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

def forks() -> int: ...

class Recorder:
    def __init__(
        self,
        records: NDArray[np.void],
        obs: NDArray[np.generic] | None,
        done: memoryview,
        ring: Callable[[], object] | None,
        times: NDArray[np.void] | None = None,
        vitals: NDArray[np.float64] | None = None,
        guard: Callable[[], None] | None = None,
    ) -> None: ...
    @property
    def at(self) -> int: ...
    def run(
        self,
        row: int,
        slot: int,
        stride: int,
        steps: list[Callable[[Any], Any]],
        actions: Iterator[Any],
        care: bytearray,
        ticket: int,
        /,
    ) -> tuple[int, Any] | None: ...
    def expect(
        self,
        keys: list[str],
        types: list[type],
        targets: list[NDArray[Any]],
        columns: tuple[int, ...],
        written: list[tuple[int, ...] | None],
        first: int,
        slots: int,
        /,
    ) -> bool: ...
    def mark(self) -> None: ...
    def start(self, row: int, slot: int, seed: int, valid: bool, /) -> None: ...
    def reset_took(self, slot: int, seconds: float, /) -> None: ...
    def record(
        self,
        row: int,
        slot: int,
        obs: Any,
        reward: Any,
        terminated: Any,
        truncated: Any,
        /,
    ) -> int: ...
