"""What a vector env offers beside the API that it follows."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from corral.core import Step
from corral.engine.pool import Pool, Stats
from corral.errors import OrderError


class PoolAttributes:
    """A vector env over a pool that keeps the Step it returned last."""

    pool: Pool
    _last: Step | None

    @property
    def valid(self) -> NDArray[np.bool_]:
        """False where the last step's row is filler: a next-step reset, or a fault."""
        return self._latest().valid.copy()

    @property
    def started(self) -> NDArray[np.bool_]:
        """True where the last observation is the first of an episode."""
        return self._latest().started.copy()

    def stats(self) -> Stats:
        """Who was busy and what took how long, since the envs were made."""
        return self.pool.stats()

    def _latest(self) -> Step:
        if self._last is None:
            raise OrderError("nothing was received yet: reset first")
        return self._last
