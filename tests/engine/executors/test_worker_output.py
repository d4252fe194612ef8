"""What envs print and log is passed on live, and kept for faults."""

from __future__ import annotations

import logging
import os
import signal
import sys
import threading
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from running import open_descriptors, wait_until

import corral
from corral.engine.executors.worker_output import WorkerOutput
from corral.errors import EnvError, StartError, WorkerDied


class Env(gym.Env[Any, Any]):
    observation_space = gym.spaces.Box(-1, 1, (2,))
    action_space = gym.spaces.Discrete(2)

    def __init__(self, work: Any = None) -> None:
        self.work = work

    def reset(self, *, seed=None, options=None):
        return np.zeros(2, np.float32), {}

    def step(self, action):
        self.work()
        return np.zeros(2, np.float32), 1.0, False, False, {}


def pool_of(work: Any, num_envs: int = 1) -> corral.Pool:
    pool = corral.Pool(lambda: Env(work), num_envs, backend="process")
    pool.reset()
    return pool


@pytest.mark.parametrize("capture", ["capsys", "capfd"])
def test_print_arrives_while_the_env_still_runs(capture, request, tmp_path: Path):
    go = tmp_path / "go"

    def work():
        print("neigh", "ñ")
        print("snort", file=sys.stderr)
        wait_until(go.exists)

    captured = request.getfixturevalue(capture)
    said = ["", ""]

    def heard():
        for index, text in enumerate(captured.readouterr()):
            said[index] += text
        return said == ["neigh ñ\n", "snort\n"]

    with pool_of(work) as pool:
        pool.send([0])
        wait_until(heard)
        go.touch()
        pool.recv()


def test_output_of_native_code_and_children_arrives(capsys):
    def work():
        os.write(1, b"from C\n")
        os.system("echo from a child")

    with pool_of(work) as pool:
        pool.step([0])
    assert capsys.readouterr().out == "from C\nfrom a child\n"


def test_last_words_arrive_before_close_returns(capsys):
    class LastWords(Env):
        def close(self):
            sys.stdout.write("farewell")

    corral.Pool(LastWords, 1, backend="process").close()
    assert capsys.readouterr().out == "farewell"


def test_much_output_does_not_stall_the_env(capsys):
    with pool_of(lambda: print("x" * 3_000_000)) as pool:
        pool.step([0])
    assert len(capsys.readouterr().out) == 3_000_001


def test_log_records_keep_logger_level_and_text(caplog):
    def work():
        log = logging.getLogger("corral_test.stable")
        log.debug("too quiet")
        log.info("fed %d", 3)
        try:
            raise KeyError("hay")
        except KeyError:
            log.exception("went wrong")

    caplog.set_level(logging.INFO, "corral_test")
    with pool_of(work) as pool:
        pool.step([0])
    records = [r for r in caplog.records if r.name == "corral_test.stable"]
    said = [(record.levelname, record.getMessage()) for record in records]
    assert said == [("INFO", "fed 3"), ("ERROR", "went wrong")]
    assert "KeyError: 'hay'" in str(records[1].exc_text)
    assert records[0].process not in (None, os.getpid())


def test_big_log_records_of_many_workers_arrive_whole(caplog):
    def work():
        for number in range(20):
            logging.getLogger("corral_test.big").warning("%d %s", number, "x" * 30_000)

    with corral.Pool(lambda: Env(work), 2, backend="process", workers=2) as pool:
        pool.reset()
        pool.step([0, 0])
    assert len([r for r in caplog.records if len(r.message) > 30_000]) == 40


def test_killed_worker_leaves_its_last_output_in_the_fault(capsys):
    def work():
        for number in range(3000):
            print(f"line {number} {'.' * 40}")
        os.kill(os.getpid(), signal.SIGKILL)

    pool = pool_of(work)
    with pytest.raises(WorkerDied, match="line 2999") as caught:
        pool.step([0])
    pool.close()
    output = caught.value.fault.output
    assert 60_000 < len(output) <= 64 * 1024
    assert output.rstrip().endswith("line 2999 " + "." * 40)
    assert "line 2999" in capsys.readouterr().out


def test_segfault_shows_where_it_happened(capsys):
    import faulthandler

    pool = pool_of(lambda: faulthandler._sigsegv())  # type: ignore[attr-defined]
    with pytest.raises(WorkerDied, match="SIGSEGV") as caught:
        pool.step([0])
    pool.close()
    assert "Segmentation fault" in caught.value.fault.output
    assert Path(__file__).name in caught.value.fault.output


def test_output_before_a_failed_constructor_is_in_the_error(capsys):
    def make():
        print("licence server: no answer")
        raise OSError("no licence")

    with pytest.raises(StartError, match="licence server: no answer"):
        corral.Pool(make, 1, backend="process")


def test_broken_stdout_of_the_parent_does_not_stall_workers(monkeypatch):
    class Broken:
        def write(self, text: str) -> None:
            raise OSError("disk full")

    with pool_of(lambda: print("x" * 300_000)) as pool:
        monkeypatch.setattr(sys, "stdout", Broken())
        pool.step([0])
        monkeypatch.undo()


def test_breakpoint_in_a_step_is_an_env_error():
    pool = pool_of(breakpoint)
    with pytest.raises(EnvError, match='use backend="serial"'):
        pool.step([0])
    pool.close()


def test_an_output_whose_thread_was_refused_closes_all_it_has_opened(monkeypatch):
    def refused(thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    before = open_descriptors()
    output = WorkerOutput()
    monkeypatch.setattr(threading.Thread, "start", refused)
    with pytest.raises(RuntimeError, match="can't start new thread"):
        output.start()
    output.close()
    assert open_descriptors() == before
