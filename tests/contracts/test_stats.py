"""A pool says who was busy and what took how long, the same on every executor."""

from __future__ import annotations

import functools
import os
import signal
import time
from collections.abc import Callable
from contextlib import closing
from typing import Any

import numpy as np
import pytest

import corral
from corral import Pool
from corral.engine.faults.process_usage import run_delay

from .slow_envs import LONG, Computing, Slow, slow_third

MakePool = Callable[..., Pool]


def test_steps_and_resets_are_counted_slot_by_slot(make_pool: MakePool) -> None:
    pool = make_pool(Slow, 4)
    pool.reset()
    for _ in range(4):
        pool.step(np.zeros(4, np.int64))
    pool.step([1], slots=[2])
    stats = pool.stats()
    assert stats.step.number.tolist() == [4, 4, 5, 4]
    assert stats.steps == 17
    assert stats.reset.number.tolist() == [2, 2, 2, 2]  # same_step: after the third


def test_the_slow_slot_is_found(make_pool: MakePool) -> None:
    pool = make_pool(slow_third())
    pool.reset()
    for _ in range(3):
        pool.step(np.zeros(4, np.int64))
    stats = pool.stats()
    assert stats.slowest(1) == (2,)
    for percentile in (stats.step.p50, stats.step.p90, stats.step.p99):
        assert percentile[2] >= 0.8 * LONG
    assert stats.step.mean[2] >= LONG
    # The worker that has it was busy while it slept; it counts a batch after its end,
    # so the last one may be missing.
    (busy,) = [w.busy_seconds for w in stats.workers if 2 in w.slots]
    assert busy >= 2 * LONG


def test_slow_resets_are_told_apart_from_steps(make_pool: MakePool) -> None:
    pool = make_pool(lambda: Slow(reset=LONG), 2)
    pool.reset()
    stats = pool.stats()
    assert (stats.reset.mean >= LONG).all()
    assert np.isnan(stats.step.mean).all() and stats.steps == 0
    assert np.isnan(stats.step.p50).all()


def test_the_callers_thinking_is_not_waiting(make_pool: MakePool) -> None:
    pool = make_pool(lambda: Slow(step=LONG), 2)
    pool.reset()
    before = pool.stats()
    time.sleep(LONG)  # the policy
    pool.send(np.zeros(2, np.int64))
    pool.recv()
    stats = pool.stats().since(before)
    assert stats.policy >= LONG
    assert stats.waiting > 0
    assert stats.policy + stats.waiting + stats.copying <= stats.seconds


def test_work_done_while_slots_are_under_way_keeps_nobody_waiting(
    make_pool: MakePool,
) -> None:
    pool = make_pool(Slow, 2)
    pool.reset()
    before = pool.stats()
    pool.send(np.zeros(2, np.int64))
    time.sleep(LONG)
    pool.recv()
    stats = pool.stats().since(before)
    assert stats.overlapped >= LONG
    assert stats.policy + stats.waiting + stats.copying <= stats.seconds - LONG


def test_a_difference_tells_what_was_added(make_pool: MakePool) -> None:
    pool = make_pool(Slow, 4)
    pool.reset()
    pool.step(np.zeros(4, np.int64))
    before = pool.stats()
    pool.step(np.zeros(4, np.int64))
    added = pool.stats().since(before)
    assert added.step.number.tolist() == [1, 1, 1, 1]
    assert added.reset.number.tolist() == [0, 0, 0, 0]
    assert 0 < added.seconds < pool.stats().seconds
    assert all(0 <= worker.busy <= 1 for worker in added.workers)


def test_a_worker_that_is_being_replaced_was_not_busy_for_less_than_no_time() -> None:
    options: dict[str, Any] = {"workers": 2, "isolation": "shared"}
    make = functools.partial(Slow, step=LONG)
    with Pool(make, 2, backend="process", on_fault="restart", **options) as pool:
        pool.reset()
        for _ in range(3):
            pool.step(np.zeros(2, np.int64))
        before = pool.stats()
        os.kill(before.workers[0].pid, signal.SIGKILL)
        pool.send(np.zeros(2, np.int64))
        ready: list[int] = []
        while 0 not in ready:
            ready = pool.recv(min_slots=1).slots.tolist()
            added = pool.times().since(before).workers
            assert all(0 <= worker.busy <= 1 for worker in added)
            if ready == [1]:
                pool.send([0], slots=[1])
        if pool.waiting:
            pool.recv()


def test_workers_are_named_with_their_memory(make_pool: MakePool, backend: str) -> None:
    pool = make_pool(Slow, 4)
    workers = pool.stats().workers
    assert [slot for worker in workers for slot in worker.slots] == [0, 1, 2, 3]
    pids = {worker.pid for worker in workers}
    if backend == "process":
        assert len(pids) == 2 and os.getpid() not in pids
    else:
        assert pids == {os.getpid()}
    assert all(worker.memory and worker.memory > 2**20 for worker in workers)


def test_times_are_the_same_without_the_memory(make_pool: MakePool) -> None:
    pool = make_pool(Slow, 4)
    pool.reset()
    for _ in range(3):
        pool.step(np.zeros(4, np.int64))
    times, stats = pool.times(), pool.stats()
    assert times.step.counts.tolist() == stats.step.counts.tolist()
    assert times.steps == stats.steps == 12
    pairs = list(zip(times.workers, stats.workers, strict=True))
    assert all((one.pid, one.slots) == (two.pid, two.slots) for one, two in pairs)
    assert all(0 < one.busy_seconds <= two.busy_seconds for one, two in pairs)
    assert all(one.memory is None and two.memory for one, two in pairs)


def test_starving_is_a_fraction_of_worker_processes_alone(
    make_pool: MakePool, backend: str
) -> None:
    pool = make_pool(Slow, 4)
    pool.reset()
    before = pool.stats()
    pool.step(np.zeros(4, np.int64))
    for stats in (pool.stats(), pool.stats().since(before)):
        for worker in stats.workers:
            if backend != "process" or run_delay(worker.pid) is None:
                assert worker.starved is None and worker.starved_seconds is None
                continue
            assert 0 <= worker.starved <= 1
            assert 0 <= worker.starved_seconds <= stats.seconds


@pytest.mark.skipif(
    run_delay(os.getpid()) is None or not hasattr(os, "sched_setaffinity"),
    reason="nobody counts it here",
)
def test_workers_that_share_one_core_starve() -> None:
    core = min(os.sched_getaffinity(0))
    with corral.Pool(
        Computing,
        num_envs=2,
        backend="process",
        workers=2,
        worker_init=lambda: os.sched_setaffinity(0, {core}),
    ) as pool:
        pool.reset()
        before = pool.stats()
        pool.step(np.zeros(2, np.int64))
        stats = pool.stats().since(before)
    # One of them stood by while the other computed, or they took turns.
    assert sum(worker.starved_seconds for worker in stats.workers) > LONG / 2
    assert "% starved" in str(stats)


def test_they_read_as_text() -> None:
    with closing(corral.make(Slow, num_envs=2, backend="serial")) as envs:
        assert "none yet" in str(envs.stats())
        envs.reset()
        envs.step(np.zeros(2, np.int64))
        text = str(envs.stats())
    assert "2 steps in" in text and "slots 0-1" in text and "p99" in text


def test_stats_of_a_closed_pool_are_refused(make_pool: MakePool) -> None:
    pool = make_pool(Slow, 2)
    pool.close()
    with pytest.raises(corral.errors.ClosedError):
        pool.stats()
