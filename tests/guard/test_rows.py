"""Rows, infos and seeds are what they were when the guard was recorded.

See `record.py` for when that may be done again.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from tests.guard import real, recorded, seeding
from tests.guard.case import EXECUTORS
from tests.guard.cases import CASES, missing

ROWS = recorded.read(recorded.ROWS)
PLAYS = [(name, one) for name, case in CASES.items() for one in case.executors]
PURE = (
    *("serial:pool/walk", "serial:pool/letters", "process:pool/rooms"),
    *("thread:pool/steered", "serial:make/walk", "serial:Collector"),
)


@pytest.mark.parametrize(("name", "executor"), PLAYS)
def test_rows_are_the_recorded_ones(name, executor):
    case = CASES[name]
    absent = missing(case.needs)
    if absent:
        pytest.skip(f"{', '.join(absent)} is not installed")
    assert case.on(executor) == ROWS[name]


def test_rows_of_the_python_twins_are_the_recorded_ones():
    environ = {**os.environ, "CORRAL_PURE_PYTHON": "1"}
    shown = subprocess.run(
        [sys.executable, "-m", "tests.guard.cases", *PURE],
        capture_output=True,
        text=True,
        env=environ,
        cwd=Path(__file__).parents[2],
        timeout=120,
    )
    assert shown.returncode == 0, shown.stderr
    played = json.loads(shown.stdout)
    assert played == {one: ROWS[one.partition(":")[2]] for one in PURE}


def test_every_case_is_recorded_and_nothing_else():
    assert ROWS.keys() == CASES.keys()


def test_seeds_are_the_recorded_ones():
    assert json.loads(json.dumps(seeding.seeds())) == recorded.read(recorded.SEEDS)


@pytest.mark.parametrize("env", real.ENVS)
def test_rows_of_gymnasiums_envs_are_close_to_the_recorded_ones(env):
    """Their last bits may be the machine's; all executors have the same ones."""
    played = [real.rows(env, dict(EXECUTORS[one])) for one in ("serial", "process")]
    for name, part in played[0].items():
        np.testing.assert_array_equal(part, played[1][name])
    summary, kept = real.summary(played[0]), recorded.read(recorded.REAL)[env]
    assert summary["ended"] == kept["ended"] and summary["seed"] == kept["seed"]
    np.testing.assert_allclose(summary["obs"], kept["obs"], rtol=1e-3, atol=1e-3)
    np.testing.assert_allclose(summary["reward"], kept["reward"], rtol=1e-3)
