"""close() is bounded, may come at any time and from anywhere, and never raises."""

from __future__ import annotations

import gc
import os
import signal
import sys
import threading
import time
from functools import partial

import numpy as np
import pytest
from closing_env import Env
from running import ENV, Script, children, wait_until

import corral
from corral.engine.executors import reaping
from corral.errors import ClosedError, OptionError, OwnershipError, WorkerDied

BACKENDS = ["serial", "thread", "process"]


@pytest.fixture(autouse=True)
def nothing_left():
    yield
    gc.collect()
    assert not children()


@pytest.mark.parametrize("backend", BACKENDS)
def test_close_twice_and_use_after(backend):
    pool = corral.Pool(Env, 2, backend=backend, isolation="shared")
    pool.reset()
    pool.close()
    pool.close()
    assert pool.closed
    for use in (pool.reset, lambda: pool.step([0, 0]), lambda: pool.call("pid")):
        with pytest.raises(ClosedError):
            use()


@pytest.mark.parametrize("backend", BACKENDS)
def test_close_with_a_step_under_way_closes_the_envs(backend, tmp_path):
    class Noting(Env):
        def close(self):
            (tmp_path / f"closed-{id(self)}-{os.getpid()}").touch()

    pool = corral.Pool(Noting, 4, backend=backend, isolation="shared")
    pool.reset()
    pool.send([0] * 4)
    pool.close()
    assert len(list(tmp_path.glob("closed-*"))) == 4


def test_close_while_a_worker_posts_a_letter_nobody_reads(tmp_path):
    class Noting(Env):
        def close(self):
            (tmp_path / "closed").touch()

    pool = corral.Pool(Noting, 1, backend="process")
    pool.reset()
    pool.send([1])  # its info is bigger than the mailbox
    pool.close(timeout=30.0)
    assert (tmp_path / "closed").exists()


def test_messages_bigger_than_the_mailbox_pass_both_ways():
    class Echo(Env):
        def reset(self, *, seed=None, options=None):
            return np.zeros(2, np.float32), {"size": options["big"].size}

        def echo(self, value):
            return value

    big = np.arange(1_000_000)
    with corral.Pool(Echo, 4, backend="process", workers=2) as pool:
        step = pool.reset(options={"big": big})
        assert step.infos.of(3) == {"size": big.size}
        assert all((big == value).all() for value in pool.call("echo", big))
        step = pool.step([1] * 4)
        assert [step.infos.of(slot)["big"].size for slot in range(4)] == [big.size] * 4


@pytest.mark.parametrize("backend", ["thread", "process"])
def test_close_while_an_env_hangs_is_bounded(backend, tmp_path):
    class Hanging(Env):
        def hang(self):
            wait_until((tmp_path / "go").exists, 600)

    pool = corral.Pool(Hanging, 2, backend=backend, isolation="shared")
    question = pool.ask_async("call", None, lambda _: ("hang", (), {}))
    pool.close(timeout=0.2)
    with pytest.raises(ClosedError):
        pool.answers(question)
    (tmp_path / "go").touch()  # threads cannot be ended, only waited for
    wait_until(lambda: not [t for t in threading.enumerate() if "worker" in t.name])


def test_close_with_a_full_queue_is_bounded():
    pool = corral.Pool(Env, 1, backend="process")
    pool.reset()
    pool.ask_async("call", [0], lambda _: ("hang", (), {}))
    link = pool._executor._links[0]  # type: ignore[attr-defined]
    room = len(link.queue)
    while link.sent - link.consumed[0] < link.last:
        pool.assign(0, "task")
        room -= 1
        assert room > -10
    pool.close(timeout=0.2)


@pytest.mark.parametrize("backend", BACKENDS)
def test_env_that_raises_in_close(backend):
    class Sore(Env):
        def close(self):
            raise RuntimeError("sore loser")

    pool = corral.Pool(Sore, 2, backend=backend, isolation="shared")
    pool.reset()
    pool.close()


def test_env_that_hangs_in_close_is_ended():
    class Clinging(Env):
        def close(self):
            time.sleep(600)

    corral.Pool(Clinging, 2, backend="process", close_timeout=0.2).close()


def test_close_after_a_death():
    pool = corral.Pool(Env, 2, backend="process", workers=2)
    pool.reset()
    os.kill(pool.call("pid")[0], signal.SIGKILL)
    with pytest.raises(WorkerDied):
        pool.step([0, 0])
    pool.close()
    pool.close()


def test_close_after_a_death_nobody_noticed():
    pool = corral.Pool(Env, 2, backend="process", workers=2)
    pool.reset()
    os.kill(pool.call("pid")[0], signal.SIGKILL)
    pool.close()


def test_close_when_somebody_else_reaped_the_worker():
    pool = corral.Pool(Env, 1, backend="process")
    pid = pool.call("pid")[0]
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    pool.close()


@pytest.mark.parametrize("backend", BACKENDS)
def test_dropped_pool_closes_itself(backend, tmp_path):
    class Noting(Env):
        def close(self):
            (tmp_path / "closed").touch()

    pool = corral.Pool(Noting, 2, backend=backend, isolation="shared")
    pool.reset()
    del pool
    gc.collect()
    assert (tmp_path / "closed").exists()


@pytest.mark.parametrize("backend", BACKENDS)
def test_other_threads_may_close_but_not_use(backend):
    pool = corral.Pool(Env, 2, backend=backend, isolation="shared")
    raised: list[BaseException] = []

    def meddle():
        try:
            pool.reset()
        except OwnershipError as error:
            raised.append(error)
        pool.close()

    thread = threading.Thread(target=meddle)
    thread.start()
    thread.join()
    assert len(raised) == 1
    assert pool.closed


def test_stopped_worker_is_not_given_the_time_of_one_that_is_busy():
    pool = corral.Pool(Env, 2, backend="process", workers=2, close_timeout=3600.0)
    pool.reset()
    os.kill(pool.call("pid")[0], signal.SIGSTOP)
    pool.close()


def test_worker_stopped_in_the_middle_of_a_step_is_not_given_its_time(tmp_path):
    class Slow(Env):
        def step(self, action):
            (tmp_path / "stepping").touch()
            time.sleep(3600)

    pool = corral.Pool(Slow, 1, backend="process", close_timeout=3600.0)
    pool.reset()
    pool.send([0])
    wait_until((tmp_path / "stepping").exists)
    os.kill(pool.stats().workers[0].pid, signal.SIGSTOP)
    pool.close()


@pytest.mark.parametrize("busy", ["step", "close"])
def test_busy_env_is_given_longer_than_a_worker_that_is_silent(busy, tmp_path):
    class Slow(Env):
        def step(self, action):
            self.work("step")
            return super().step(action)

        def close(self):
            self.work("close")
            (tmp_path / "closed").touch()

        def work(self, what):
            (tmp_path / what).touch()
            time.sleep(reaping.SILENT_EXIT_SECONDS + 0.5 if busy == what else 0.0)

    pool = corral.Pool(Slow, 1, backend="process", close_timeout=60.0)
    pool.reset()
    pool.send([0])
    wait_until((tmp_path / "step").exists)
    pool.close()
    assert (tmp_path / "closed").exists()


@pytest.mark.parametrize("ending", ["", "del pool", "raise SystemExit"])
def test_env_that_is_slow_to_close_may_finish_also_at_exit(run, ending):
    said = run(f"""
        import corral

        class Slow(Env):
            def close(self):
                time.sleep({reaping.SILENT_EXIT_SECONDS + 0.5})
                print("closed")

        pool = corral.Pool(Slow, 1, backend="process")
        {ending}
    """)
    assert said == "closed\n"


def test_close_timeout_must_be_a_time():
    for bad in (-1, None, "long", float("nan")):
        with pytest.raises(OptionError, match="close_timeout is"):
            corral.Pool(Env, 1, close_timeout=bad)  # type: ignore[arg-type]


@pytest.mark.parametrize("backend", BACKENDS)
def test_views_outlive_the_pool(backend):
    pool = corral.Pool(Env, 2, backend=backend, copy=False)
    pool.reset()
    step = pool.step([0, 0])
    pool.close()
    assert step.reward.tolist() == [1.0, 1.0] and step.obs.sum() == 0
    del pool
    gc.collect()
    assert step.reward.tolist() == [1.0, 1.0]


def test_close_reaches_a_worker_whose_mailbox_a_forked_child_holds_too(start, tmp_path):
    script: Script = start("""
        import corral, psutil

        class Loud(Env):
            def step(self, action):
                return *super().step(action)[:4], {"big": np.zeros(1_000_000)}

            def close(self):
                open("closed", "w").close()

        pool = corral.Pool(Loud, 1, backend="process")
        pool.reset()
        pool.send([1])
        child = os.fork()
        if child == 0:
            time.sleep(3600)
        pool.close()
        os.kill(child, 9)
        print(os.path.exists("closed"))
    """)
    assert script.finish() == "True\n"


def test_close_while_a_worker_is_being_replaced_closes_its_new_envs(tmp_path):
    class Slow(Env):
        def __init__(self):
            self.old = not (tmp_path / "built").exists()
            if not self.old:
                (tmp_path / "building again").touch()
                wait_until((tmp_path / "go").exists)

        def close(self):
            (tmp_path / ("closed" if self.old else "closed again")).touch()

    pool = corral.Pool(Slow, 2, workers=2, on_fault="restart", close_timeout=600.0)
    (tmp_path / "built").touch()
    pool.reset()
    os.kill(pool.call("pid")[0], signal.SIGKILL)
    pool.send([0, 0])
    pool.recv(min_slots=1)
    while not pool.faults:  # until the death was noticed, which starts another worker
        with pytest.raises(TimeoutError):
            pool.recv(timeout=0.01)
    wait_until((tmp_path / "building again").exists)
    threading.Timer(0.1, (tmp_path / "go").touch).start()
    pool.close()
    assert (tmp_path / "closed").exists() and (tmp_path / "closed again").exists()


def test_close_with_a_replacement_that_is_ready_and_was_never_received(tmp_path):
    class Noting(Env):
        def __init__(self):
            (tmp_path / f"built-{os.getpid()}").touch()

        def close(self):
            (tmp_path / f"closed-{os.getpid()}").touch()

    pool = corral.Pool(Noting, 2, workers=2, on_fault="restart")
    pool.reset()
    os.kill(pool.call("pid")[0], signal.SIGKILL)
    pool.send([0, 0])
    pool.recv(min_slots=1)
    while not pool.faults:  # until the death was noticed, which starts another worker
        with pytest.raises(TimeoutError):
            pool.recv(timeout=0.01)
    wait_until(lambda: not [t for t in threading.enumerate() if "replace" in t.name])
    pool.close()
    assert len(list(tmp_path.glob("built-*"))) == 3
    assert len(list(tmp_path.glob("closed-*"))) == 2


@pytest.mark.parametrize("backend", ["serial", "thread"])
def test_close_from_a_signal_handler_inside_a_step(run, backend):
    said = run(f"""
        import corral, signal
        from corral.errors import ClosedError

        class Interrupted(Env):
            stepping = False

            def step(self, action):
                self.stepping = True
                os.kill(os.getpid(), signal.SIGTERM)
                wait = time.monotonic() + 0.1  # a thread's signal is the main thread's
                while time.monotonic() < wait:
                    pass
                self.stepping = False
                return super().step(action)

            def close(self):
                print("closed, stepping:", self.stepping)

        signal.signal(signal.SIGTERM, lambda *_: pool.close())
        pool = corral.Pool(Interrupted, 2, backend="{backend}", workers=1)
        pool.reset()
        try:
            pool.step([0, 0])
            print("stepped")  # a thread may have been done by then
        except ClosedError as error:
            print("ClosedError")
    """)
    lines = said.splitlines()
    assert lines[:2] == ["closed, stepping: False"] * 2
    assert lines[2:] == ["ClosedError"] or backend == "thread"


def test_exit_from_a_signal_handler_that_closes_passes_through_a_serial_step(start):
    script: Script = start("""
        import corral, signal

        class Interrupted(Env):
            def step(self, action):
                os.kill(os.getpid(), signal.SIGTERM)
                return super().step(action)

        def handler(number, frame):
            pool.close()
            raise SystemExit(7)

        signal.signal(signal.SIGTERM, handler)
        pool = corral.Pool(Interrupted, 2, backend="serial")
        pool.reset()
        pool.step([0, 0])
    """)
    script.finish(code=7)
    assert script.stderr == ""


@pytest.mark.parametrize("work", ["pool.step([1])", "pool.call('hang')"])
def test_close_from_a_signal_handler_while_waiting(start, work):
    script: Script = start(f"""
        import corral, signal

        class Slow(Env):
            def step(self, action):
                self.hang()

            def hang(self):
                print("hanging", flush=True)
                time.sleep(600)

        def handler(number, frame):
            pool.close(timeout=0.2)
            print("closed", flush=True)
            raise SystemExit(7)

        signal.signal(signal.SIGTERM, handler)
        pool = corral.Pool(Slow, 1, backend="process")
        pool.reset()
        {work}
    """)
    assert script.line() == "hanging"
    script.kill(signal.SIGTERM)
    assert script.finish(code=7) == "closed\n"
    wait_until(lambda: not script.family())


def test_close_from_a_signal_handler_that_returns(start):
    script: Script = start("""
        import corral, signal
        from corral.errors import CorralError

        class Slow(Env):
            def step(self, action):
                print("hanging", flush=True)
                time.sleep(600)

        signal.signal(signal.SIGTERM, lambda *_: pool.close(timeout=0.2))
        pool = corral.Pool(Slow, 1, backend="process")
        pool.reset()
        try:
            pool.step([0])
        except CorralError as error:
            print(type(error).__name__)
    """)
    assert script.line() == "hanging"
    script.kill(signal.SIGTERM)
    assert script.finish() == "ClosedError\n"


def test_an_interrupted_send_leaves_a_pool_that_can_only_be_closed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def interrupted(mode: int) -> None:
        raise KeyboardInterrupt

    with corral.Pool("CartPole-v1", num_envs=2, backend="serial") as pool:
        pool.reset()
        monkeypatch.setattr(pool._executor, "send_all", interrupted)
        with pytest.raises(KeyboardInterrupt):
            pool.send([0, 1])
        # What was sent is not known any more: waiting for it could be for ever.
        with pytest.raises(ClosedError, match="interrupted"):
            pool.recv()
    assert pool.closed


def test_ctrl_c_during_a_health_check_has_no_second_traceback(monkeypatch):
    def interrupted(process):
        monkeypatch.undo()
        raise KeyboardInterrupt

    monkeypatch.setattr(reaping, "has_ended", interrupted)
    with pytest.raises(KeyboardInterrupt) as caught:
        corral.Pool(partial(time.sleep, 60.0), 1, backend="process", close_timeout=0.0)
    assert caught.value.__context__ is None


def test_close_is_bounded_when_nobody_reads_our_stdout(tmp_path):
    done = tmp_path / "done"
    read, write = os.pipe()
    script = f"""
{ENV}
import corral

class Loud(Env):
    def step(self, action):
        print("x" * 200_000, flush=True)
        return super().step(action)

os.dup2({write}, 1)
pool = corral.Pool(Loud, 2, backend="process", workers=2, close_timeout=0.5)
pool.reset()
pool.send([0, 0])
time.sleep(0.5)
pool.close()
open({str(done)!r}, "w").close()
os._exit(0)
"""
    process = Script([sys.executable, "-c", script], None, pass_fds=[write])
    try:
        process.finish(seconds=20)
    finally:
        process.kill()
        os.close(read)
        os.close(write)
    assert done.exists()


def test_close_after_ctrl_c_between_two_threads(monkeypatch):
    start = threading.Thread.start

    def interrupted(thread):
        if thread.name == "corral-worker-1":
            raise KeyboardInterrupt
        start(thread)

    monkeypatch.setattr(threading.Thread, "start", interrupted)
    with pytest.raises(KeyboardInterrupt):
        corral.Pool(Env, 2, backend="thread", workers=2)
