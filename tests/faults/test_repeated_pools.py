"""Making and closing pools again and again uses up nothing."""

from __future__ import annotations

import gc
import threading

import numpy as np
import psutil
import pytest

import corral


def cycle(backend: str) -> None:
    with corral.Pool("CartPole-v1", 4, backend=backend) as pool:
        pool.reset()
        pool.step(np.zeros(4, int))
        pool.call("render")


def census() -> dict[str, object]:
    gc.collect()
    process = psutil.Process()
    return {
        "descriptors": process.num_fds(),
        "threads": sorted(thread.name for thread in threading.enumerate()),
        "children": process.children(recursive=True),
        "mappings": sum("corral" in part.path for part in process.memory_maps(False)),
    }


@pytest.mark.parametrize("backend", ["serial", "thread", "process"])
@pytest.mark.parametrize(
    "cycles",
    [
        12,
        pytest.param(200, marks=[pytest.mark.slow, pytest.mark.fresh_workers]),
    ],
    ids=str,
)
@pytest.mark.filterwarnings("ignore:.*render.*")
def test_cycles_leave_everything_as_it_was(backend, cycles):
    cycle(backend)
    before, memory = census(), psutil.Process().memory_info().rss
    for _ in range(cycles):
        cycle(backend)
    assert census() == before
    # Roughly: a leaked block, arena or thread stack would be some hundred KiB a cycle.
    assert psutil.Process().memory_info().rss - memory < 8 * 2**20
