"""What the system refuses is one error with the numbers, and nothing is left open."""

from __future__ import annotations

import gc
import multiprocessing
import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import psutil
import pytest
from running import Script, children

import corral
from corral.engine.executors import spawn
from corral.errors import StartError, WorkerDied

BACKENDS = ["serial", "thread", "process"]


@pytest.fixture(autouse=True)
def nothing_left() -> Iterator[None]:
    gc.collect()
    before = psutil.Process().num_fds()
    yield
    gc.collect()
    assert not children()
    assert psutil.Process().num_fds() == before


# Descriptors --------------------------------------------------------------------------

LIMITED = """
import corral, gc, psutil, resource
from corral.errors import StartError
from corral.engine.executors.spawn import descriptors_for

def limit(soft, hard):
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))

def limits(_=None):
    return resource.getrlimit(resource.RLIMIT_NOFILE)

def make(workers=2):
    return corral.Pool(Env, 2, backend="process", workers=workers)

def held():
    gc.collect()  # an exception's frames hold on to the memory that they saw
    return len(os.listdir("/proc/self/fd")), len(psutil.Process().children())

make(workers=1).close()  # imports, and what is opened once
before = held()
"""


def test_count_of_descriptors_is_what_a_pool_opens(run):
    said = run(
        LIMITED
        + """
opened = []
for workers in (1, 2):
    pool = corral.Pool(
        Env, 3, backend="process", workers=workers, shared={"x": np.ones(3)}
    )
    opened.append(held()[0] - before[0])
    assert opened[-1] <= descriptors_for(workers) <= opened[-1] + 10, opened
    pool.close()
    del pool
assert opened[1] - opened[0] == descriptors_for(2) - descriptors_for(1), opened
print("right")
"""
    )
    assert said == "right\n"


def test_soft_limit_is_raised_for_us_and_not_for_the_workers(run):
    said = run(
        LIMITED
        + """
limit(20, 4000)
with make(workers=1) as pool, make(workers=1) as another:
    pool.reset()
    soft, hard = limits()
    print(20 < soft < 200, hard, {*pool.apply(limits), *another.apply(limits)})
"""
    )
    assert said == "True 4000 {(20, 4000)}\n"


def test_hard_limit_is_refused_before_anything_is_started(run):
    said = run(
        LIMITED
        + """
class Never(Env):
    def __init__(self):
        print("built")

limit(20, 30)
try:
    corral.make(Never, num_envs=64, isolation="slot")
except StartError as error:
    print(error)
print(held() == before, limits())
"""
    )
    assert "more descriptors are needed and" in said
    assert "no more than 30 (its hard limit; the soft one is 20)" in said
    assert "use fewer workers" in said and "neigh" not in said
    assert said.endswith("True (20, 30)\n")


@pytest.mark.parametrize("pure", ["0", "1"])
def test_wherever_descriptors_run_out_nothing_is_leaked(run, pure):
    """Somebody else opens files after we have counted: every count is tried."""
    said = run(
        LIMITED
        + """
from corral.engine.transport import descriptors
descriptors.make_room = lambda count: None
texts, failures = set(), 0
limit(before[0] + 100, 4000)
spare = [os.open("/dev/null", os.O_RDONLY) for _ in range(100)]
while True:
    os.close(spare.pop())
    now = held()[0]
    try:
        make().close()
        break
    except StartError as error:
        failures += 1
        texts.add("Too many open files" in str(error) and "ulimit" in str(error))
        assert isinstance(error.fault.exception, OSError), error
    assert held() == (now, 0), (held(), now)
for descriptor in spare:
    os.close(descriptor)
print(texts, failures > 20, held() == before)
""",
        environ={"CORRAL_PURE_PYTHON": pure},
    )
    assert said == "{True} True True\n"


# Memory -------------------------------------------------------------------------------


class Big(gym.Env[Any, Any]):
    observation_space = gym.spaces.MultiBinary(1 << 40)
    action_space = gym.spaces.Discrete(2)

    def __init__(self, path: Path):
        self.path = path

    def close(self):
        with open(self.path, "a") as file:
            file.write("closed\n")


@pytest.mark.parametrize("backend", BACKENDS)
def test_block_that_does_not_fit_is_refused_before_it_is_written_to(backend, tmp_path):
    with pytest.raises(StartError, match=r"needs 3072.00 GiB, and .* GiB are left of"):
        corral.Pool(lambda: Big(tmp_path / "envs"), 1, backend=backend)
    assert (tmp_path / "envs").read_text() == "closed\n"


def test_shared_arrays_that_do_not_fit_are_refused():
    endless = np.broadcast_to(np.zeros(1), (1 << 40,))
    with pytest.raises(StartError, match=r"needs 8192.00 GiB, and .* GiB are left of"):
        corral.Pool("CartPole-v1", 2, backend="process", shared={"x": endless})


@pytest.mark.parametrize("backend", BACKENDS)
def test_memory_that_the_system_itself_refuses(run, backend):
    said = run(f"""
        import corral, resource
        from corral.errors import StartError

        class Wide(Env):
            observation_space = gym.spaces.MultiBinary(1 << 28)

        most = 3 << 30  # of addresses; the block alone has 3 GiB
        resource.setrlimit(resource.RLIMIT_AS, (most, most))
        try:
            corral.Pool(Wide, 4, backend="{backend}")
        except StartError as error:
            print(error)
    """)
    assert "cannot get a block of" in said and "Cannot allocate memory" in said
    assert "use fewer or smaller slots" in said


# Programs -----------------------------------------------------------------------------


@pytest.fixture
def interpreter(tmp_path: Path) -> Iterator[Path]:
    before = multiprocessing.spawn.get_executable()
    yield tmp_path / "python"
    multiprocessing.spawn.set_executable(before)


def test_interpreter_that_is_not_there(interpreter):
    multiprocessing.set_executable(str(interpreter))
    with pytest.raises(StartError, match=f"No such file.*{interpreter}") as caught:
        corral.Pool("CartPole-v1", 2, backend="process")
    assert "set_executable" in str(caught.value)
    assert caught.value.fault.worker == 0


def test_interpreter_that_may_not_be_run(interpreter):
    interpreter.write_text("#!/bin/sh\n")
    multiprocessing.set_executable(str(interpreter))
    with pytest.raises(StartError, match=f"Permission denied.*{interpreter}"):
        corral.Pool("CartPole-v1", 2, backend="process")


@pytest.mark.parametrize("unknown", ["", None])
def test_interpreter_that_nobody_knows(monkeypatch, unknown):
    monkeypatch.setattr(spawn.spawn, "get_executable", lambda: unknown)
    with pytest.raises(StartError, match="does not know its own program"):
        corral.map(abs, [1])


def test_interpreter_that_is_no_python(interpreter):
    interpreter.write_text("#!/bin/sh\necho not a snake\n")
    interpreter.chmod(0o700)
    multiprocessing.set_executable(str(interpreter))
    with pytest.raises(WorkerDied, match="not a snake") as caught:
        corral.Pool("CartPole-v1", 2, backend="process")
    assert caught.value.fault.exit_code == 0
    assert caught.value.fault.command == "start"


def test_worker_that_cannot_be_replaced_is_an_error_and_no_hang(interpreter):
    class Mortal(gym.wrappers.TransformReward):  # type: ignore[type-arg]
        def __init__(self):
            super().__init__(gym.make("CartPole-v1"), lambda reward: reward)

        def pid(self):
            return os.getpid()

    with corral.Pool(Mortal, 2, workers=2, on_fault="restart", max_restarts=2) as pool:
        pool.reset()
        multiprocessing.set_executable(str(interpreter))
        os.kill(pool.call("pid")[1], signal.SIGKILL)
        with pytest.raises(StartError, match=f"No such file.*{interpreter}"):
            pool.step([0, 0])


def test_program_whose_own_name_is_lost(start, tmp_path):
    """As an embedded Python may be: it can be told which one to run."""
    script: Script = start(f"""
        sys.executable = ""
        import multiprocessing, corral
        from corral.errors import StartError
        try:
            corral.map(abs, [1])
        except StartError as error:
            print("set_executable" in str(error))
        multiprocessing.set_executable({sys.executable!r})
        print(corral.map(abs, [-1]))
    """)
    assert script.finish() == "True\n[1]\n"
