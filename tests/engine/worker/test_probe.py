"""What a probe finds out about an env, and how it treats it meanwhile."""

from __future__ import annotations

import functools
import itertools
import sys
import threading
import time
from dataclasses import replace

import gymnasium
import numpy as np
import pytest
from gymnasium.envs.classic_control import CartPoleEnv

from corral import this_worker
from corral.engine.worker.commands import Job, ProbeRequest, ShardOptions
from corral.engine.worker.context import here
from corral.engine.worker.probe import Measurement, Probe
from corral.engine.worker.worker import Worker

SECONDS = 0.06


class Diary(gymnasium.Env):
    """Writes down in which thread it is built, reset, stepped and closed."""

    observation_space = gymnasium.spaces.Box(-1.0, 1.0, (2,), np.float32)
    action_space = gymnasium.spaces.Discrete(3)

    def __init__(self, diary, name, threads=False, nap=0.0):
        self.metadata = {"corral.threads": threads}
        self.diary, self.name, self.nap = diary, name, nap
        self.note("build")

    def note(self, what):
        self.diary.append((self.name, what, threading.get_ident()))

    def reset(self, *, seed=None, options=None):
        self.note("reset")
        self.steps = 0
        return np.zeros(2, np.float32), {}

    def step(self, action):
        self.note("step")
        assert self.action_space.contains(action)
        time.sleep(self.nap)
        self.steps += 1
        return np.zeros(2, np.float32), 0.0, self.steps == 5, False, {}

    def close(self):
        self.note("close")


@pytest.fixture(autouse=True)
def stays_outside():
    """A probe is at home in a worker process; here it must not leave its context."""
    outside = here.context
    yield
    here.context = outside


def probed(first, second, **job) -> Measurement:
    asked = Job(0, range(2), [first, second], ShardOptions(), **job)
    worker = Worker(replace(asked, slots=range(0), factories=()))
    worker.prepare()
    return Probe(worker, asked, ProbeRequest(SECONDS, judges=False)).run()


def diaries(threads):
    diary = []
    made = [
        functools.partial(Diary, diary, name, threads) for name in ("first", "second")
    ]
    return diary, made


def test_both_envs_are_built_stepped_and_closed():
    diary, made = diaries(threads=False)
    measured = probed(*made)
    for name in ("first", "second"):
        notes = [what for who, what, _ in diary if who == name]
        assert notes[0] == "build" and notes[-1] == "close"
        assert notes.count("close") == 1 and "step" in notes
    assert measured.step_time > 0
    assert not measured.threads and measured.thread_gain == 1.0


class Compiling(Diary):
    """The first step of all takes long, as where something is compiled or loaded."""

    def step(self, action):
        if not any(what == "step" for _, what, _ in self.diary):
            time.sleep(10 * SECONDS)
        return super().step(action)


def test_a_first_step_that_compiles_is_not_what_steps_take():
    diary = []
    made = [functools.partial(Compiling, diary, name) for name in ("first", "second")]
    assert probed(*made).step_time < SECONDS / 100


def test_ended_episodes_are_reset_and_belong_to_the_cost():
    diary, made = diaries(threads=False)
    probed(*made)
    notes = [what for who, what, _ in diary if who == "first"]
    ends = [i for i, what in enumerate(notes) if notes[i - 5 : i] == ["step"] * 5]
    assert ends and all(notes[i] in ("reset", "close") for i in ends)


def test_an_undeclared_env_never_sees_another_thread():
    diary, made = diaries(threads=False)
    probed(*made)
    assert {thread for *_, thread in diary} == {threading.get_ident()}


def test_a_declared_env_has_one_thread_from_its_first_breath_to_its_last():
    diary, numbers = [], itertools.count()

    def made():
        return Diary(diary, next(numbers), threads=True)

    assert probed(made, made).threads
    threads = {who: set() for who, *_ in diary}
    for who, _, thread in diary:
        threads[who].add(thread)
    assert threads.pop(0) == {threading.get_ident()}
    assert len(threads) == 2 and all(len(own) == 1 for own in threads.values())
    assert len(set.union(*threads.values())) == 2


def test_envs_that_wait_are_tried_in_threads_also_where_sharing_is_known():
    class Waiting(Diary):
        def __init__(self):
            super().__init__([], "waiting", nap=2e-3)
            self.metadata = {}

    measured = probed(Waiting, Waiting)
    assert measured.threads and not measured.declared
    assert measured.thread_gain > 1.0


def test_both_must_declare_it():
    diary = []
    one, other = (functools.partial(Diary, diary, "x", threads) for threads in (1, 0))
    assert not probed(one, other).threads
    assert not probed(other, one).threads


def test_sleeping_is_not_computing():
    diary = []
    sleeper = functools.partial(Diary, diary, "sleeper", nap=5e-3)
    measured = probed(sleeper, sleeper)
    # Less than the nap where other programs had the cores: their share is left out.
    assert measured.step_time > 1e-3
    assert measured.computing < 0.5


def test_arithmetic_is_computing():
    class Busy(Diary):
        def step(self, action):
            sum(range(20_000))
            return super().step(action)

    made = functools.partial(Busy, [], "busy")
    assert probed(made, made).computing > 0.5


@pytest.mark.parametrize("threads", [False, True])
def test_both_are_stepped_at_once_where_that_is_declared(threads):
    inside, crowds = [], []

    class Guest(Diary):
        def step(self, action):
            inside.append(self)
            crowds.append(len(inside))
            try:
                return super().step(action)
            finally:
                inside.remove(self)

    made = functools.partial(Guest, [], "guest", threads, nap=2e-3)
    measured = probed(made, made)
    assert max(crowds) == (2 if threads else 1)
    assert (measured.thread_gain != 1.0) == threads


@pytest.mark.parametrize("threads", [False, True])
def test_an_env_that_raises_is_closed_and_says_so(threads):
    class Broken(Diary):
        def step(self, action):
            raise RuntimeError("the gripper is stuck")

    diary = []
    good = functools.partial(Diary, diary, "first", threads)
    with pytest.raises(RuntimeError, match="the gripper is stuck"):
        probed(good, functools.partial(Broken, diary, "second", threads))
    for name in ("first", "second"):
        notes = [what for who, what, _ in diary if who == name]
        assert notes.count("close") == notes.count("build") > 0


def test_an_env_that_raises_in_a_thread_leaves_the_switch_interval_as_it_was():
    class Shy(Diary):
        def __init__(self):
            super().__init__([], "shy", nap=2e-3)
            self.metadata = {}

        def step(self, action):
            if threading.current_thread() is not threading.main_thread():
                raise RuntimeError("not in this thread")
            return super().step(action)

    usual = sys.getswitchinterval()
    with pytest.raises(RuntimeError, match="not in this thread"):
        probed(Shy, Shy)
    assert sys.getswitchinterval() == usual


@pytest.mark.parametrize("threads", [False, True])
def test_an_env_that_cannot_be_built_tells_its_slot(threads):
    def unmakeable():
        raise OSError("no such arena")

    diary = []
    good = functools.partial(Diary, diary, "first", threads)
    with pytest.raises(OSError, match="no such arena") as caught:
        probed(good, unmakeable)
    assert caught.value.slot == 1
    assert ("first", "close", threading.get_ident()) in diary


@pytest.mark.parametrize("threads", [False, True])
def test_envs_find_their_worker_in_whichever_thread_they_are(threads):
    found = []

    def made():
        found.append((this_worker().resource, this_worker().slots))
        return Diary([], "x", threads)

    probed(made, made, per_worker=lambda: "session")
    assert len(found) == (3 if threads else 2)
    assert set(map(str, found)) == {str(("session", range(2)))}


def test_resources_come_before_the_envs():
    order = []

    def made():
        order.append("env")
        return Diary([], "x")

    probed(
        made,
        made,
        worker_init=lambda: order.append("init"),
        per_worker=lambda: order.append("resource"),
    )
    assert order == ["init", "resource", "env", "env"]


# Declarations -------------------------------------------------------------------------


def declaring_class():
    class Declared(CartPoleEnv):
        metadata = {**CartPoleEnv.metadata, "corral.threads": True}  # noqa: RUF012

    return gymnasium.wrappers.TimeLimit(Declared(), 50)


def declared_on_the_outermost_wrapper():
    env = gymnasium.make("CartPole-v1")
    env.metadata = {**env.metadata, "corral.threads": True}
    return env


def declared_under_a_wrapper():
    env = declared_on_the_outermost_wrapper()
    return gymnasium.wrappers.RecordEpisodeStatistics(env)


@pytest.mark.parametrize(
    "factory",
    [
        declaring_class,
        declared_on_the_outermost_wrapper,
        declared_under_a_wrapper,
    ],
)
def test_a_declaration_is_found_through_wrappers(factory):
    assert probed(factory, factory).threads


def test_a_declaration_by_one_user_is_not_everybodys():
    declared_on_the_outermost_wrapper().close()
    env = gymnasium.make("CartPole-v1")
    assert "corral.threads" not in env.metadata
    env.close()
