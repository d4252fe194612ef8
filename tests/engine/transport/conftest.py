"""Real processes for the tests of this room, ended whatever happens."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest

import corral.engine.transport.block

SOURCE = Path(corral.engine.transport.block.__file__).parents[3]


@pytest.fixture
def start() -> Iterator[Callable[..., subprocess.Popen[str]]]:
    """Run a script in a clean Python with pipes to its stdin and stdout."""
    processes: list[subprocess.Popen[str]] = []

    def start_one(
        script: str,
        *arguments: object,
        pass_fds: Sequence[int] = (),
        **environ: str,
    ) -> subprocess.Popen[str]:
        process = subprocess.Popen(
            [sys.executable, "-c", textwrap.dedent(script), *map(str, arguments)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            pass_fds=pass_fds,
            env={**os.environ, "PYTHONPATH": str(SOURCE), **environ},
        )
        processes.append(process)
        return process

    yield start_one
    for process in processes:
        process.kill()
        process.communicate()


@pytest.fixture
def until() -> Callable[[Callable[[], object]], None]:
    """Return once a condition holds that another process or thread brings about."""

    def wait_until(condition: Callable[[], object]) -> None:
        deadline = time.monotonic() + 10
        while not condition():
            assert time.monotonic() < deadline, "did not happen within 10 s"
            os.sched_yield()

    return wait_until
