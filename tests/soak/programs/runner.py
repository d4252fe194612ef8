"""Plays programs one after the other, as a supervisor asks for them.

    supervisor ◄── "ready" ──────────────────────────────── runner
               ── one line of JSON for each program ──►
               ◄── one line of JSON: its mistakes ─────

It looks after every program whether something was left: a process, a thread, a
descriptor, shared memory. SIGUSR1 writes the stacks of all threads to the log.
"""

from __future__ import annotations

import faulthandler
import gc
import importlib
import json
import logging
import os
import signal
import sys
import time
import warnings
from pathlib import Path

from tests.soak.marked_census import Census, take_census
from tests.soak.programs.players import play
from tests.soak.programs.program import Program

MARK_VARIABLE = "CORRAL_PROGRAMS"
"""The variable that all processes of a runner have in their environment."""
FORKED_WORKERS = "CORRAL_PROGRAMS_FORKED_WORKERS"
"""Set in tests: workers are forked from a template, see `tests/prepared_scripts.py`."""
TESTS = Path(__file__).parents[2]
KILLED_EXIT_SECONDS = 3.0
"""Seconds for what was killed to be gone."""


def main() -> None:
    """Read programs, write mistakes, until there are no more."""
    faulthandler.enable()
    faulthandler.register(signal.SIGUSR1, all_threads=True)
    # What environments print and log belongs to the log, not among the answers.
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    logging.basicConfig(level=logging.ERROR)
    warnings.simplefilter("ignore")
    mark = f"{MARK_VARIABLE}={os.environ[MARK_VARIABLE]}"
    owner = os.getpid()
    if FORKED_WORKERS in os.environ:
        sys.path.append(str(TESTS))
        importlib.import_module("prepared_scripts").prepare_workers()
    print("ready", file=answers, flush=True)
    for line in sys.stdin:
        program = Program.from_json(line)
        before = take_census(mark)
        began = time.monotonic()
        mistakes = play(program)
        if os.getpid() != owner:
            # A child that an environment forked: it must not answer in our name.
            os._exit(70)
        mistakes += left_behind(before, mark)
        seconds = time.monotonic() - began
        print(json.dumps({"mistakes": mistakes, "seconds": seconds}), file=answers)
        answers.flush()


def left_behind(before: Census, mark: str) -> list[str]:
    """What is there now and was not before, in words."""
    deadline = time.monotonic() + KILLED_EXIT_SECONDS
    gc.collect()
    lost = before.lost(take_census(mark))
    while lost and time.monotonic() < deadline:
        time.sleep(0.02)
        lost = before.lost(take_census(mark))
    return [f"leak: {what}" for what in lost]


if __name__ == "__main__":
    main()
