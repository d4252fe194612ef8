"""One candidate in a process of its own, which steps only in its turns.

    benchmark ── Popen(python -c bootstrap) ──► candidate: own session ──► its workers
       ├── a socket: orders and batches there, turns back
       └── lifeline: closes when the benchmark's process is gone

Candidates cannot disturb each other: what one imports, forks, leaks or breaks stays in
its process, memory and CPU are counted per process tree, and a candidate that dies or
hangs loses its own row only.
"""

from __future__ import annotations

import multiprocessing
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable
from contextlib import suppress
from typing import Any

from corral.engine.executors.reaping import end, has_ended, wait_until
from corral.engine.faults.report import signal_name
from corral.engine.transport.lifeline import Lifeline
from corral.engine.worker import serialization
from corral.errors import Fault, FaultError, OptionError, RemoteTraceback
from corral.tools.bench.candidate_main import BOOTSTRAP
from corral.tools.bench.candidates import (
    BuildOrder,
    CandidateFailure,
    EnvsBuilt,
    TurnTimes,
)

LIVENESS_CHECK_SECONDS = 0.25
"""Seconds between two looks at whether the process still lives: its forked children
may hold the socket open when it is gone."""
LAST_LINES = 5


class CandidateProcess:
    """A runner in its own process; a `measure.Runner` once it is built."""

    def __init__(self, order: BuildOrder, deadline: float) -> None:
        self.order = order
        self.slots = order.num_envs
        self.turns: list[TurnTimes] = []
        """Every turn so far, trials included."""
        self.deadline = deadline
        """Seconds it may take to build, and then for each turn."""
        self._lifeline = Lifeline()
        self._output = tempfile.TemporaryFile()  # noqa: SIM115
        self._connection, theirs = multiprocessing.Pipe()
        with theirs:
            self._process = _start(theirs.fileno(), self._lifeline, self._output)

    def build(self) -> EnvsBuilt:
        """Have the envs built and reset."""
        built: EnvsBuilt = self._ask(self.order, "start")
        return built

    def run(self, batches: int) -> float:
        """Step so many batches; return the seconds it took."""
        turn: TurnTimes = self._ask(batches, "step")
        self.turns.append(turn)
        return turn.seconds

    def _ask(self, request: Any, command: str) -> Any:
        with suppress(OSError):  # gone already: the wait below finds out how
            self._connection.send(request)
        answer = self._answer(command)
        if not isinstance(answer, CandidateFailure):
            return answer
        text, cause = answer.text, RemoteTraceback(answer.traceback)
        if answer.usage:
            raise OptionError(text) from cause
        raise self._fault("raised", command, text, answer.traceback) from cause

    def _answer(self, command: str) -> Any:
        until = time.monotonic() + self.deadline
        try:
            while not self._connection.poll(LIVENESS_CHECK_SECONDS):
                if has_ended(self._process):
                    break
                if time.monotonic() > until:
                    end(self._process)
                    text = (
                        f"no answer within {self.deadline:g} s; --deadline allows more"
                    )
                    raise self._fault("hung", command, text)
            if self._connection.poll():
                return self._connection.recv()
        except (EOFError, ConnectionError):
            pass
        wait_until(self._process, time.monotonic() + 5.0)
        raise self._fault("died", command, self._how_it_ended())

    def _how_it_ended(self) -> str:
        code = end(self._process)
        how = f"by {name}" if (name := signal_name(code)) else f"with exit code {code}"
        lines = self._last_output().splitlines()[-LAST_LINES:]
        said = "; its last output: " + " / ".join(lines) if lines else ""
        return f"its process ended {how}{said}"

    def _fault(
        self, kind: str, command: str, text: str, traceback: str | None = None
    ) -> FaultError:
        code = self._process.returncode
        fault = Fault(
            kind,
            command,
            exit_code=code,
            signal_name=signal_name(code),
            error_text=text,
            traceback=traceback,
            output=self._last_output(),
        )
        return FaultError(text, fault)

    def _last_output(self, size: int = 4096) -> str:
        """The end of what it printed: envs print, and so do dying libraries."""
        with suppress(ValueError):  # closed
            length = self._output.seek(0, os.SEEK_END)
            self._output.seek(max(0, length - size))
            return self._output.read().decode(errors="replace").strip()
        return ""

    def stop(self) -> None:
        """Ask it to close its envs and end; `close` waits for that."""
        with suppress(OSError):
            self._connection.send(None)

    def close(self, timeout: float = 10.0) -> None:
        """End the process and its group; idempotent, never raises."""
        self.stop()
        wait_until(self._process, time.monotonic() + timeout)
        end(self._process)
        self._lifeline.close()
        self._connection.close()
        self._output.close()


def close_all(processes: Iterable[CandidateProcess], timeout: float = 10.0) -> None:
    """End them all at the same time."""
    processes = list(processes)
    for process in processes:
        process.stop()
    until = time.monotonic() + timeout
    for process in processes:
        process.close(max(0.0, until - time.monotonic()))


def _start(descriptor: int, lifeline: Lifeline, output: Any) -> subprocess.Popen[bytes]:
    descriptors = (descriptor, lifeline.read_descriptor)
    command = [
        sys.executable,
        *subprocess._args_from_interpreter_flags(),  # type: ignore[attr-defined]
        "-c",
        BOOTSTRAP,
        ascii(serialization.absolute_path()),
        *map(str, descriptors),
    ]
    return subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=output,
        stderr=output,
        pass_fds=descriptors,
        start_new_session=True,
    )
