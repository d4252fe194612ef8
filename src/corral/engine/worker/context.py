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
    """One worker, as the code beside the envs sees it.

    Attributes:
        slots: The slots of its shard; empty under `corral.map` and in a crew.
        resource: What `per_worker` returned.
        shared: Read-only arrays, one copy in memory for all workers.
        version: How often a crew has changed `shared`.
    """

    index: int
    slots: range
    device: str | None = None
    resource: Any = None
    shared: Mapping[str, NDArray[Any]] = field(default_factory=dict)
    rng: np.random.Generator = field(default_factory=np.random.default_rng)
    version: int = 0


class _Here(threading.local):
    """By thread: under backend="thread" every worker is a thread of one process."""

    context: WorkerContext | None = None


# The worker whose code this thread runs; None outside a worker.
here = _Here()


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
