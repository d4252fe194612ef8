"""Threads of the caller that only wait do not wait on the workers' cores."""

from __future__ import annotations

import ctypes
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from running import wait_until

from corral import Pool
from corral.engine.executors import openmp
from corral.engine.executors.openmp import HelperThreads

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.skipif(
    not openmp.loaded(), reason="no GNU OpenMP is loaded that can be paused"
)
TASKS = Path("/proc/self/task")


@pytest.fixture
def helper() -> Iterator[str]:
    """The thread that a parallel region of two leaves behind."""
    threads = torch.get_num_threads()
    torch.set_num_threads(2)
    yield parallel_region()
    torch.set_num_threads(threads)


def parallel_region() -> str:
    """The number of the thread that works beside ours, in the runtime that is paused.

    Told by the threads themselves: others may be started or end at any time.
    """
    inside: set[int] = set()
    note = ctypes.CFUNCTYPE(None, ctypes.c_void_p)(
        lambda _: inside.add(threading.get_native_id())
    )
    openmp.loaded()[0].GOMP_parallel(note, None, 2, 0)
    (helper,) = inside - {threading.get_native_id()}
    return str(helper)


def compute() -> float:
    return float(torch.ones(400, 400).mm(torch.ones(400, 400)).sum())


def is_there(helper: str) -> bool:
    return (TASKS / helper).exists()


def goes_home(helper: str) -> None:
    """It has been waited for; the kernel may show it for a moment longer."""
    wait_until(lambda: not is_there(helper))


def batches(helpers: HelperThreads, seconds: float) -> None:
    """One batch that took so long, and the beginning of another."""
    helpers.before_batch()
    helpers.after_batch()
    helpers._batch = seconds
    helpers.before_batch()


def test_idle_helpers_are_sent_home_and_hired_again(helper: str) -> None:
    expected = compute()
    batches(HelperThreads(workers=2, cores=2), openmp.MIN_BATCH_SECONDS)
    goes_home(helper)
    assert compute() == expected and torch.get_num_threads() == 2


@pytest.mark.parametrize(
    ("workers", "seconds"),
    [(2, openmp.MIN_BATCH_SECONDS / 2), (1, openmp.MIN_BATCH_SECONDS)],
)
def test_helpers_stay_where_nobody_needs_their_cores(
    helper: str, workers: int, seconds: float
) -> None:
    batches(HelperThreads(workers, cores=2), seconds)
    assert is_there(helper)


def test_a_pool_of_processes_sends_them_home_while_it_steps(
    helper: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(openmp, "MIN_BATCH_SECONDS", 0.0)
    with Pool("CartPole-v1", 2, backend="process", workers=2) as pool:
        pool.reset(seed=0)
        pool._executor._helpers._spare = 0
        pool.step(np.zeros(2, np.int64))
        goes_home(helper)


def test_where_going_home_takes_long_it_is_not_asked_for_a_while(
    helper: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(openmp, "MAX_PAUSE_SECONDS", 0.0)
    monkeypatch.setattr(openmp, "RETRY_AFTER_BATCHES", 2)
    helpers = HelperThreads(workers=2, cores=2)
    batches(helpers, openmp.MIN_BATCH_SECONDS)
    goes_home(helper)
    another = parallel_region()
    for _ in range(openmp.RETRY_AFTER_BATCHES):
        helpers.before_batch()
        assert parallel_region() == another
    helpers.before_batch()
    goes_home(another)


@pytest.mark.parametrize("missing", [["torch", "torch._C"], ["torch._C"]])
def test_nothing_is_looked_for_before_torch_is_there(
    monkeypatch: pytest.MonkeyPatch, missing: list[str]
) -> None:
    helpers = HelperThreads(workers=2, cores=2)
    with monkeypatch.context() as patch:
        for name in missing:  # without the second one it is being imported
            patch.delitem(sys.modules, name)
        helpers.before_batch()
        assert helpers._runtimes is None
    helpers.before_batch()
    assert helpers._runtimes
