"""Has programs played by runners, and watches them: one that hangs is ended.

A runner that hung or died is replaced, so the programs after it are not lost.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import subprocess
import sys
import tempfile
import time
import uuid
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

from tests.soak.programs.program import Program
from tests.soak.programs.runner import MARK_VARIABLE

PROGRAM_SECONDS = 60.0
"""Seconds for one program, many times what any takes."""
MAX_LOG_CHARACTERS = 6000
"""Characters of the log that are shown with a hang or a death."""


@dataclass(slots=True)
class ProgramResult:
    """What came of one program."""

    program: Program
    mistakes: list[str] = field(default_factory=list)
    seconds: float = 0.0

    @property
    def sort(self) -> str:
        """The first mistake's sort; "" if there was none."""
        return self.mistakes[0].partition(":")[0] if self.mistakes else ""


class ProgramRunner:
    """A process that plays programs; started when it is needed, and again after it."""

    def __init__(self, limit: float = PROGRAM_SECONDS) -> None:
        self._limit = limit
        self._process: subprocess.Popen[str] | None = None
        self._mark = ""
        self._log: IO[bytes] | None = None
        self._verdicts: Any = None
        self._program: Program | None = None
        self._began = 0.0

    # One program at a time ------------------------------------------------------------

    @property
    def busy(self) -> bool:
        """Whether it has a program."""
        return self._program is not None

    @property
    def output(self) -> IO[str]:
        """Where its answers come from."""
        assert self._process is not None and self._process.stdout is not None
        return self._process.stdout

    def give(self, program: Program) -> None:
        """Have it play a program."""
        if self._process is None:
            self._start()
        assert self._process is not None and self._process.stdin is not None
        self._program, self._began = program, time.monotonic()
        self._process.stdin.write(program.to_json() + "\n")
        self._process.stdin.flush()

    def late(self) -> bool:
        """Whether its program has taken too long."""
        return self.busy and time.monotonic() - self._began > self._limit

    def answered(self) -> ProgramResult:
        """Its answer, or what is known of its end."""
        program = self._taken()
        line = self.output.readline()
        if line:
            return ProgramResult(program, **json.loads(line))
        assert self._process is not None
        code = self._process.wait()
        text = f"death: the program ended its own process, exit code {code}\n"
        return self._end(program, text)

    def stopped(self) -> ProgramResult:
        """Give up its program, with the stacks of where it hangs."""
        program = self._taken()
        assert self._process is not None
        with contextlib.suppress(ProcessLookupError):
            os.kill(self._process.pid, signal.SIGUSR1)
            time.sleep(0.5)
        text = f"hang: nothing for {self._limit:.0f} s\n"
        return self._end(program, text + "\n".join(self._family_in_words()))

    def _taken(self) -> Program:
        assert self._program is not None
        program, self._program = self._program, None
        return program

    def _end(self, program: Program, text: str) -> ProgramResult:
        assert self._log is not None
        log = Path(self._log.name).read_text(errors="replace")[-MAX_LOG_CHARACTERS:]
        self.close()
        return ProgramResult(
            program, [f"{text}\n{log}"], time.monotonic() - self._began
        )

    # Its process ----------------------------------------------------------------------

    def _start(self) -> None:
        self._mark = uuid.uuid4().hex
        self._log = tempfile.NamedTemporaryFile(prefix="corral-programs-")  # noqa: SIM115
        self._verdicts = tempfile.TemporaryDirectory(prefix="corral-programs-")
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.soak.programs.runner"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._log,
            text=True,
            env={
                **os.environ,
                MARK_VARIABLE: self._mark,
                "PYTHONFAULTHANDLER": "1",
                # What is found out about these environments is nobody else's.
                "CORRAL_VERDICTS": self._verdicts.name,
            },
            start_new_session=True,
        )
        self.output.readline()  # "ready": what it imports is not the program's time

    def close(self) -> None:
        """End it, and whatever carries its mark."""
        if self._process is None:
            return
        process, self._process = self._process, None
        assert process.stdin is not None and process.stdout is not None
        with contextlib.suppress(BrokenPipeError):
            process.stdin.close()
        if not self._has_ended(process, 5.0):
            process.kill()
            process.wait()
        process.stdout.close()
        for pid in self._family():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        if self._log is not None:
            self._log.close()
            self._verdicts.cleanup()

    def _has_ended(self, process: subprocess.Popen[str], seconds: float) -> bool:
        if self.busy or self._program is not None:
            return False
        try:
            process.wait(seconds)
        except subprocess.TimeoutExpired:
            return False
        return True

    def _family(self) -> list[int]:
        """The processes that were started by it, directly or not."""
        mark = f"{MARK_VARIABLE}={self._mark}".encode()
        found = []
        for entry in Path("/proc").iterdir():
            if entry.name.isdigit():
                with contextlib.suppress(OSError):
                    if mark in (entry / "environ").read_bytes().split(b"\0"):
                        found.append(int(entry.name))
        return found

    def _family_in_words(self) -> list[str]:
        words = []
        for pid in self._family():
            with contextlib.suppress(OSError):
                status = Path(f"/proc/{pid}/stat").read_text().split(")")[1].split()[0]
                asleep_in = Path(f"/proc/{pid}/wchan").read_text()
                words.append(f"process {pid}: {status}, in {asleep_in or 'user code'}")
        return words


def run(programs: Any, jobs: int, limit: float = PROGRAM_SECONDS) -> Any:
    """Have programs played, so many at a time; yields verdicts as they come.

    Args:
        programs: any iterable of them.
        jobs: how many runners.
        limit: seconds for one program.
    """
    waiting = iter(programs)
    runners = [ProgramRunner(limit) for _ in range(jobs)]
    try:
        for runner in runners:
            _next(waiting, runner)
        while any(runner.busy for runner in runners):
            busy = {runner.output: runner for runner in runners if runner.busy}
            ready, _, _ = select.select(list(busy), [], [], 0.5)
            for output in ready:
                yield busy[output].answered()
                _next(waiting, busy[output])
            for runner in runners:
                if runner.late():
                    yield runner.stopped()
                    _next(waiting, runner)
    finally:
        for runner in runners:
            runner.close()


def _next(waiting: Any, runner: ProgramRunner) -> None:
    program = next(waiting, None)
    if program is not None:
        runner.give(program)
