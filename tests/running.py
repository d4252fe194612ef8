"""What several rooms' tests share: scripts run for real, and what they leave."""

from __future__ import annotations

import gc
import os
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Sequence
from pathlib import Path
from types import FrameType
from typing import Any

import psutil
from prepared_scripts import ScriptTemplate
from prepared_workers import NO_MARK, TEMPLATE_PIDS

import corral

SOURCE = Path(corral.__file__).parents[1]
PACKAGE = os.path.dirname(corral.__file__)

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


def children() -> list[psutil.Process]:
    """The processes that tests have started, and those that they have; zombies too."""
    found = psutil.Process().children(recursive=True)
    return [process for process in found if process.pid not in TEMPLATE_PIDS]


def open_descriptors() -> int:
    """How many this process has, without those of garbage of earlier tests."""
    gc.collect()
    return len(os.listdir("/proc/self/fd"))


def wait_until(condition: Callable[[], object], seconds: float = 20.0) -> None:
    """Return once a condition holds that another process or thread brings about."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, f"did not happen within {seconds} s"
        time.sleep(0.005)


def ctrl_c() -> None:
    """What Python's own handler of SIGINT does."""
    raise KeyboardInterrupt


def at_moment(
    moment: int, operation: Callable[[], object], handler: Callable[[], object] = ctrl_c
) -> bool:
    """Run an operation, and a handler at its n-th moment; False if it has fewer.

    A moment is one at which Python may run a signal handler: the beginning of one of
    Corral's functions, its end, or the return of a C function that it has called.
    """
    count = 0

    def watch(frame: FrameType, event: str, _: object) -> None:
        nonlocal count
        if event != "c_call" and frame.f_code.co_filename.startswith(PACKAGE):
            count += 1
            if count == moment:
                handler()

    sys.setprofile(watch)
    try:
        operation()
    finally:
        sys.setprofile(None)
    return count >= moment


def environment(mark: str = NO_MARK) -> dict[str, str]:
    """Variables of a script."""
    return {**os.environ, "PYTHONPATH": str(SOURCE), "TEST_MARK": mark}


class Script:
    """A Python process of its own, whose descendants can be told by a mark."""

    def __init__(
        self,
        command: Sequence[str],
        stdin: str | None,
        template: ScriptTemplate | None = None,
        **options: Any,
    ):
        self.mark = uuid.uuid4().hex
        environ = environment(self.mark) | options.pop("environ", {})
        if template is not None:
            self.process = template.fork(Path(command[-1]), environ)
        else:
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
        # Byte by byte: `communicate` does not see what `readline` has read ahead.
        text = bytearray()
        while not text.endswith(b"\n"):
            byte = os.read(self.process.stdout.fileno(), 1)
            if not byte:
                break
            text += byte
        assert text, self.process.communicate()[1]
        return text.decode().rstrip("\n")


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
