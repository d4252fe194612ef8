"""A signal handler that raises while a pool is made leaves nothing behind.

Python runs handlers between any two instructions of the main thread. Here the exception
comes from a trace function instead, so that each test knows at which line it came.
"""

from __future__ import annotations

import gc
import os
import sys
import threading
from pathlib import Path
from types import FrameType
from typing import Any

import psutil
import pytest

import corral
from corral.engine.executors.starting import uninterrupted

ROOMS = ("engine/executors", "engine/transport", "engine/pool", "api")
SOURCE = Path(corral.__file__).parent
MOMENTS = 16


class Alarm(BaseException):
    """What the handler raises."""


class Tracer:
    """Raises an alarm at the so-manieth line of ours that is run for the first time."""

    def __init__(self, moment: int | None) -> None:
        self._moment = moment
        self._rooms = tuple(f"{SOURCE / room}{os.sep}" for room in ROOMS)
        self.seen: dict[tuple[str, int], None] = {}

    def __call__(self, frame: FrameType, event: str, _: Any) -> Any:
        if not frame.f_code.co_filename.startswith(self._rooms):
            return None
        place = frame.f_code.co_filename, frame.f_lineno
        # Not while an exception is handled: CPython 3.11 would keep that one for ever,
        # and all its frames, if a trace function raises at the end of its handler.
        handling = sys.exc_info()[0] is not None
        if event == "line" and place not in self.seen and not handling:
            self.seen[place] = None
            if len(self.seen) == self._moment:
                raise Alarm(place)
        return self


def traced(moment: int | None, make: Any) -> Tracer:
    tracer = Tracer(moment)
    sys.settrace(tracer)
    try:
        make().close()
    finally:
        sys.settrace(None)
    return tracer


def left_behind() -> tuple[list[str], list[psutil.Process], int]:
    gc.collect()
    names = [thread.name for thread in threading.enumerate()]
    children = psutil.Process().children(recursive=True)  # zombies too
    return names, children, len(os.listdir("/proc/self/fd"))


def made(backend: str) -> Any:
    workers = None if backend == "auto" else 2
    return corral.make("CartPole-v1", num_envs=2, backend=backend, workers=workers)


@pytest.mark.first
@pytest.mark.parametrize("backend", ["process", "thread", "auto"])
def test_an_exception_at_any_line_of_the_start_leaves_nothing(backend):
    made(backend).close()  # what is opened once stays
    before = left_behind()
    lines = len(traced(None, lambda: made(backend)).seen)
    assert left_behind() == before
    count = int(os.environ.get("MOMENTS", MOMENTS if backend == "process" else 4))
    for step in range(count):
        moment = 1 + step * (lines - 1) // count
        try:
            traced(moment, lambda: made(backend))
        except Alarm as alarm:
            place = alarm.args[0]
        else:
            continue  # less was run this time
        assert left_behind() == before, place


def test_what_is_undisturbed_is_done_whole_and_the_exception_follows():
    steps: list[str] = []
    go = threading.Event()

    def work() -> None:
        steps.append("begun")
        go.wait()
        steps.append("done")

    def interrupt(frame: FrameType, event: str, _: Any) -> Any:
        if steps == ["begun"]:
            go.set()
            raise Alarm
        return interrupt

    sys.settrace(interrupt)
    try:
        with pytest.raises(Alarm):
            uninterrupted(lambda: (work(), None))
    finally:
        sys.settrace(None)
        go.set()
    assert steps in (["begun", "done"], [])


def test_what_undisturbed_work_raises_is_raised():
    def work() -> None:
        raise ValueError("mine")

    with pytest.raises(ValueError, match="mine"):
        uninterrupted(work)
