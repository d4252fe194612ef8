"""How many cores there are, who runs which slots, and when workers pay."""

from __future__ import annotations

import math
import os

import pytest

from corral.executors.assign import (
    Placement,
    cgroup_limit,
    choose,
    shards,
    usable_cores,
)

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
    monkeypatch.setattr("corral.executors.assign.cgroup_limit", lambda: limit)
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


def test_long_steps_go_to_processes_quick_ones_stay():
    slow = choose(8, 4, 1e-3, threads=False)
    assert (slow.backend, slow.workers) == ("process", 4)
    quick = choose(2, 4, 1e-6, threads=False)
    assert (quick.backend, quick.workers) == ("serial", 1)


def test_many_quick_steps_are_worth_workers():
    backends = [choose(count, 2, 5e-6, threads=False).backend for count in (2, 256)]
    assert backends == ["serial", "process"]


def test_threads_are_for_envs_that_ask_for_them():
    assert choose(8, 4, 1e-3, threads=True).backend == "thread"
    assert choose(2, 4, 1e-6, threads=True).backend == "serial"


def test_there_are_never_more_workers_than_slots():
    assert choose(3, 16, 1e-3, threads=False).workers == 3


def test_one_core_has_nobody_to_share_with():
    placement = choose(64, 1, 1.0, threads=False)
    assert placement.backend == "serial"
    assert "one usable core" in placement.reason


def test_the_reason_tells_the_measurement_and_the_estimate():
    placement = choose(8, 2, 250e-6, threads=False)
    assert placement.step_time == 250e-6
    assert "a step takes 250 µs" in placement.reason
    assert "in the caller" in placement.reason and "2 workers" in placement.reason


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
