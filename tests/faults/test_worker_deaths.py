"""A worker that dies is one typed error, told promptly, after which close works."""

from __future__ import annotations

import functools
import os
import select
import signal
import sys
import time
from contextlib import suppress
from typing import Any

import numpy as np
import psutil
import pytest
from faulty_env import FAIL, FINE, Faulty, boom, kill, vanish
from mortal_env import DIE, EXIT, HANG, LEAVE, Mortal
from running import children, wait_until

import corral
from corral.errors import (
    ClosedError,
    EnvError,
    FaultError,
    StartError,
    WorkerDied,
    WorkerHung,
)


@pytest.fixture
def pool():
    with corral.Pool(Mortal, 4, backend="process", workers=2) as pool:
        pool.reset()
        yield pool
    assert not children()


def check(error: FaultError, worker: int, signal_name: str | None = "SIGKILL") -> None:
    fault = error.fault
    assert (fault.kind, fault.worker) == ("died", worker)
    assert fault.signal_name == signal_name
    assert fault.pid is not None and not psutil.pid_exists(fault.pid)
    assert f"worker {worker}" in str(error)
    assert (signal_name or "exit code") in str(error)


def wait_for_end(pid: int) -> None:
    ended = os.pidfd_open(pid)
    select.select([ended], [], [])
    os.close(ended)


@pytest.mark.skipif(not hasattr(os, "pidfd_open"), reason="it is Linux's")
def test_workers_that_ended_in_one_batch_are_all_among_the_faults() -> None:
    deeds = [vanish, kill, boom, boom]
    envs = [functools.partial(Faulty, "step", deed) for deed in deeds]
    with corral.Pool(envs, backend="process", workers=4, isolation="shared") as pool:
        pool.reset()
        pids = [one.pid for one in pool.stats().workers]
        pool.send([FAIL, FAIL, FAIL, FINE])
        for pid in pids[:2]:
            wait_for_end(pid)
        with pytest.raises(WorkerDied) as caught:
            pool.recv()
    died = [fault for fault in caught.value.faults if fault.kind == "died"]
    assert [(one.slot, one.worker, one.step) for one in died] == [(0, 0, 1), (1, 1, 1)]
    assert (died[0].exit_code, died[1].signal_name) == (3, "SIGKILL")
    assert caught.value.fault is died[0]


@pytest.mark.parametrize("action, kind", [(DIE, "died"), (HANG, "hung")])
def test_a_worker_is_missed_while_others_fill_the_batches(action, kind):
    def batches() -> None:
        pool.send([0, action, 0, 0])
        deadline = time.monotonic() + 20
        while time.monotonic() < deadline:
            slots = pool.recv(min_slots=2).slots
            pool.send([0] * len(slots), slots)

    limits = {"step_timeout": 0.1} if action == HANG else {}
    with corral.Pool(Mortal, 4, backend="process", workers=2, **limits) as pool:
        pool.reset()
        with pytest.raises(FaultError) as caught:
            batches()
    assert (caught.value.fault.kind, caught.value.fault.slot) == (kind, 1)


@pytest.mark.parametrize("failing", [0, 1])
def test_a_failed_factory_is_an_error_while_others_still_build(failing):
    def never_built() -> Mortal:
        time.sleep(600)
        return Mortal()

    def refused() -> Mortal:
        raise FileNotFoundError("robot.urdf")

    envs = [never_built, never_built]
    envs[failing] = refused
    with pytest.raises(StartError, match=r"robot\.urdf") as caught:
        corral.Pool(envs, backend="process", workers=2)
    assert (caught.value.fault.slot, caught.value.fault.worker) == (failing, failing)


def test_envs_that_were_built_close_where_another_factory_fails(tmp_path):
    class Closing(Mortal):
        def close(self) -> None:
            (tmp_path / "closed").touch()

    def refused() -> Mortal:
        wait_until(lambda: (tmp_path / "built").exists())
        raise FileNotFoundError("robot.urdf")

    def built() -> Mortal:
        env = Closing()
        (tmp_path / "built").touch()
        return env

    with pytest.raises(StartError, match=r"robot\.urdf"):
        corral.Pool([built, refused], backend="process", workers=2)
    assert (tmp_path / "closed").exists()


def test_env_that_kills_its_process_in_a_step(pool, capsys):
    with pytest.raises(WorkerDied, match="about to die") as caught:
        pool.step([0, 0, 0, DIE])
    check(caught.value, worker=1)
    assert isinstance(caught.value, ConnectionError)
    with pytest.raises(ClosedError, match="died"):
        pool.step([0] * 4)
    pool.close()


@pytest.mark.parametrize(
    ("slots", "lost"),
    [
        (2, ""),
        (4, "The worker's other slot lost its episode."),
        (6, "The worker's other slots lost their episodes."),
    ],
)
def test_an_error_speaks_of_other_slots_only_if_the_worker_had_any(slots, lost):
    with corral.Pool(Mortal, slots, backend="process", workers=2) as pool:
        pool.reset()
        with pytest.raises(WorkerDied) as caught:
            pool.step([0] * (slots - 1) + [DIE])
    told = [
        line for line in str(caught.value).splitlines() if "The worker's other" in line
    ]
    assert told == ([lost] if lost else [])
    assert "close the envs and make new ones" in str(caught.value)


def test_env_that_exits_its_process_in_a_step(pool):
    with pytest.raises(WorkerDied) as caught:
        pool.step([EXIT, 0, 0, 0])
    check(caught.value, worker=0, signal_name=None)
    assert caught.value.fault.exit_code == 3


def test_sys_exit_in_a_step_is_an_exception_like_any_other(pool):
    with pytest.raises(EnvError, match="SystemExit in step: I am off") as caught:
        pool.step([0, 0, LEAVE, 0])
    assert caught.value.fault.slot == 2
    pool.reset()
    assert pool.step([0] * 4).reward.sum() == 4


def test_env_that_dies_in_reset(pool):
    with pytest.raises(WorkerDied) as caught:
        pool.reset([2], options={"die": True})
    check(caught.value, worker=1)


def test_env_that_dies_in_a_call(pool):
    with pytest.raises(WorkerDied) as caught:
        pool.call("die", slots=[1])
    check(caught.value, worker=0)


@pytest.mark.parametrize("what", ["step", "call", "reset", "set_attr", "assign"])
def test_worker_killed_while_idle_is_noticed_by_the_next_command(pool, what):
    pid = pool.call("pid")[3]
    os.kill(pid, signal.SIGKILL)
    # Until it is a zombie it can still take messages.
    wait_until(lambda: psutil.Process(pid).status() == psutil.STATUS_ZOMBIE)
    commands = {
        "step": lambda: pool.step([0] * 4),
        "call": lambda: pool.call("pid"),
        "reset": lambda: pool.reset(options={"x": 1}),
        "set_attr": lambda: pool.set_attr("x", 1),
        "assign": lambda: (pool.assign(3, "task"), pool.step([0] * 4)),
    }
    with pytest.raises(WorkerDied) as caught:
        commands[what]()
    check(caught.value, worker=1)
    with pytest.raises(ClosedError):
        pool.step([0] * 4)


@pytest.mark.parametrize("ends", [False, True])
def test_a_death_does_not_take_along_what_was_finished_before(ends):
    class Telling(Mortal):
        def step(self, action):
            obs, reward, *_ = super().step(action)
            return obs, reward, ends, False, {"said": 1.5}  # of which comes a column

    with corral.Pool(Telling, 2, backend="process", workers=2) as pool:
        pool.reset()
        pid = pool.call("pid")[1]
        pool.send([0, 0])
        wait_until(lambda: (pool._executor.control.done == 2).all())
        os.kill(pid, signal.SIGKILL)
        wait_until(lambda: psutil.Process(pid).status() == psutil.STATUS_ZOMBIE)
        step = pool.recv()
        told = step.final_infos if ends else step.infos.to_list(2)
        assert [told[0], told[1]] == [{"said": 1.5}] * 2
        with pytest.raises(WorkerDied) as caught:
            pool.step([0, 0])
        check(caught.value, worker=1)


def test_worker_killed_from_outside_while_it_hangs(pool):
    pids = pool.call("pid")
    question = pool.ask_async("call", [3], lambda _: ("hang", (), {}))
    os.kill(pids[3], signal.SIGSEGV)
    with pytest.raises(WorkerDied) as caught:
        pool.answers(question)
    check(caught.value, worker=1, signal_name="SIGSEGV")


def test_all_workers_killed_at_once(pool):
    for pid in set(pool.call("pid")):
        os.kill(pid, signal.SIGKILL)
    with pytest.raises(WorkerDied):
        pool.step([0] * 4)
    pool.close()
    pool.close()


@pytest.mark.parametrize("stopped", [False, True])
def test_message_that_a_hung_worker_does_not_read_is_not_posted_for_ever(stopped):
    class Hanging(Mortal):
        def step(self, action):
            self.hang()

    with corral.Pool(Hanging, 2, workers=2, step_timeout=0.5) as pool:
        pool.reset()
        if stopped:
            os.kill(pool.call("pid")[0], signal.SIGSTOP)
        pool.send([0], slots=[0])
        with pytest.raises(WorkerHung) as caught:
            pool.assign(0, np.zeros(1_000_000))
        assert caught.value.fault.worker == 0


def test_worker_whose_env_closed_its_mailbox_is_a_typed_error():
    class Daemon(Mortal):
        def die(self):
            os.closerange(3, 1000)
            return "done"

    with corral.Pool(Daemon, 2, backend="process", workers=2) as pool:
        pool.reset()
        with pytest.raises(WorkerDied) as caught:
            pool.call("die", slots=[1])
        assert caught.value.fault.worker == 1


def test_worker_whose_env_replaced_its_descriptors_neither_lies_nor_hangs():
    class Replacing(Mortal):
        def step(self, action):
            nothing = os.open(os.devnull, os.O_RDWR)
            for descriptor in range(3, 1000):
                if descriptor != nothing:
                    os.dup2(nothing, descriptor)
            return super().step(action)

    with corral.Pool([Replacing, Mortal], backend="process", workers=2) as pool:
        pool.reset()
        with pytest.raises(WorkerDied) as caught:
            for _ in range(3):
                step = pool.step([0, 0])
                assert step.valid.all() and step.reward.tolist() == [1.0, 1.0]
            pool.call("pid")
        assert caught.value.fault.worker == 0


def test_worker_that_truncates_all_it_has_open_harms_nobody_else():
    class Truncating(Mortal):
        def __init__(self):
            self._truncate()

        def step(self, action):
            self._truncate()
            return super().step(action)

        def _truncate(self):
            for descriptor in range(3, 100):
                for size in (0, 10**6):
                    with suppress(OSError):
                        os.ftruncate(descriptor, size)

    arrays = {"map": np.arange(5000)}
    options = {"backend": "process", "workers": 2, "shared": arrays}
    with corral.Pool([Truncating, Mortal], **options) as pool:
        pool.reset()
        for _ in range(3):
            assert pool.step([0, 0]).valid.all()
        sums = pool.apply(lambda env: int(corral.this_worker().shared["map"].sum()))
        assert sums == (int(arrays["map"].sum()),) * 2
        assert pool.stats().workers


def test_stopped_worker_is_ended_by_close(pool):
    os.kill(pool.call("pid")[0], signal.SIGSTOP)
    pool.close(timeout=0.2)


def test_dead_workers_children_die_with_it():
    class Parent(Mortal):
        def bear(self):
            import subprocess

            return subprocess.Popen(["sleep", "600"]).pid

    with corral.Pool(Parent, 2, backend="process", workers=2) as pool:
        pool.reset()
        child = pool.call("bear", slots=[1])[0]
        with pytest.raises(WorkerDied):
            pool.step([0, DIE])
        # Its new parent, init, may take a moment to bury it.
        wait_until(
            lambda: (
                not psutil.pid_exists(child)
                or psutil.Process(child).status() == psutil.STATUS_ZOMBIE
            )
        )


# Starting --------------------------------------------------------------------------


def built(env: type, **options: Any) -> corral.Pool:
    return corral.Pool(env, 2, backend="process", workers=2, **options)


def test_constructor_that_kills_its_process():
    class Stillborn(Mortal):
        def __init__(self):
            if corral.this_worker().index == 1:
                print("famous last words")
                os.kill(os.getpid(), signal.SIGKILL)

    with pytest.raises(WorkerDied, match="famous last words") as caught:
        built(Stillborn)
    check(caught.value, worker=1)
    assert caught.value.fault.command == "construct"
    assert caught.value.fault.slot == 1
    assert not children()


def test_constructor_that_exits_python():
    class Leaving(Mortal):
        def __init__(self):
            sys.exit("no")

    with pytest.raises(StartError, match="SystemExit: no") as caught:
        built(Leaving)
    assert caught.value.fault.slot == 0
    assert not children()


def test_constructor_that_hangs():
    class Hanging(Mortal):
        def __init__(self):
            # The first one, which is waited for first: the start of another counts too,
            # and takes longer than this where modules have to be compiled.
            if corral.this_worker().index == 0:
                time.sleep(600)

    with pytest.raises(WorkerHung) as caught:
        built(Hanging, start_timeout=1.5)
    assert (caught.value.fault.worker, caught.value.fault.kind) == (0, "hung")
    assert isinstance(caught.value, TimeoutError)
    assert not children()


def test_constructor_that_raises_closes_the_envs_before_it(tmp_path):
    class Picky(Mortal):
        def __init__(self):
            self.number = len(list(tmp_path.glob("built-*")))
            if self.number == 1:
                raise ValueError("one is enough")
            (tmp_path / f"built-{self.number}").touch()

        def close(self):
            (tmp_path / "closed").touch()

    with pytest.raises(StartError, match="one is enough") as caught:
        corral.Pool(Picky, 2, backend="process", workers=1, isolation="shared")
    assert caught.value.fault.slot == 1
    assert (tmp_path / "closed").exists()
    assert not children()


def test_interpreter_that_cannot_start(monkeypatch, tmp_path):
    (tmp_path / "corral.py").write_text("raise SystemError('not this corral')")
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    with pytest.raises(WorkerDied, match="not this corral"):
        built(Mortal)
    assert not children()


def test_auto_whose_probe_dies_leaves_nothing():
    class Stillborn(Mortal):
        def __init__(self):
            os._exit(5)

    with pytest.raises(WorkerDied, match="exit code 5"):
        corral.Pool(Stillborn, 4)
    assert not children()
