"""Envs whose exceptions, infos and answers misbehave on their way home."""

from __future__ import annotations

import functools
import pickle
import signal
import threading
import traceback
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from odd_envs import (
    Env,
    ExitsWhenPickled,
    ExitsWhenTold,
    Hoarder,
    NoText,
    OnlyThere,
    Pickles,
    TakesNoAttributes,
    Wordy,
)
from running import ENV

import corral
from corral.engine.faults.fault_file import report_of
from corral.errors import EnvError, OptionError, StartError

BACKENDS = ["serial", "thread", "process"]
SENDING = "sending an info to the caller"


ODD = [
    NoText,
    ExitsWhenTold,
    ExitsWhenPickled,
    OnlyThere,
    TakesNoAttributes,
    SystemExit,
    GeneratorExit,
]


def pool_of(backend: str, *factories: Any) -> corral.Pool:
    workers = None if backend == "serial" else len(factories)
    return corral.Pool(list(factories), backend=backend, workers=workers)


@pytest.mark.parametrize("kind", ODD)
@pytest.mark.parametrize("backend", BACKENDS)
def test_an_odd_exception_is_a_fault_and_not_the_workers_death(backend, kind):
    with pool_of(backend, Env, functools.partial(Env, "step", kind)) as pool:
        pool.reset()
        with pytest.raises(EnvError, match=rf"slot 1.*{kind.__name__} in step"):
            pool.step([0, 0])
        pool.reset()
        assert pool.step([0], [0]).valid.all()
        assert pool.call("echo", 3) == (3, 3)


@pytest.mark.parametrize("kind", ODD)
@pytest.mark.parametrize("backend", BACKENDS)
def test_an_odd_exception_in_a_constructor_is_named(backend, kind):
    with pytest.raises(StartError, match=kind.__name__):
        pool_of(backend, Env, functools.partial(Env, "construct", kind))


@pytest.mark.parametrize("backend", ["thread", "process"])
def test_an_interrupt_that_an_env_raises_itself_is_a_fault_like_any_other(backend):
    with pool_of(backend, Env, functools.partial(Env, "step", KeyboardInterrupt)) as p:
        p.reset()
        with pytest.raises(EnvError, match=r"slot 1.*KeyboardInterrupt in step"):
            p.step([0, 0])
        p.reset()
        assert p.step([0], [0]).valid.all()
    env = functools.partial(Env, "call", KeyboardInterrupt)
    with pool_of(backend, Env, env) as pool:
        with pytest.raises(EnvError, match=r"slot 1.*KeyboardInterrupt in call"):
            pool.call("echo", 1)
        assert pool.get_attr("time") == (0, 0)


@pytest.mark.parametrize("mode", ["same_step", "next_step"])
@pytest.mark.parametrize("when", ["step 1", "step 3"])
def test_an_info_that_cannot_be_pickled_is_mended_like_an_exception(
    mode, when, tmp_path
):
    env = functools.partial(Pickles, when, str(tmp_path / "once"))
    options = {"backend": "process", "workers": 1, "autoreset": mode}
    with corral.Pool([env], on_fault="restart", **options) as pool:
        pool.reset()
        number = int(when[-1])
        for count in range(1, number):
            assert pool.step([0]).obs.tolist() == [[count]]
        step = pool.step([0])
        assert (step.valid, step.truncated, step.terminated) == ([False], [True], False)
        assert step.final_obs.tolist() == [[number - 1]]
        fault = step.infos.of(0)["fault"]
        assert (fault.kind, fault.command) == ("raised", SENDING)
        assert (fault.step, fault.restarts) == (number, 0)
        if mode == "next_step":
            assert pool.step([0]).started.all()
        assert pool.step([0]).obs.tolist() == [[1]]
        assert [fault.slot for fault in pool.faults] == [0]


def test_a_reset_whose_info_cannot_be_pickled_is_done_again(tmp_path):
    env = functools.partial(Pickles, "reset", str(tmp_path / "once"))
    with corral.Pool([env], backend="process", on_fault="restart") as pool:
        step = pool.reset()
        assert step.valid.all() and step.infos.of(0)["fine"] == "reset"
        assert [fault.command for fault in pool.faults] == [SENDING]


@pytest.mark.parametrize("mode", ["same_step", "next_step", "off"])
def test_a_last_step_whose_info_is_no_dict_ends_the_episode_all_the_same(mode):
    class Listed(Env):
        def step(self, action):
            obs, info = np.ones(2, np.float32), [] if action else {}
            return obs, 1.0, bool(action), False, info

    options = {"backend": "process", "workers": 1, "autoreset": mode}
    with corral.Pool(Listed, 1, on_fault="restart", **options) as pool:
        pool.reset()
        pool.step([0])
        step = pool.step([1])
        assert (step.valid, step.truncated) == ([False], [True])
        assert step.started.all() == (mode == "same_step")
        assert step.infos.of(0)["fault"].command == "step"


def test_an_info_that_only_its_worker_can_unpickle_names_its_slot():
    with pool_of("process", Env, functools.partial(Env, "info")) as pool:
        pool.reset()
        with pytest.raises(EnvError, match=r"slot 1.*unpickling.*not here"):
            pool.step([0, 0])
        pool.reset()
        assert pool.step([0], [0]).valid.all()


def test_an_answer_that_cannot_be_opened_is_told_and_not_waited_for():
    with pool_of("process", Env, functools.partial(Env, "answer")) as pool:
        with pytest.raises(EnvError, match=r"worker 1.*not here"):
            pool.call("echo", 1)
        assert pool.get_attr("time") == (0, 0)


def test_a_question_that_cannot_be_packed_leaves_no_answer_for_the_next():
    with pool_of("process", Env, Env) as pool:
        with pytest.raises(OptionError, match=r"cannot be sent to a worker: .*lock"):
            pool.set_attr("time", [1, threading.Lock()])
        assert pool.call("echo", 5) == (5, 5)
        assert pool.get_attr("time") == (0, 0)


@pytest.mark.parametrize("backend", ["thread", "process"])
def test_an_interrupted_question_leaves_no_answer_for_the_next(backend):
    with pool_of(backend, Env, Env) as pool:
        main = threading.main_thread().ident
        assert main is not None
        timer = threading.Timer(0.1, signal.pthread_kill, (main, signal.SIGINT))
        timer.start()
        with pytest.raises(KeyboardInterrupt):
            pool.call("nap")
        timer.join()
        assert pool.call("echo", 7) == (7, 7)


def test_a_reset_that_cannot_be_sent_to_one_slot_changes_none():
    with pool_of("process", Env, Env) as pool:
        with pytest.raises(OptionError, match="slot 1 cannot be sent"):
            pool.reset(options=[{"a": 1}, {"a": threading.Lock()}])
        step = pool.reset()
        assert [step.infos.of(slot) for slot in (0, 1)] == [{"options": None}] * 2


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_reset_that_fails_shows_no_actions(backend):
    class Unwilling(Env):
        def reset(self, **_):
            raise ValueError

    with pool_of(backend, Unwilling) as pool:
        with pytest.raises(EnvError) as caught:
            pool.reset()
        assert caught.value.fault.last_actions == ()


@pytest.mark.parametrize("backend", BACKENDS)
def test_what_an_env_uses_again_was_copied_in_time(backend):
    with pool_of(backend, Hoarder) as pool:
        first = pool.reset()
        steps = [pool.step([0]) for _ in range(3)]
    assert [first.obs[0].nodes[0, 0], *(s.obs[0].nodes[0, 0] for s in steps)] == [
        0,
        1,
        2,
        0,
    ]
    infos = [steps[0].infos.of(0), steps[1].infos.of(0), steps[2].final_infos[0]]
    for time_then, info in enumerate(infos, 1):
        assert info["time"] == time_then
        assert info["big"][0] == info["below"]["big"][0] == time_then
    assert steps[2].final_obs[0].nodes[0, 0] == 3


@pytest.mark.parametrize("backend", BACKENDS)
def test_envs_of_a_pool_that_nobody_closed_are_closed_at_exit(run, backend):
    said = run(
        ENV
        + f"""
import corral

class Mine(Env):
    def close(self):
        print("closed", flush=True)

pool = corral.Pool(Mine, 2, backend={backend!r}, isolation="shared")
pool.reset()
"""
    )
    # Two threads may print at the same time, and a line and its end are two writes.
    assert said.count("closed") == 2


def test_a_ctrl_c_inside_an_env_under_serial_leaves_a_pool_to_be_closed():
    with pool_of("serial", functools.partial(Env, "step", KeyboardInterrupt)) as pool:
        pool.reset()
        with pytest.raises(KeyboardInterrupt):
            pool.step([0])
        with pytest.raises(corral.errors.ClosedError, match="Ctrl-C"):
            pool.recv()


@pytest.mark.parametrize("closed", [(1,), (0, 1, 2)])
def test_a_parent_without_standard_streams(run, closed, tmp_path):
    result = tmp_path / "result"
    run(
        "import os\n"
        + "".join(f"os.close({descriptor})\n" for descriptor in closed)
        + ENV
        + f"""
import corral

with corral.Pool(Env, 2, backend="process", workers=2) as pool:
    pool.reset()
    reward = pool.step([0, 0]).reward.sum()
open({str(result)!r}, "w").write(str(reward))
os._exit(0)
"""
    )
    assert result.read_text() == "2.0"


@pytest.mark.parametrize("backend", BACKENDS)
def test_an_exception_with_a_text_of_50_mb_is_told_in_a_few_kb(backend, tmp_path):
    with pool_of(backend, Env, Wordy) as pool:
        pool.reset()
        with pytest.raises(EnvError) as caught:
            pool.step([0, 0])
    error = caught.value
    text = str(error)
    assert len(text) < 12_000
    assert "first words" in text and "last words" in text
    assert "characters left out" in text
    shown = "".join(traceback.format_exception(error))
    assert "in step" in shown and len(shown) < 60_000
    if backend == "process":
        # The env's own exception came along, with as much of its text.
        assert type(error.fault.exception) is ValueError
        assert len(pickle.dumps(error.fault.exception)) < 12_000
    error.fault.save(tmp_path / "fault.zip")
    assert (tmp_path / "fault.zip").stat().st_size < 200_000


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_constructor_that_raises_with_50_mb_is_told_in_a_few_kb(backend):
    class Unbuilt(Env):
        def __init__(self):
            raise ValueError("first words " + "x" * 50_000_000)

    with pytest.raises(StartError, match="first words") as caught:
        pool_of(backend, Unbuilt)
    assert len("".join(traceback.format_exception(caught.value))) < 80_000


def test_an_exception_that_carries_megabytes_of_data_leaves_them_behind():
    class Loaded(Exception):
        pass

    class Heavy(Env):
        def step(self, action):
            raise Loaded("short", np.zeros(10**6))

    with pool_of("process", Heavy) as pool:
        pool.reset()
        with pytest.raises(EnvError, match="Loaded in step") as caught:
            pool.step([0])
    assert caught.value.fault.exception is None


def test_actions_that_take_pages_to_write_down_are_shortened(tmp_path):
    class Failing(Env):
        action_space = gym.spaces.Text(10**7)

        def step(self, action):
            raise ValueError("no")

    with pool_of("process", Failing) as pool:
        pool.reset()
        with pytest.raises(EnvError) as caught:
            pool.send_raw(["y" * 10**6])
            pool.recv()
    assert len(str(caught.value)) < 3000
    report = report_of(caught.value.fault)
    assert len(report) < 20_000
