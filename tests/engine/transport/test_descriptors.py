"""Descriptors are made room for before they are needed, or refused with the numbers."""

from __future__ import annotations

import resource
import subprocess
import sys

import pytest
from running import SOURCE

from corral.engine.transport.descriptors import (
    SPARE_DESCRIPTORS,
    needed_limit,
    open_count,
)


def test_arithmetic_of_limits() -> None:
    assert needed_limit(1000, soft=1024, hard=4096) == 1024  # it fits as it is
    assert needed_limit(1025, soft=1024, hard=4096) == 1025 + SPARE_DESCRIPTORS
    assert needed_limit(4096, soft=1024, hard=4096) == 4096
    assert needed_limit(4097, soft=1024, hard=4096) is None
    infinite = resource.RLIM_INFINITY
    assert needed_limit(10**6, soft=1024, hard=infinite) == 10**6 + SPARE_DESCRIPTORS
    assert needed_limit(10**6, soft=infinite, hard=infinite) == infinite


def test_what_is_open_is_counted() -> None:
    before = open_count()
    with open("/dev/null"), open("/dev/null"):
        assert open_count() == before + 2
    assert open_count() == before


SCRIPT = """
import os, resource, sys
from corral.engine.transport import descriptors
soft, hard, count = map(int, sys.argv[1:])
resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
try:
    descriptors.make_room(count)
except OSError as error:
    print(error.errno, error)
else:
    held = [os.open("/dev/null", os.O_RDONLY) for _ in range(count)]
    print(resource.getrlimit(resource.RLIMIT_NOFILE), descriptors.original_limit)
    descriptors.restore_limit(64)
    print(resource.getrlimit(resource.RLIMIT_NOFILE))
"""


def said(soft: int, hard: int, count: int) -> list[str]:
    command = [sys.executable, "-c", SCRIPT, str(soft), str(hard), str(count)]
    environ = {"PYTHONPATH": str(SOURCE)}
    finished = subprocess.run(
        command, env=environ, check=True, capture_output=True, text=True
    )
    return finished.stdout.splitlines()


def test_soft_limit_is_raised_as_far_as_needed_and_no_further() -> None:
    assert said(64, 128, 20) == ["(64, 128) None", "(64, 128)"]
    assert said(64, 128, 110) == ["(128, 128) 64", "(64, 128)"]
    raised, back = said(64, 1024, 110)
    assert raised.endswith(" 64") and 110 < int(raised[1:].split(",")[0]) < 200
    assert back == "(64, 1024)"


def test_what_the_hard_limit_forbids_is_refused_with_the_numbers() -> None:
    (line,) = said(64, 128, 200)
    assert "200 more descriptors are needed and " in line
    assert "may have no more than 128 (its hard limit; the soft one is 64)" in line


@pytest.mark.parametrize("limit", [64, 128])
def test_nothing_is_changed_where_there_is_room(limit: int) -> None:
    assert said(limit, 128, 1)[0] == f"({limit}, 128) None"
