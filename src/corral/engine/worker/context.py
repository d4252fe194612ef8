"""What an environment can ask about its worker: `corral.this_worker()`."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from corral.errors import OrderError


@dataclass(slots=True)
class WorkerContext:
    """One worker, as the code beside the envs sees it."""

    index: int
    slots: range
    """The slots of its shard; empty under `corral.map`."""
    device: str | None = None
    resource: Any = None
    """What `per_worker` returned."""
    shared: Mapping[str, NDArray[Any]] = field(default_factory=dict)
    """Read-only arrays, one copy in memory for all workers."""
    rng: np.random.Generator = field(default_factory=np.random.default_rng)


class _Here(threading.local):
    """By thread: under backend="thread" every worker is a thread of one process."""

    context: WorkerContext | None = None


here = _Here()
"""The worker whose code this thread runs; None outside a worker."""


def this_worker() -> WorkerContext:
    """The worker that is running this code.

    Example::

        def make_env():
            return MyEnv(session=corral.this_worker().resource)

        envs = corral.make(make_env, num_envs=8, per_worker=load_session)
    """
    if here.context is None:
        raise OrderError(
            "this_worker() was called outside a worker; call it in a factory, an "
            "environment, per_worker, worker_init or a function given to corral.map"
        )
    return here.context
