"""What several rooms' tests share: scripts run for real, and what they leave."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import psutil
import pytest

import corral

SOURCE = Path(corral.__file__).parents[1]

ENV = """
import gymnasium as gym, numpy as np, os, sys, time

class Env(gym.Env):
    observation_space = gym.spaces.Box(-1, 1, (2,))
    action_space = gym.spaces.Discrete(2)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return np.zeros(2, np.float32), {}

    def step(self, action):
        return np.zeros(2, np.float32), 1.0, False, False, {}

    def pid(self):
        return os.getpid()
"""


def wait_until(condition: Callable[[], object], seconds: float = 20.0) -> None:
    """Return once a condition holds that another process or thread brings about."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, f"did not happen within {seconds} s"
        time.sleep(0.005)


class Script:
    """A Python process of its own, whose descendants can be told by a mark."""

    def __init__(self, command: Sequence[str], stdin: str | None, **options: Any):
        self.mark = uuid.uuid4().hex
        environ = {**os.environ, "PYTHONPATH": str(SOURCE), "TEST_MARK": self.mark}
        environ.update(options.pop("environ", {}))
        self.process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=environ,
            start_new_session=True,
            **options,
        )
        self._stdin = stdin
        self.stdout = self.stderr = ""

    def finish(self, code: int | None = 0, seconds: float = 50.0) -> str:
        """Wait for its end; returns what it printed."""
        self.stdout, self.stderr = self.process.communicate(self._stdin, seconds)
        assert code is None or self.process.returncode == code, self.stderr
        return self.stdout

    def kill(self, number: int = signal.SIGKILL) -> None:
        self.process.send_signal(number)

    def family(self) -> list[psutil.Process]:
        """Every process that carries the mark, the script itself included."""
        return processes_with(self.mark)

    def line(self) -> str:
        """The next line it prints."""
        assert self.process.stdout is not None
        text = self.process.stdout.readline()
        assert text, self.process.communicate()[1]
        return text.rstrip("\n")


def processes_with(mark: str) -> list[psutil.Process]:
    """The processes whose environment holds the mark."""
    found = []
    for process in psutil.process_iter():
        try:
            if process.environ().get("TEST_MARK") == mark:
                found.append(process)
        except psutil.Error:
            continue
    return found


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[..., Script]]:
    """Start Python on a script written to tmp_path, or as `arguments` say."""
    scripts: list[Script] = []

    def start_one(
        code: str,
        *flags: str,
        arguments: Sequence[str] | None = None,
        stdin: str | None = None,
        **options: Any,
    ) -> Script:
        path = tmp_path / "script.py"
        path.write_text(ENV + textwrap.dedent(code))
        command = [sys.executable, *flags, *(arguments or [str(path)])]
        scripts.append(
            Script(command, stdin, cwd=options.pop("cwd", tmp_path), **options)
        )
        return scripts[-1]

    yield start_one
    for script in scripts:
        script.process.kill()
        if script.process.stdout is not None and not script.process.stdout.closed:
            script.process.communicate()
        for process in script.family():
            process.kill()


@pytest.fixture
def run(start: Callable[..., Script]) -> Callable[..., str]:
    """Run a script to its end; returns what it printed."""

    def run_one(code: str, *flags: str, **options: Any) -> str:
        return start(code, *flags, **options).finish()

    return run_one
