"""The recorder writes one slot's outcome into its record and, for plain arrays, the obs.

It is called once per env step, so it has a C twin under the same name: in Python its
eleven stores cost 1 µs, a sixth of a CartPole step; in C 0.06 µs.

Guarantees: a record is complete when `record` returns with neither OBS nor REWARD set;
what it could not store plainly it reports, and the caller stores it the careful way.
"""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from collections.abc import Callable

ENDED = 1
"""The episode is over."""
OBS = 2
"""The observation was not written: not a plain array of the leaf's dtype and shape."""
REWARD = 4
"""The reward was not written: not a plain number."""


class PythonRecorder:
    """Writes records; slots are counted from the shard's first."""

    def __init__(
        self, records: NDArray[np.void], obs: NDArray[np.generic] | None
    ) -> None:
        """Take views [2, shard, ...]; `obs` only if the space is one plain leaf."""
        self._obs = obs
        self._dtype = obs.dtype if obs is not None else None
        self._shape = obs.shape[2:] if obs is not None else ()
        # A memoryview stores a scalar in 30 ns, an array of a record's field in 130 ns.
        self._rows = [
            {name: memoryview(records[name][row]) for name in records.dtype.names or ()}
            for row in (0, 1)
        ]
        self._mark = time.perf_counter()

    def mark(self) -> None:
        """Start the clock of the next slot's step time."""
        self._mark = time.perf_counter()

    def record(
        self,
        row: int,
        slot: int,
        obs: Any,
        reward: Any,
        terminated: Any,
        truncated: Any,
    ) -> int:
        """Store one transition; returns what is left to do, and whether it ENDED."""
        left = 0
        if (
            type(obs) is np.ndarray
            and obs.dtype is self._dtype
            and obs.shape == self._shape
        ):
            self._obs[row, slot] = obs  # type: ignore[index]
        else:
            left = OBS
        new, old = self._rows[row], self._rows[1 - row]
        fresh = old["terminated"][slot] or old["truncated"][slot]
        total = 0.0 if fresh else old["episode_return"][slot]
        if isinstance(reward, (float, int)):
            new["reward"][slot] = reward
            total += reward
        else:
            left |= REWARD
        new["episode_return"][slot] = total
        new["episode_length"][slot] = 1 if fresh else old["episode_length"][slot] + 1
        new["seed"][slot] = old["seed"][slot]
        new["terminated"][slot] = terminated = bool(terminated)
        new["truncated"][slot] = truncated = bool(truncated)
        new["started"][slot] = False
        new["valid"][slot] = True
        now = time.perf_counter()
        new["step_time"][slot] = now - self._mark
        self._mark = now
        return left | ENDED if terminated or truncated else left


def _choose() -> tuple[Callable[..., Any], str]:
    if os.environ.get("CORRAL_PURE_PYTHON") == "1":
        return PythonRecorder, "python"
    try:
        from corral.workers._record import Recorder
    except ImportError:
        return PythonRecorder, "python"
    return Recorder, "c"


Recorder, KIND = _choose()
