"""A child that an env forks is never a worker, and false rings deliver no row."""

from __future__ import annotations

import functools
import os
import subprocess
import sys
from contextlib import suppress
from typing import Any

import numpy as np
import psutil
import pytest
from forking_env import LENGTH, WAYS, Forking, Patient, Ringing, together
from running import children, wait_until

import corral

PARENTS = ["raise", "restart"]
SLOTS = 4
STEPS = 12


@pytest.fixture(autouse=True)
def children_are_reaped():
    """Under threads the envs fork this process; other tests count its children."""
    yield
    for child in psutil.Process().children():
        with suppress(psutil.Error, ChildProcessError):
            if child.status() == psutil.STATUS_ZOMBIE:
                os.waitpid(child.pid, 0)


def actions_at(step: int) -> list[int]:
    return [(3 * step + 2 * slot) % 10 for slot in range(SLOTS)]


def rows_of_a_loop() -> list[tuple[Any, ...]]:
    """What every batch has to be: a loop over envs that do not fork."""
    envs = [Forking(slot) for slot in range(SLOTS)]
    rows = [
        (np.array([env.reset()[0] for env in envs]), [0.0] * SLOTS, [False] * SLOTS)
    ]
    for step in range(STEPS):
        outcomes = [
            env.step(action) for env, action in zip(envs, actions_at(step), strict=True)
        ]
        obs = [
            env.reset()[0] if outcome[2] else outcome[0]
            for env, outcome in zip(envs, outcomes, strict=True)
        ]
        rows.append((np.array(obs), [o[1] for o in outcomes], [o[2] for o in outcomes]))
    return rows


def copies_of(workers: set[int]) -> list[psutil.Process]:
    """What lives of workers, each in a session of its own, and of our own copies."""
    found = children()
    for process in psutil.process_iter():
        with suppress(psutil.Error, ProcessLookupError):
            if os.getsid(process.pid) in workers - {os.getpid()}:
                found.append(process)
    zombie = psutil.STATUS_ZOMBIE
    return [p for p in found if p.is_running() and p.status() != zombie]


def check_rows(pool: corral.Pool, **receiving: Any) -> None:
    expected = rows_of_a_loop()
    for number, (obs, reward, terminated) in enumerate(expected):
        if number == 0:
            pool.send_reset()
        else:
            pool.send(actions_at(number - 1))
        seen = 0
        while pool.waiting:
            step = pool.recv(**receiving)
            seen += len(step.slots)
            assert step.valid.all()
            assert (step.obs == obs[step.slots]).all(), number
            assert step.reward.tolist() == [reward[slot] for slot in step.slots]
            assert step.terminated.tolist() == [terminated[s] for s in step.slots]
        assert seen == SLOTS
    assert not pool.faults


@pytest.mark.parametrize("on_fault", PARENTS)
@pytest.mark.parametrize("way", WAYS)
def test_a_child_that_comes_back_from_step_is_no_second_worker(way, on_fault):
    envs = [functools.partial(Forking, 0, way, "step")]
    envs += [functools.partial(Forking, slot) for slot in range(1, SLOTS)]
    options = {"backend": "process", "workers": 2, "on_fault": on_fault}
    with corral.Pool(envs, isolation="shared", **options) as pool:
        check_rows(pool)


@pytest.mark.parametrize("receiving", [{"min_slots": 1}, {"timeout": 60.0}])
def test_a_child_that_comes_back_disturbs_no_way_of_receiving(receiving):
    envs = [functools.partial(Forking, s, "returns", "step") for s in range(SLOTS)]
    with corral.Pool(envs, backend="process", workers=2, isolation="shared") as pool:
        check_rows(pool, **receiving)


@pytest.mark.parametrize("where", ["step", "reset"])
@pytest.mark.parametrize("way", ["returns", "raises"])
def test_a_child_of_a_batch_of_envs_is_no_second_worker(way, where):
    env = functools.partial(together, way, where)
    options = {"backend": "process", "workers": 2, "autoreset": "next_step"}
    with corral.Pool(env, SLOTS, batched=True, **options) as pool:
        pool.reset()
        for step in range(1, LENGTH):
            assert pool.step([3] * SLOTS).obs[:, 2].tolist() == [3.0 * step] * SLOTS


def test_a_child_that_comes_back_from_a_thread_worker_is_no_second_worker():
    envs = [functools.partial(Forking, 0, "returns", "step")]
    envs += [functools.partial(Forking, slot) for slot in range(1, SLOTS)]
    with corral.Pool(envs, backend="thread", workers=2, isolation="shared") as pool:
        check_rows(pool)


@pytest.mark.parametrize("way", ["returns", "raises"])
@pytest.mark.parametrize("where", ["construct", "reset", "call", "close"])
@pytest.mark.parametrize("backend", ["thread", "process"])
def test_a_child_that_comes_back_from_anywhere_ends_at_once(
    backend, where, way, tmp_path, capfd
):
    env = functools.partial(Forking, 0, way, where, str(tmp_path))
    others = functools.partial(Forking, 1, folder=str(tmp_path))
    asked = {"backend": backend, "workers": 2, "isolation": "shared"}
    with corral.Pool([env, others], **asked) as pool:
        for _ in range(LENGTH):
            pool.reset()
            assert pool.step([1, 2]).obs[:, 2].tolist() == [1.0, 2.0]
            assert pool.call("ask") == (0, 1)
        workers = set(pool._executor.pids())
    # Each env was closed once, by its worker, and by none of the copies.
    closed = sorted(path.name.split("-") for path in tmp_path.iterdir())
    assert [slot for _, slot, _ in closed] == ["0", "1"]
    assert {int(pid) for _, _, pid in closed} == workers
    wait_until(lambda: not copies_of(workers))
    if where != "close":  # then the worker may end it before it can say so
        assert "where a child process must end" in capfd.readouterr().err


@pytest.mark.parametrize("where", ["worker_init", "per_worker", "item"])
def test_a_child_of_a_mapped_function_answers_nothing(where):
    way = WAYS["returns"]

    def square(item: int) -> tuple[int, int]:
        if where == "item":
            way()
        return item * item, os.getpid()

    options: dict[str, Any] = {} if where == "item" else {where: way}
    results = corral.map(square, range(30), workers=2, **options)
    assert [square for square, _ in results] == [item * item for item in range(30)]
    assert len({pid for _, pid in results}) <= 2


def test_a_child_that_comes_back_while_auto_measures_is_no_second_worker():
    envs = [functools.partial(Forking, s, "raises", "step") for s in range(SLOTS)]
    with corral.Pool(envs, on_fault="restart") as pool:
        check_rows(pool)


def test_what_a_child_raised_can_be_read(capfd):
    env = functools.partial(Forking, 0, "exec fails", "step")
    said = ""

    def has_ended_its_text() -> bool:
        nonlocal said
        said += capfd.readouterr().err
        return "os._exit() or exec" in said and said.endswith("\n")

    with corral.Pool([env], backend="process") as pool:
        pool.reset()
        pool.step([1])
        wait_until(has_ended_its_text)  # a worker that closes ends its child at once
    assert "worker 0, raised FileNotFoundError" in said
    assert "os._exit() or exec" in said
    assert "Traceback" not in said


def test_children_that_behave_are_left_alone():
    def with_children() -> list[Any]:
        import multiprocessing

        context = multiprocessing.get_context("fork")
        queue = context.SimpleQueue()
        child = context.Process(target=queue.put, args=(os.getpid(),))
        child.start()
        told = queue.get()
        child.join()
        said = subprocess.run(
            [sys.executable, "-c", "print(3)"],
            preexec_fn=os.getpid,
            capture_output=True,
        )
        pid = os.fork()
        if pid == 0:
            # In a copy, but not of ours: the pool that it makes here is its own.
            with corral.Pool(functools.partial(Forking, 0), 1, backend="serial") as own:
                own.reset()
                os._exit(int(own.step([9]).reward[0]))
        code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        return [told == os.getpid(), child.exitcode, said.stdout, code]

    with corral.Pool(functools.partial(Forking, 0), 1, backend="process") as pool:
        (result,) = pool.apply(lambda env: with_children())
    assert result == [True, 0, b"3\n", 9]


def test_a_copy_of_a_serial_program_goes_on_like_a_copy_of_any_loop(run):
    said = run(
        """
        import os, sys
        import corral
        from forking_env import Forking

        class Once(Forking):
            def step(self, action):
                if self.time == 1:
                    self.child = os.fork()
                return super().step(action)

        with corral.Pool(lambda: Once(0), 1, backend="serial") as pool:
            pool.reset()
            pool.step([1])
            step = pool.step([2])
            child = pool.envs[0].child
            if child == 0:
                try:
                    pool.step([3])
                except corral.errors.OwnershipError:
                    os._exit(int(step.obs[0, 2]))
            code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
            print(code, step.obs[0, 2], pool.step([3]).obs[0, 2])
        """,
        environ={"PYTHONPATH": os.pathsep.join(sys.path)},
    )
    assert said.split() == ["3", "3.0", "6.0"]


@pytest.mark.parametrize("on_fault", PARENTS)
@pytest.mark.parametrize("receiving", [{}, {"min_slots": SLOTS}, {"timeout": 60.0}])
def test_rings_for_nothing_deliver_no_row(receiving, on_fault, tmp_path):
    ringing = [functools.partial(Ringing, slot) for slot in (0, 1)]
    waiting = [functools.partial(Patient, s, folder=str(tmp_path)) for s in (2, 3)]
    options = {"backend": "process", "workers": 2, "on_fault": on_fault}
    with corral.Pool([*ringing, *waiting], isolation="shared", **options) as pool:
        pool.reset()
        total = np.zeros(SLOTS)
        for step in range(LENGTH - 1):
            total += actions_at(step)
            pool.send(actions_at(step))
            received = pool.recv(**receiving)
            # Seen by the slow ones, if this came without them.
            for value in total[2:] - actions_at(step)[2:]:
                (tmp_path / str(int(value))).touch()
            assert received.obs[:, 2].tolist() == total.tolist()
            for path in tmp_path.iterdir():
                path.unlink()
        # No slot was left waiting; and a poll with nothing there gives nothing.
        pool.send(actions_at(LENGTH - 1))
        with pytest.raises(TimeoutError):
            pool.recv(timeout=0.0)
        assert pool.recv().terminated.all()
