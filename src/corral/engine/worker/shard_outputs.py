"""Where a shard announces what it has done."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from corral.engine.worker.letters import Letter


@dataclass(slots=True)
class ShardOutputs:
    """Where a shard announces what it has done."""

    done: memoryview
    """One ticket per slot of the shard."""
    ring: Callable[..., object] | None
    """Called once per finished slot, or with a count; None where no thread waits."""
    inform: Callable[[], object]
    """Called when infos were written to columns."""
    post: Callable[[Letter], None]
    times: NDArray[np.void]
    """[shard] of DURATIONS_DTYPE: how long steps and resets took."""
    vitals: NDArray[np.float64]
    """What the parent can see of this worker: see `layout.plan`."""
    episode: NDArray[np.int64]
    """[shard, 8]: what is known of each slot's episode; see `layout.plan`."""
