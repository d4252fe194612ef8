from typing import Any

import numpy as np
from numpy.typing import NDArray

class Recorder:
    def __init__(
        self, records: NDArray[np.void], obs: NDArray[np.generic] | None
    ) -> None: ...
    def mark(self) -> None: ...
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
