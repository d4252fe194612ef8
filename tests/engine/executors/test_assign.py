"""How many cores there are, who runs which slots, and when workers pay."""

from __future__ import annotations

import math
import os
from dataclasses import replace

import pytest

from corral.engine.executors.assign import (
    MAX_PROCESSES,
    MAX_THREADS,
    Placement,
    batch_time,
    cgroup_limit,
    choose,
    gil_share,
    shards,
    stretch,
    usable_cores,
    useful_processes,
)
from corral.engine.worker.probe import Measurement

# Words --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("backend", "workers", "text"),
    [
        ("serial", 1, "4 slots, in the caller: asked for"),
        ("process", 1, "4 slots, 1 process: asked for"),
        ("thread", 1, "4 slots, 1 thread: asked for"),
        ("process", 2, "4 slots, 2 processes: asked for"),
    ],
)
def test_a_placement_counts_in_plain_english(backend, workers, text):
    assert str(Placement(backend, workers, 4, "asked for")) == text


# Cores --------------------------------------------------------------------------------


def write(path, text):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


@pytest.mark.parametrize(
    ("text", "cores"),
    [("max 100000\n", math.inf), ("150000 100000\n", 1.5), ("400000 100000", 4.0)],
)
def test_a_cgroup_of_version_2_limits_the_cores(text, cores, tmp_path):
    write(tmp_path / "cpu.max", text)
    assert cgroup_limit(tmp_path) == cores


@pytest.mark.parametrize(
    ("quota", "cores"), [("-1\n", math.inf), ("50000\n", 0.5), ("300000\n", 3.0)]
)
def test_a_cgroup_of_version_1_limits_the_cores(quota, cores, tmp_path):
    write(tmp_path / "cpu" / "cpu.cfs_quota_us", quota)
    write(tmp_path / "cpu" / "cpu.cfs_period_us", "100000\n")
    assert cgroup_limit(tmp_path) == cores


@pytest.mark.parametrize("text", ["", "nonsense", "1 2 3", "many 100000"])
def test_without_a_readable_limit_there_is_none(text, tmp_path):
    assert cgroup_limit(tmp_path) == math.inf
    write(tmp_path / "cpu.max", text)
    assert cgroup_limit(tmp_path) == math.inf


@pytest.mark.parametrize(
    ("affinity", "limit", "cores"),
    [(8, math.inf, 8), (8, 2.0, 2), (8, 2.5, 3), (8, 0.5, 1), (1, 4.0, 1)],
)
def test_the_smaller_of_affinity_and_limit_counts(affinity, limit, cores, monkeypatch):
    monkeypatch.setattr(
        os, "sched_getaffinity", lambda _: set(range(affinity)), raising=False
    )
    monkeypatch.setattr("corral.engine.executors.assign.cgroup_limit", lambda: limit)
    assert usable_cores() == cores


# Shards -------------------------------------------------------------------------------


def test_shards_are_contiguous_and_differ_by_one_slot_at_most():
    for slots in range(1, 40):
        for workers in range(1, slots + 1):
            parts = shards(slots, workers)
            assert [slot for part in parts for slot in part] == list(range(slots))
            sizes = [len(part) for part in parts]
            assert len(sizes) == workers and max(sizes) - min(sizes) <= 1


def test_the_first_shards_are_the_larger_ones():
    assert shards(8, 3) == [range(0, 3), range(3, 6), range(6, 8)]


# Choice -------------------------------------------------------------------------------


def computing(step_time, **declared):
    """A step that never waits."""
    return Measurement(step_time, 1.0, **declared)


def waiting(step_time=1e-3, fraction=0.02, **declared):
    """A step that sleeps, or talks to a server, most of its time."""
    return Measurement(step_time, fraction, **declared)


def releasing(measured, gain=2.0):
    """The same from an env that says it releases the GIL, and what that gave."""
    return replace(measured, threads=True, thread_gain=gain)


def where(placement):
    return placement.backend, placement.workers


def test_long_steps_go_to_processes_quick_ones_stay():
    assert where(choose(8, 4, computing(1e-3))) == ("process", 4)
    assert where(choose(2, 4, computing(1e-6))) == ("serial", 1)


def test_many_quick_steps_are_worth_workers():
    backends = [choose(count, 2, computing(5e-6)).backend for count in (2, 256)]
    assert backends == ["serial", "process"]


def test_there_are_never_more_workers_than_slots():
    assert choose(3, 16, computing(1e-3)).workers == 3
    assert choose(3, 16, waiting()).workers == 3
    assert choose(3, 16, releasing(waiting())).workers == 3


@pytest.mark.parametrize("cores", [1, 2])
@pytest.mark.parametrize("threads", [False, True])
def test_envs_that_fork_go_to_processes_however_quick_they_are(cores, threads):
    forking = computing(1e-6, forks=True, threads=threads, thread_gain=2.0)
    placement = choose(2, cores, forking)
    assert where(placement) == ("process", cores)
    assert "an env forked its process" in placement.reason


def test_one_core_has_nobody_to_share_with():
    placement = choose(64, 1, computing(1.0))
    assert placement.backend == "serial"
    assert "one usable core" in placement.reason


def test_the_reason_tells_the_measurement_and_the_estimate():
    placement = choose(8, 2, computing(250e-6))
    assert (placement.step_time, placement.computing) == (250e-6, 1.0)
    assert "a step takes 250 µs, so a batch of 8" in placement.reason
    assert "in the caller" in placement.reason and "2 processes" in placement.reason


# Threads ------------------------------------------------------------------------------


def test_threads_are_for_envs_that_ask_for_them():
    for measured in (computing(1e-3), waiting()):
        undeclared = replace(measured, thread_gain=2.0)
        assert choose(8, 4, undeclared).backend == "process"
        assert choose(8, 4, releasing(measured)).backend == "thread"


def test_threads_are_not_taken_where_the_caller_is_quicker():
    assert choose(2, 4, releasing(computing(1e-6))).backend == "serial"


@pytest.mark.parametrize("gain", [0.4, 1.0, 1.5])
def test_an_env_that_asks_for_threads_and_holds_the_gil_gets_processes(gain):
    placement = choose(8, 4, releasing(computing(1e-3), gain))
    assert placement.backend == "process"
    assert f"two threads did {gain:.2f} times the work of one" in placement.reason
    assert "processes and" in placement.reason and "threads;" in placement.reason


def test_a_gil_that_two_threads_hardly_notice_stops_sixteen():
    # It is held for a quarter of a step: there is work for four threads at most.
    measured = releasing(computing(1e-3), gain=2 / (1 + 0.25**2))
    assert choose(64, 2, measured).backend == "thread"
    assert choose(64, 16, measured).backend == "process"


def test_envs_that_wait_get_more_threads_than_cores():
    placement = choose(8, 2, releasing(waiting(1.06e-3)))
    assert where(placement) == ("thread", 8)
    assert "a step takes 1.06 ms, 2% of it computing" in placement.reason


def test_there_are_as_many_threads_as_keep_the_cores_computing():
    placement = choose(64, 2, releasing(waiting(10e-3, 0.4), gain=1.9))
    assert 2 < placement.workers <= 5


def test_threads_are_bounded():
    assert choose(5000, 2, releasing(waiting(1.0, 1e-9))).workers <= MAX_THREADS


def test_envs_that_wait_get_a_process_each_up_to_a_limit():
    assert where(choose(8, 2, waiting())) == ("process", 8)
    assert where(choose(32, 2, waiting(50e-3))) == ("process", 32)
    assert choose(1000, 2, waiting(50e-3)).workers <= MAX_PROCESSES


def test_envs_that_were_seen_to_wait_get_threads_and_the_reason_says_so():
    seen = replace(releasing(waiting(50e-3)), declared=False)
    placement = choose(32, 2, seen)
    assert where(placement) == ("thread", 32)
    assert "the env waits with the GIL released" in placement.reason


def test_processes_that_are_asked_for_are_more_than_cores_where_envs_wait():
    count, why = useful_processes(32, 2, waiting(50e-3))
    assert count == 32
    assert "more of them than cores (at 25 MiB each: 800 MiB)" in why
    assert useful_processes(32, 2, computing(50e-3)) == (2, "")
    assert useful_processes(32, 2, waiting(50e-6)) == (2, "")
    assert useful_processes(32, 2, Measurement(0.0)) == (2, "")


def test_envs_that_wait_have_company_even_on_one_core():
    assert where(choose(4, 1, waiting())) == ("process", 4)
    assert where(choose(64, 1, releasing(waiting(5e-3))))[0] == "thread"


def test_waiting_for_microseconds_is_worth_nothing():
    assert choose(8, 2, releasing(waiting(5e-6, 0.4))).backend == "serial"


# Estimates ----------------------------------------------------------------------------


def test_one_thread_queues_for_nothing():
    assert stretch(1, 0.7) == pytest.approx(1.0)


@pytest.mark.parametrize("workers", [2, 3, 16])
def test_steps_that_hold_the_gil_throughout_go_one_by_one(workers):
    assert stretch(workers, 1.0) == pytest.approx(workers)
    assert stretch(workers, 0.0) == 1.0


@pytest.mark.parametrize("share", [0.0, 0.1, 0.5, 0.9, 1.0])
def test_the_share_of_the_gil_is_found_from_what_two_threads_gain(share):
    gain = 2 / stretch(2, share)
    assert gil_share(computing(1e-3, thread_gain=gain)) == pytest.approx(share)


def test_nobody_holds_the_gil_while_waiting():
    assert gil_share(waiting(1e-3, 0.02, thread_gain=1.0)) == 0.02


def test_cores_are_shared_by_those_who_compute():
    quarter = waiting(1e-3, 0.25)
    assert batch_time("process", 64, 2, 64, quarter) > 64 * 0.25e-3 / 2
    assert batch_time("process", 64, 64, 64, quarter) < 64 * 0.25e-3 / 2


# Words --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("placement", "text"),
    [
        (Placement("serial", 1, 4, "why"), "4 slots, in the caller: why"),
        (Placement("thread", 2, 4, "why"), "4 slots, 2 threads: why"),
        (Placement("process", 2, 4, "why"), "4 slots, 2 processes: why"),
    ],
)
def test_a_placement_reads_as_a_sentence(placement, text):
    assert str(placement) == text
