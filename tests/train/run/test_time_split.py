"""Where the time went: parts that add up, whatever was counted."""

import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest

from corral import Pool
from corral.train.run.machine import cpu_seconds
from corral.train.run.time_split import TIME_PARTS, split_of


@pytest.fixture(scope="module")
def real():
    """What a pool with one worker counts."""
    with Pool("CartPole-v1", 1, backend="serial") as pool:
        return pool.stats()


def stats(real, policy=6.0, waiting=3.0, step=4.0, busy=5.0, seconds=10.0):
    """Two workers, busy for so many seconds together."""
    worker = replace(real.workers[0], busy_seconds=busy / 2)
    return replace(
        real,
        seconds=seconds,
        policy=policy,
        waiting=waiting,
        step=replace(real.step, seconds=np.array([step])),
        reset=replace(real.reset, seconds=np.zeros(1)),
        workers=(worker, worker),
    )


OWN = {"learning": 3.0, "evaluating": 1.0, "saving": 0.5}


def test_what_the_caller_counted_is_no_policy(real):
    split = split_of(stats(real), OWN)
    assert split["policy"] == pytest.approx(0.15)
    assert split["learning"] == pytest.approx(0.3)
    assert split["env"] == pytest.approx(0.2)  # four seconds on two workers
    assert split["waiting"] == pytest.approx(0.05)
    assert sum(split.values()) == pytest.approx(1.0)


@pytest.mark.parametrize(
    "odd",
    [
        {"policy": 0.0},
        {"step": 1000.0},
        {"waiting": 1000.0},
        {"busy": 0.0},
        {"seconds": 0.0, "policy": 0.0, "waiting": 0.0, "step": 0.0},
    ],
)
def test_no_part_is_ever_negative(real, odd):
    split = split_of(stats(real, **odd), dict.fromkeys(OWN, 0.0))
    assert set(split) == set(TIME_PARTS)
    assert min(split.values()) >= 0.0


def test_what_a_process_computed_counts_when_it_has_ended():
    before = cpu_seconds()
    code = "import time\nwhile time.process_time() < 0.1: pass"
    subprocess.run([sys.executable, "-c", code], check=True)
    assert cpu_seconds() - before >= 0.09
