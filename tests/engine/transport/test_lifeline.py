"""Workers end with their parent, however it went, and take their children along.

Every process of a family holds the write end of one pipe, `family`: when that hangs
up, all of them are gone.
"""

from __future__ import annotations

import os
import select
import subprocess
from collections.abc import Callable, Iterator

import pytest
from running import open_descriptors

from corral.engine.transport import doorbell
from corral.engine.transport.lifeline import Lifeline

Start = Callable[..., "subprocess.Popen[str]"]

PARENT = """
import os, signal, subprocess, sys
from corral.engine.transport.lifeline import Lifeline

family, worker_script, fork = int(sys.argv[1]), sys.argv[2], sys.argv[3] == "True"
lifeline = Lifeline()
descriptors = [family, lifeline.read_descriptor]
worker = subprocess.Popen(
    [sys.executable, "-c", worker_script, *map(str, descriptors)],
    pass_fds=descriptors, start_new_session=True, stdout=subprocess.PIPE, text=True,
)
print(worker.stdout.readline(), end="", flush=True)
if fork and os.fork() == 0:
    os.close(family)
    print("forked", flush=True)
    sys.stdin.read()
    os._exit(0)
way = sys.stdin.readline().strip()
if way == "exit":
    sys.exit()
if way == "close":
    lifeline.close()
    os.close(family)
sys.stdin.read()
"""

WORKER = """
import signal, subprocess, sys
from corral.engine.transport import doorbell
from corral.engine.transport.block import Block
from corral.engine.transport.lifeline import watch

family, descriptor = int(sys.argv[1]), int(sys.argv[2])
block = Block.create(128, shared=False)
bell = doorbell.create(block.memory, 0)
"""

STUCK = (
    WORKER
    + """
subprocess.Popen(
    [sys.executable, "-c", "import signal; signal.pause()"], pass_fds=[family]
)
watch(descriptor, block.memory, 64, 0, grace=0.05)
print("ready", flush=True)
"""
)

STUCK_IN_PYTHON = STUCK + "signal.pause()"

STUCK_IN_C = STUCK + "import ctypes; ctypes.PyDLL(None).pause()"

TIDY = (
    WORKER
    + """
watch(descriptor, block.memory, 64, 0, grace=1000.0)
print("ready", flush=True)
assert not bell.wait(1)
assert block.memory.cast("I")[16] == 1
bell.close()
block.close()
import os
os.write(family, b"tidy")
"""
)

needs_extension = pytest.mark.skipif(
    not doorbell.HAS_FUTEX, reason="the C extension is not built"
)
PURE = [pytest.param("0", marks=needs_extension, id="C"), pytest.param("1", id="twin")]


class Family:
    """A parent, its worker, and the worker's own child."""

    def __init__(self, start: Start) -> None:
        self._start = start
        self.alive, self._family = os.pipe()

    def found(self, worker: str, pure: str, fork: bool = False) -> None:
        self.parent: subprocess.Popen[str] = self._start(
            PARENT,
            self._family,
            worker,
            fork,
            pass_fds=[self._family],
            CORRAL_PURE_PYTHON=pure,
        )
        os.close(self._family)
        assert self.parent.stdout is not None
        assert self.parent.stdout.readline() == "ready\n"
        if fork:
            assert self.parent.stdout.readline() == "forked\n"

    def tell(self, way: str) -> None:
        if way == "kill":
            self.parent.kill()
            return
        assert self.parent.stdin is not None
        self.parent.stdin.write(way + "\n")
        self.parent.stdin.flush()

    def last_words(self) -> bytes:
        """What was written until nobody of the family was left."""
        words = b""
        while True:
            ready, _, _ = select.select([self.alive], [], [], 10)
            assert ready, "somebody of the family is still alive after 10 s"
            chunk = os.read(self.alive, 100)
            if not chunk:
                return words
            words += chunk


@pytest.fixture
def family(start: Start) -> Iterator[Family]:
    family = Family(start)
    yield family
    os.close(family.alive)


@pytest.mark.parametrize("pure", PURE)
@pytest.mark.parametrize("way", ["kill", "exit", "close"])
def test_worker_and_its_child_end_with_the_parent(
    family: Family, way: str, pure: str
) -> None:
    family.found(STUCK_IN_PYTHON, pure)
    family.tell(way)
    assert family.last_words() == b""


@needs_extension
def test_worker_stuck_in_c_with_the_gil_ends_too(family: Family) -> None:
    family.found(STUCK_IN_C, pure="0")
    family.tell("kill")
    assert family.last_words() == b""


@pytest.mark.parametrize("pure", PURE)
def test_worker_may_tidy_up_within_its_grace(family: Family, pure: str) -> None:
    family.found(TIDY, pure)
    family.tell("kill")
    assert family.last_words() == b"tidy"


@pytest.mark.parametrize("pure", PURE)
def test_forked_child_does_not_keep_the_workers_alive(
    family: Family, pure: str
) -> None:
    family.found(STUCK_IN_PYTHON, pure, fork=True)
    family.tell("kill")
    assert family.last_words() == b""


def test_close_twice_gives_both_ends_back() -> None:
    before = open_descriptors()
    lifeline = Lifeline()
    lifeline.close()
    lifeline.close()
    assert open_descriptors() == before


@needs_extension
def test_watching_nothing_is_refused() -> None:
    block = memoryview(bytearray(128))
    with pytest.raises(OSError, match="Bad file descriptor"):
        doorbell._doorbell.watch(10**6, block, 64, 0, 1.0)
