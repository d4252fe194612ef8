"""However a program ends, no process, no shared memory and no open env stays.

Processes are told by a mark in their environment, so that whatever else runs on the
machine does not matter.
"""

from __future__ import annotations

import os
import signal
from pathlib import Path

import psutil
import pytest
from running import Script, wait_until

import corral.engine.transport.doorbell as doorbell

# Two workers with two envs each; every env has a child that no polite signal ends, and
# says when it is closed.
RANCH = """
import atexit, corral, gc, signal, subprocess, threading

def stubborn():
    for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT):
        signal.signal(number, signal.SIG_IGN)

class Horse(Env):
    def __init__(self):
        self.child = subprocess.Popen(["sleep", "600"], preexec_fn=stubborn)
        self.index = corral.this_worker().index

    action_space = gym.spaces.Discrete(3)

    def step(self, action):
        if action == 1:
            time.sleep(600)
        while action == 2 and not os.path.exists("go"):
            time.sleep(0.01)
        return super().step(action)

    def close(self):
        with open(f"closed-{os.getpid()}", "a") as file:
            file.write("closed\\n")

asked = {"backend": "process", "workers": 2, "isolation": "shared", **OPTIONS}
pool = corral.Pool(Horse, 4, **asked)
pool.reset()
pool.step([0] * 4)
print(*sorted(set(pool.call("pid"))), flush=True)
"""


def closed_envs(folder: Path) -> int:
    return sum(len(f.read_text().split()) for f in folder.glob("closed-*"))


def start_ranch(start, ending: str, **options: object) -> Script:
    script: Script = start(f"OPTIONS = {options}\n{RANCH}{ending}")
    workers = [int(pid) for pid in script.line().split()]
    assert len(workers) == 2
    return script


@pytest.mark.parametrize(
    ("ending", "code"),
    [
        pytest.param("pool.close()", 0, id="close"),
        pytest.param("with pool: pass", 0, id="context manager"),
        pytest.param("raise SystemError('mine')", 1, id="exception"),
        pytest.param("raise SystemExit(3)", 3, id="exit"),
        pytest.param("pass", 0, id="never closed"),
        pytest.param("pool.send([0] * 4)", 0, id="never received"),
        pytest.param("atexit.register(pool.close)", 0, id="closed by atexit"),
        pytest.param(
            "class Holder:\n"
            "    def __del__(self):\n"
            "        self.pool.close()\n"
            "holder = sys.modules['holder'] = Holder()\n"
            "holder.pool = pool",
            0,
            id="closed by a destructor at the very end",
        ),
        pytest.param("os._exit(5)", 5, id="ended at once"),
        pytest.param(
            "os.execv(sys.executable, [sys.executable, '-c', ''])", 0, id="replaced"
        ),
        pytest.param(
            "pool.cycle = [pool]; del pool; gc.collect()", 0, id="garbage in a cycle"
        ),
        pytest.param(
            "del pool\nimport psutil\nassert not psutil.Process().children()",
            0,
            id="reference dropped",
            marks=pytest.mark.fresh_workers,  # which have no template beside them
        ),
        pytest.param(
            "def stay():\n    kept = pool\n    gate.wait()\n"
            "gate = threading.Event()\n"
            "threading.Thread(target=stay, daemon=True).start()",
            0,
            id="kept by a daemon thread",
        ),
    ],
)
def test_program_that_ends_by_itself_leaves_nothing(start, tmp_path, ending, code):
    script = start_ranch(start, ending)
    script.finish(code=code)
    assert script.stderr.count("Traceback") == (code == 1), script.stderr
    # A worker may be a moment behind its parent, no more.
    wait_until(lambda: not script.family())
    assert closed_envs(tmp_path) == 4


# Every env has three children outside of the worker's session: one with the worker's
# environment, one with its own, and a daemon whose parent is gone.
DAEMONS = """
import corral, signal, subprocess

def daemon():
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            os.execvp("sleep", ["sleep", "600"])
        os._exit(0)
    os.wait()

class Parent(Env):
    action_space = gym.spaces.Discrete(3)

    def __init__(self):
        daemon()
        own = {"TEST_MARK": os.environ["TEST_MARK"], "PATH": os.environ["PATH"]}
        options = {"start_new_session": True}
        self.children = [
            subprocess.Popen(["sleep", "600"], **options),
            subprocess.Popen(["sleep", "600"], env=own, **options),
        ]

    def step(self, action):
        if action == 1:
            time.sleep(600)
        if action == 2:
            os.kill(os.getpid(), signal.SIGKILL)
        return super().step(action)

quiet = dict.fromkeys(("stdout", "stderr"), subprocess.DEVNULL)
others = subprocess.Popen(["sleep", "600"], start_new_session=True, **quiet)
pool = corral.Pool(Parent, 2, backend="process", workers=2, **OPTIONS)
pool.reset()
pool.step([0, 0])
print(others.pid, flush=True)
"""
WITH_ALL = 1 + 1 + 2 * (1 + 3)
"""The program, its own child, and two workers with their children."""


def start_daemons(start, ending: str, **options: object) -> tuple[Script, int]:
    script: Script = start(f"OPTIONS = {options}\n{DAEMONS}{ending}")
    return script, int(script.line())


@pytest.mark.parametrize(
    ("ending", "code"),
    [
        pytest.param("pool.close()", 0, id="close"),
        pytest.param("pool.send([1, 1]); pool.close(0.1)", 0, id="close while hanging"),
        pytest.param("raise SystemError('mine')", 1, id="exception"),
        pytest.param("os._exit(5)", 5, id="ended at once"),
        pytest.param("pool.send([1, 1]); os._exit(5)", 5, id="ended while hanging"),
        pytest.param("os.kill(os.getpid(), 9)", -9, id="killed"),
    ],
)
def test_children_in_sessions_of_their_own_end_with_the_program(start, ending, code):
    script, others = start_daemons(start, ending)
    script.finish(code=code)
    # The program's own child is not ours to end.
    wait_until(lambda: [process.pid for process in script.family()] == [others])
    os.kill(others, signal.SIGKILL)


@pytest.mark.fresh_workers
def test_children_in_sessions_of_their_own_end_with_their_worker(start):
    script, others = start_daemons(
        start,
        """
import psutil

def look():
    print(len(psutil.Process(os.getpid()).children()), flush=True)
    input()

look()
pool.step([1, 0])
look()
pool.close()
look()
""",
        step_timeout=0.3,
        on_fault="restart",
    )
    assert script.line() == "3"
    wait_until(lambda: len(script.family()) == WITH_ALL)
    script.process.stdin.write("\n")
    script.process.stdin.flush()
    # The worker that hung was replaced, and its children with it.
    assert script.line() == "3"
    wait_until(lambda: len(script.family()) == WITH_ALL)
    script.process.stdin.write("\n")
    script.process.stdin.flush()
    assert script.line() == "1"
    alive = {process.pid for process in script.family()}
    assert alive == {script.process.pid, others}
    script.process.communicate("\n")
    os.kill(others, signal.SIGKILL)


def test_worker_killed_from_outside_leaves_only_children_it_could_not_mark(start):
    script, others = start_daemons(
        start,
        """
from corral.errors import WorkerDied
try:
    pool.step([2, 0])
except WorkerDied:
    pool.close()
print("closed", flush=True)
input()
""",
    )
    assert script.line() == "closed"
    left = {process.pid for process in script.family()}
    (unmarked,) = left - {script.process.pid, others}
    assert "CORRAL_WORKER" not in psutil.Process(unmarked).environ()
    script.process.communicate("\n")
    for pid in (unmarked, others):
        os.kill(pid, signal.SIGKILL)


def test_nothing_is_in_dev_shm_that_could_stay(start):
    """Not even while the pool lives; so no way of ending it leaves anything there."""
    script = start_ranch(start, "print(input())")
    for process in script.family():
        folder = Path(f"/proc/{process.pid}")
        assert "/dev/shm" not in (folder / "maps").read_text()
        for descriptor in (folder / "fd").iterdir():
            assert "/dev/shm" not in os.readlink(descriptor)
    script.process.communicate("done")


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL, signal.SIGHUP])
def test_parent_killed_while_stepping_leaves_nothing(start, tmp_path, number):
    script = start_ranch(start, "while True:\n    pool.step([0] * 4)")
    assert len(script.family()) == 1 + 2 + 4
    script.kill(number)
    script.finish(code=-number)
    assert script.stderr == ""
    wait_until(lambda: not script.family())
    assert closed_envs(tmp_path) == 4


def test_parent_killed_with_a_stopped_worker_leaves_nothing(start, tmp_path):
    script = start_ranch(
        start, "os.kill(pool.call('pid')[0], signal.SIGSTOP); os.kill(os.getpid(), 9)"
    )
    script.finish(code=-signal.SIGKILL)
    wait_until(lambda: not script.family())
    assert closed_envs(tmp_path) == 4


def test_parent_killed_while_an_env_hangs_leaves_nothing(start):
    script = start_ranch(
        start, "pool.send([1] * 4); print('sent', flush=True); pool.recv()"
    )
    assert script.line() == "sent"
    script.kill()
    script.finish(code=-signal.SIGKILL)
    wait_until(lambda: not script.family())


@pytest.mark.skipif(doorbell.KIND != "futex", reason="the Python twin needs the GIL")
def test_parent_killed_while_an_env_hangs_with_the_gil_leaves_nothing(start):
    script: Script = start("""
        import corral, ctypes

        class Stuck(Env):
            def step(self, action):
                print("stuck", flush=True)
                ctypes.PyDLL(None).sleep(600)

        with corral.Pool(Stuck, 2, backend="process", workers=2) as pool:
            pool.reset()
            pool.step([0, 0])
    """)
    assert script.line() == "stuck"
    script.kill()
    script.finish(code=-signal.SIGKILL)
    wait_until(lambda: not script.family())


def test_parent_killed_while_workers_start_leaves_nothing(start):
    script: Script = start("""
        import corral

        class Slow(Env):
            def __init__(self):
                print("building", flush=True)
                time.sleep(600)

        corral.Pool(Slow, 2, backend="process", workers=2)
    """)
    assert script.line() == "building"
    script.kill()
    script.finish(code=-signal.SIGKILL)
    wait_until(lambda: not script.family())


# A worker is gone, and the one that takes its place does not get done with building.
REBUILDING = """
import corral, signal

class Slow(Env):
    def __init__(self):
        if os.path.exists("built"):
            print("building again", flush=True)
            time.sleep(600)

pool = corral.Pool(Slow, 2, workers=2, on_fault="restart", close_timeout=600.0)
open("built", "w").close()
pool.reset()
os.kill(pool.call("pid")[0], signal.SIGKILL)
pool.step([0, 0])
"""


def test_parent_killed_while_a_worker_is_being_replaced_leaves_nothing(start):
    script: Script = start(REBUILDING)
    assert script.line() == "building again"
    script.kill()
    script.finish(code=-signal.SIGKILL)
    wait_until(lambda: not script.family())


BUILDING = """
import corral

class Slow(Env):
    def __init__(self):
        print("building", flush=True)
        time.sleep(600)

corral.make(Slow, num_envs=4, backend=BACKEND)
"""


@pytest.mark.parametrize(
    "code",
    [
        pytest.param(REBUILDING, id="replacing"),
        pytest.param(BUILDING.replace("BACKEND", "'process'"), id="building"),
        pytest.param(BUILDING.replace("BACKEND", "'auto'"), id="probing"),
    ],
)
def test_ctrl_c_while_envs_are_built_shows_one_traceback(start, code):
    script: Script = start(code)
    assert script.line().startswith("building")
    os.killpg(script.process.pid, signal.SIGINT)
    script.finish(code=-signal.SIGINT)
    assert script.stderr.count("Traceback") == 1, script.stderr
    assert script.stderr.endswith("KeyboardInterrupt\n")
    wait_until(lambda: not script.family())


@pytest.mark.fresh_workers
def test_ctrl_c_that_reaches_a_worker_in_the_making_is_not_told_twice(start):
    script: Script = start("""
        import corral, signal, threading
        from corral.engine.executors import spawn

        def everybody():  # as a scheduler may, to all processes of a job
            os.kill(started.pid, signal.SIGINT)
            os.kill(os.getpid(), signal.SIGINT)

        popen = spawn._popen
        def interrupted(*args, **options):
            global started
            started = popen(*args, **options)
            everybody()
            return started

        spawn._popen = interrupted
        corral.Pool(Env, 1, backend="process")
    """)
    script.finish(code=-signal.SIGINT)
    assert script.stderr.count("Traceback") == 1, script.stderr
    wait_until(lambda: not script.family())


@pytest.mark.parametrize(
    ("work", "closes"),
    [
        pytest.param("while True: pool.step([0] * 4)", 4, id="stepping"),
        pytest.param("pool.step([1] * 4)", 0, id="hanging"),
        pytest.param("while True: pool.call('pid')", 4, id="calling"),
        pytest.param("with pool: pool.step([1, 0, 0, 0])", 2, id="one hanging"),
        pytest.param("while True: corral.map(abs, range(10 ** 9))", 4, id="mapping"),
        pytest.param("corral.Crew().map(abs, range(10 ** 9))", 4, id="crew"),
    ],
)
def test_ctrl_c_shows_one_traceback_and_leaves_nothing(start, tmp_path, work, closes):
    ready = "threading.Timer(0.1, lambda: print('at work', flush=True)).start()\n"
    options = {"close_timeout": 1.0} if "[1" in work else {}
    script = start_ranch(start, ready + work, **options)
    assert script.line() == "at work"
    # As the terminal does it: to the whole foreground group.
    os.killpg(script.process.pid, signal.SIGINT)
    script.finish(code=-signal.SIGINT)
    assert script.stderr.count("Traceback") == 1, script.stderr
    assert script.stderr.endswith("KeyboardInterrupt\n")
    wait_until(lambda: not script.family())
    assert closed_envs(tmp_path) >= closes


def test_ctrl_c_caught_in_a_map_leaves_a_crew_that_can_go_on(start, tmp_path):
    script = start("""
        import time
        import corral

        def work(path):
            open(path, "w").close()
            time.sleep(600)

        crew = corral.Crew(workers=2)
        try:
            crew.map(work, ["begun-0", "begun-1"])
        except KeyboardInterrupt:
            print(crew.map(abs, [-1, -2]))
        crew.close()
    """)
    wait_until(lambda: len(list(tmp_path.glob("begun-*"))) == 2)
    script.kill(signal.SIGINT)
    assert script.finish() == "[1, 2]\n"
    wait_until(lambda: not script.family())


def test_ctrl_c_caught_while_waiting_leaves_a_pool_that_can_go_on(start, tmp_path):
    script = start_ranch(
        start,
        """
pool.send([0, 0, 0, 2])
try:
    print("at work", flush=True)
    pool.recv()
except KeyboardInterrupt:
    open("go", "w").close()
pool.recv()
print(pool.step([0] * 4).reward.sum())
pool.close()
""",
    )
    assert script.line() == "at work"
    # The signal may come just before the waiting begins: that is allowed too.
    script.kill(signal.SIGINT)
    assert script.finish() == "4.0\n"
    assert closed_envs(tmp_path) == 4


@pytest.mark.fresh_workers
def test_second_ctrl_c_during_close_ends_the_workers_at_once(start):
    script: Script = start("""
        import corral, psutil

        class Clinging(Env):
            def close(self):
                print("closing", flush=True)
                time.sleep(600)

        pool = corral.Pool(Clinging, 1, backend="process", close_timeout=500.0)
        try:
            pool.close()
        except KeyboardInterrupt:
            print(psutil.Process().children())
    """)
    assert script.line() == "closing"
    script.kill(signal.SIGINT)
    assert script.finish() == "[]\n"


def test_forked_child_neither_uses_nor_closes_the_pool(start, tmp_path):
    script = start_ranch(
        start,
        """
from corral.errors import OwnershipError
read, write = os.pipe()
child = os.fork()
if child == 0:
    try:
        pool.step([0] * 4)
    except OwnershipError as error:
        os.write(write, str(error).encode())
    pool.close()
    del pool
    gc.collect()
    sys.exit(0)  # with atexit, destructors and all
_, status = os.waitpid(child, 0)
print(os.read(read, 1000).decode(), status, flush=True)
print(pool.step([0] * 4).reward.sum(), flush=True)
pool.close()
""",
    )
    said = script.finish().splitlines()
    assert said[0].startswith("this pool belongs to the parent") and said[0][-1] == "0"
    assert said[1] == "4.0"
    assert closed_envs(tmp_path) == 4


FORKS = {
    "multiprocessing": """
import multiprocessing

def look():
    pool.close()
    assert not pool.closed
    queue.put(type(pool).__name__)

context = multiprocessing.get_context("fork")
queue = context.SimpleQueue()
child = context.Process(target=look)
child.start()
print(queue.get())
child.join()
""",
    "DataLoader": """
import torch

class Data(torch.utils.data.Dataset):
    def __init__(self):
        self.pool = pool

    def __len__(self):
        return 4

    def __getitem__(self, index):
        self.pool.close()
        return index

loader = torch.utils.data.DataLoader(
    Data(), num_workers=2, multiprocessing_context="fork"
)
print(type(pool).__name__, sum(int(batch) for batch in loader))
""",
}


@pytest.mark.parametrize("way", FORKS)
def test_forked_workers_of_others_never_close_the_pool(start, tmp_path, way):
    script = start_ranch(
        start, FORKS[way] + "print(pool.step([0] * 4).reward.sum())\npool.close()\n"
    )
    said = script.finish().splitlines()
    assert said[0].startswith("Pool") and said[1] == "4.0"
    assert closed_envs(tmp_path) == 4


def test_forked_child_that_outlives_the_parent_does_not_keep_the_workers(start):
    script = start_ranch(
        start,
        """
if os.fork() == 0:
    print("forked", os.getpid(), flush=True)
    time.sleep(600)
time.sleep(600)
""",
    )
    child = int(script.line().split()[1])
    script.kill()
    wait_until(lambda: [p.pid for p in script.family()] == [child])
    psutil.Process(child).kill()


def test_thread_pool_does_not_hold_up_the_end_of_the_program(start):
    script: Script = start("""
        import corral

        class Stuck(Env):
            def step(self, action):
                time.sleep(600)

        pool = corral.Pool(Stuck, 2, backend="thread", workers=2, close_timeout=0.5)
        pool.reset()
        pool.send([0, 0])
    """)
    script.finish()
    assert script.stderr == ""
