"""One candidate in a process of its own, which steps only in its turns.

    benchmark ── a pool of one slot ──► its worker: CandidateEnv ──► the candidate
                 reset: build the envs · step: take a turn

Candidates cannot disturb each other: what one imports, forks, leaks or breaks stays in
its process, memory and CPU are counted per process tree, and a candidate that dies or
hangs loses its own row only. What it prints goes to a file.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from corral.core import Step
from corral.engine.pool import Pool
from corral.errors import CorralError, Fault, FaultError, OptionError
from corral.tools.bench.candidate_env import CandidateEnv
from corral.tools.bench.candidates import LOOP, BuildOrder, EnvsBuilt, TurnTimes
from corral.tools.output_file import last_output, write_output_to

KEPT_OUTPUT_BYTES = 4096
LAST_LINES = 5


class CandidateProcess:
    """A runner in its own process; a `measure.Runner` once it is built.

    Args:
        order: what to build.
        deadline: seconds it may take to build, and then for each turn.
    """

    def __init__(self, order: BuildOrder, deadline: float) -> None:
        self.order = order
        self.slots = order.num_envs
        # Every turn so far, trials included.
        self.turns: list[TurnTimes] = []
        self._deadline = deadline
        self._folder = tempfile.TemporaryDirectory()
        self._output = Path(self._folder.name, "output")
        self._pool: Pool | None = None

    def build(self) -> EnvsBuilt:
        """Have the envs built and reset."""
        built: EnvsBuilt = self._asked("start", self._opened)
        return built

    def _opened(self) -> Step:
        self._pool = Pool(
            CandidateEnv,
            1,
            backend="process",
            worker_init=partial(write_output_to, self._output),
            threads_per_worker=None,  # as many as without Corral
            reset_timeout=self._deadline,
            step_timeout=self._deadline,
        )
        return self._pool.reset(options={"order": self.order})

    def run(self, batches: int) -> float:
        """Step so many batches; return the seconds it took."""
        assert self._pool is not None
        turn: TurnTimes = self._asked("step", partial(self._pool.step, [batches]))
        self.turns.append(turn)
        return turn.seconds

    def _asked(self, command: str, ask: Callable[[], Step]) -> Any:
        """The candidate's answer; raises if it failed."""
        try:
            return ask().infos.of(0)["answer"]
        except CorralError as error:
            if error.fault is None:
                raise
            wrong = error.fault.exception
            if self.order.candidate == LOOP and isinstance(wrong, OptionError):
                raise wrong from error  # a mistake in the command line
            # Envs print, and so do dying libraries.
            output = last_output(self._output, KEPT_OUTPUT_BYTES).strip()
            fault = replace(error.fault, command=command, output=output)
            raise FaultError(self._reason(fault), fault) from error

    def _reason(self, fault: Fault) -> str:
        if isinstance(fault.exception, CorralError):
            return str(fault.exception)
        if fault.kind == "hung":
            return f"no answer within {self._deadline:g} s; --deadline allows more"
        if fault.kind != "died":
            return f"{fault.error_type}: {fault.error_text or ''}".rstrip(": ")
        name, code = fault.signal_name, fault.exit_code
        lines = fault.output.splitlines()[-LAST_LINES:]
        said = "; its last output: " + " / ".join(lines) if lines else ""
        how = f"by {name}" if name else f"with exit code {code}"
        return f"its process ended {how}{said}"

    def close(self, timeout: float = 10.0) -> None:
        """End the process and its group; idempotent, never raises."""
        if self._pool is not None:
            self._pool.close(timeout)
        self._folder.cleanup()


def close_all(processes: Iterable[CandidateProcess], timeout: float = 10.0) -> None:
    """End them all within so many seconds."""
    until = time.monotonic() + timeout
    for process in processes:
        process.close(max(0.0, until - time.monotonic()))
