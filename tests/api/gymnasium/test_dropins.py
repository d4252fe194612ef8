"""Change one import line: the drop-ins behave as Gymnasium's classes do."""

from __future__ import annotations

import functools
import multiprocessing
import os
import subprocess
import sys
import threading
import time
from pathlib import Path

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces
from gymnasium.vector import AsyncVectorEnv, AutoresetMode, SyncVectorEnv

from corral import dropin
from corral.errors import FactoryError, OptionError, StartError

from ..envs import Chatty, Moody, Trouble
from ..side_by_side import GYMNASIUM, assert_same, assert_same_run
from .test_env import MODES, factories

OURS = {"async": dropin.AsyncVectorEnv, "sync": dropin.SyncVectorEnv}


@pytest.fixture(params=OURS)
def kind(request):
    return request.param


# Trajectories -------------------------------------------------------------------------


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("name", ["CartPole-v1", "Blackjack-v1"])
def test_every_step_equals_gymnasium(name, mode, kind, opened):
    ours = opened(OURS[kind](factories(name), autoreset_mode=mode))
    theirs = opened(SyncVectorEnv(factories(name), autoreset_mode=mode))
    assert assert_same_run(ours, theirs, 50) >= 3
    assert ours.metadata == theirs.metadata


@pytest.mark.parametrize("shared_memory", [True, False])
def test_every_step_equals_gymnasiums_processes(shared_memory):
    # In a process of its own: theirs forks, and this one may have threads.
    code = f"""
from gymnasium.vector import AsyncVectorEnv
from corral import dropin
from api.side_by_side import assert_same_run
from api.gymnasium.test_env import factories

options = {{"shared_memory": {shared_memory}, "autoreset_mode": "SameStep"}}
theirs = AsyncVectorEnv(factories("CartPole-v1", 2), context="fork", **options)
ours = dropin.AsyncVectorEnv(factories("CartPole-v1", 2), context="fork", **options)
assert assert_same_run(ours, theirs, 50) >= 2
assert ours.observation_space == theirs.observation_space
assert ours.metadata == theirs.metadata
ours.close()
theirs.close()
"""
    result = subprocess.run(
        [sys.executable, "-c", code],
        cwd=Path(__file__).parents[2],
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert result.returncode == 0, result.stderr


def test_positional_arguments_come_in_gymnasiums_order(opened):
    envs = opened(
        dropin.AsyncVectorEnv(
            [Moody, Moody], False, False, "spawn", False, None, "same", "SameStep", 2
        )
    )
    assert (envs.shared_memory, envs.copy, envs.context) == (False, False, "spawn")
    assert (envs.daemon, envs.worker, envs.max_concurrency) == (False, None, 2)
    assert envs.metadata["autoreset_mode"] is AutoresetMode.SAME_STEP
    envs = opened(dropin.SyncVectorEnv([Moody], False, "same", AutoresetMode.DISABLED))
    assert envs.copy is False and envs.observation_mode == "same"
    assert envs.metadata["autoreset_mode"] is AutoresetMode.DISABLED


def test_factories_may_come_from_any_iterable(kind, opened):
    envs = opened(OURS[kind](factory for factory in [Moody, Moody]))
    assert envs.num_envs == 2 and len(envs.env_fns) == 2


def test_lambdas_and_local_classes_are_fine(kind, opened):
    class Local(Moody):
        def add(self, *terms):
            return 10 * sum(terms)

    envs = opened(OURS[kind]([lambda: Local(), lambda: Local()]))
    assert envs.call("add", 1, 2) == (30, 30)


# Where the envs are -------------------------------------------------------------------


def test_async_is_always_processes_and_sync_is_always_here(opened):
    processes = opened(dropin.AsyncVectorEnv([Moody]))
    assert processes.layout.backend == "process"
    assert processes.call("pid") != (os.getpid(),)
    here = opened(dropin.SyncVectorEnv([Moody] * 3))
    assert here.layout.backend == "serial"
    assert here.call("pid") == (os.getpid(),) * 3


def test_a_layout_says_asked_for_only_of_what_was(opened):
    shared = {"isolation": "shared"}
    asked = opened(dropin.AsyncVectorEnv([Moody] * 4, workers=1, **shared))
    assert str(asked.layout) == "4 slots, 1 process: asked for"
    unasked = opened(dropin.AsyncVectorEnv([Moody] * 4, **shared))
    assert "asked for" not in unasked.layout.reason
    assert unasked.layout.reason.startswith("this class uses processes; ")


def test_sync_has_its_envs(opened):
    envs = opened(dropin.SyncVectorEnv([Moody] * 3))
    envs.reset()
    envs.step(np.array([0, 0, 0]))
    assert all(type(env) is Moody and env.time == 1 for env in envs.envs)
    envs.envs[1].mood = "touched"
    assert envs.get_attr("mood") == ("calm", "touched", "calm")


def test_async_has_no_envs_to_offer(opened):
    envs = opened(dropin.AsyncVectorEnv([Moody]))
    assert not hasattr(envs, "envs")


def test_max_concurrency_limits_the_processes(opened):
    shared = {"isolation": "shared"}  # it fails when it is tried
    envs = opened(dropin.AsyncVectorEnv([Moody] * 4, max_concurrency=1, **shared))
    assert envs.layout.workers == 1
    assert len(set(envs.call("pid"))) == 1


def test_options_of_the_pool_are_taken_as_well(opened):
    envs = opened(dropin.AsyncVectorEnv([Moody] * 3, isolation="slot"))
    assert len(set(envs.call("pid"))) == 3


# Arguments ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    "options",
    [
        {"context": "teleport"},
        {"autoreset_mode": "Sometimes"},
        {"observation_mode": "similar"},
        # Before 1.4, Gymnasium does not know it.
        *({"max_concurrency": count} for count in (0, -1) if GYMNASIUM >= (1, 4)),
    ],
    ids=str,
)
def test_bad_arguments_are_refused_as_by_gymnasium(options):
    with pytest.raises(Exception) as expected:
        AsyncVectorEnv([Moody], **options)
    with pytest.raises(expected.type):
        dropin.AsyncVectorEnv([Moody], **options)


@pytest.mark.parametrize("count", [1.5, 0, -1])
def test_a_max_concurrency_that_is_no_positive_integer_is_refused(count):
    told = f"`max_concurrency` is {count}; it must be an integer >= 1"
    with pytest.raises(ValueError, match=told):
        dropin.AsyncVectorEnv([Moody], max_concurrency=count)


def test_a_custom_worker_is_refused_with_the_reason():
    with pytest.raises(OptionError, match=r"over a pipe.*worker_init"):
        dropin.AsyncVectorEnv([Moody], worker=lambda *arguments: None)


def test_no_factories_at_all_are_refused(kind):
    with pytest.raises(OptionError, match="at least one"):
        OURS[kind]([])


class Secret(spaces.Space):
    """A space nobody knows."""

    def __init__(self) -> None:
        super().__init__((), None)

    def sample(self, mask=None, probability=None):
        return object()

    def contains(self, x):
        return True

    def __eq__(self, other):
        return isinstance(other, Secret)


class Secretive(Moody):
    """Observes what fits no array."""

    observation_space = Secret()

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return {"anything": 1}, {}


def test_custom_spaces_need_shared_memory_off_as_in_gymnasium(opened):
    with pytest.raises(ValueError, match="shared_memory=False"):
        dropin.AsyncVectorEnv([Secretive] * 2)
    envs = opened(dropin.AsyncVectorEnv([Secretive] * 2, shared_memory=False))
    assert envs.reset()[0] == ({"anything": 1}, {"anything": 1})


class Graphic(Moody):
    """Observes sequences, which Gymnasium's shared memory refuses."""

    observation_space = spaces.Sequence(spaces.Discrete(9))

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return (1, 2, 3), {}


def test_gymnasiums_own_spaces_of_no_fixed_size_work_either_way(opened):
    theirs = opened(SyncVectorEnv([Graphic] * 2))
    for shared_memory in (True, False):
        ours = opened(dropin.AsyncVectorEnv([Graphic] * 2, shared_memory=shared_memory))
        assert_same(ours.reset(), theirs.reset())


# Errors -------------------------------------------------------------------------------


class Unbuildable(Moody):
    """Cannot be made."""

    def __init__(self) -> None:
        raise Trouble("not today")


def test_a_constructor_that_raises_gives_its_own_exception_ours_as_cause(kind):
    with pytest.raises(Trouble, match="not today") as caught:
        OURS[kind]([Moody, Unbuildable])
    ours = caught.value.__cause__
    assert isinstance(ours, StartError)
    assert ours.fault.slot == 1 and ours.fault.kind == "start"
    assert "not today" in (ours.fault.traceback or "")


def test_a_factory_that_returns_nothing_is_refused(kind):
    with pytest.raises(OptionError, match=r"slot 1.*returned None"):
        OURS[kind]([Moody, lambda: None])


def test_a_factory_that_cannot_travel_is_refused_with_the_culprit():
    lock = threading.Lock()

    def make():
        return Moody(log=lock)

    with pytest.raises(FactoryError, match="its variable 'lock'"):
        dropin.AsyncVectorEnv([make])


class Percent(Moody):
    """Raises with a text that a careless formatter would trip over."""

    def step(self, action):
        if action == 1:
            raise Trouble("100% broken, %s and %d")
        return super().step(action)


def test_where_warnings_are_errors_the_envs_own_exception_is_raised(opened):
    envs = opened(dropin.AsyncVectorEnv([Percent] * 2))
    envs.reset()
    with pytest.raises(Trouble, match="100% broken"):
        envs.step(np.array([1, 0]))


def test_where_warnings_are_errors_a_pending_close_still_closes(opened):
    envs = opened(dropin.AsyncVectorEnv([Moody] * 2))
    envs.reset()
    envs.step_async(np.array([0, 0]))
    with pytest.raises(UserWarning, match="pending call to `step`"):
        envs.close()
    assert envs.pool.closed
    envs.close()
    assert envs.closed


def test_errors_of_the_envs_are_logged_before_one_is_raised(opened):
    envs = opened(dropin.AsyncVectorEnv([Percent] * 3))
    envs.reset()
    with (
        pytest.warns(UserWarning) as logged,
        pytest.raises(Trouble),
    ):
        envs.step(np.array([1, 0, 1]))
    text = "\n".join(str(warning.message) for warning in logged)
    assert "100% broken" in text
    assert "Worker-0" in text and "Worker-2" in text and "Trouble" in text


def test_actions_that_fit_no_space_reach_the_env_as_in_gymnasium(kind, opened):
    """Gymnasium hands actions on unseen; an env may know what to do with them."""
    ours = opened(OURS[kind]([Chatty] * 2))
    theirs = opened(SyncVectorEnv([Chatty] * 2))
    actions = {
        "move": np.array([0.5, 1.5]),
        "push": np.ones((2, 2)),
    }
    assert_same(ours.reset(seed=1), theirs.reset(seed=1))
    assert_same(ours.step(actions), theirs.step(actions))


def refusal_of_actions(theirs, actions):
    """What Gymnasium raises; not every version before 1.3 counts them."""
    if np.ndim(actions) and GYMNASIUM < (1, 3):
        return ValueError
    with pytest.raises(Exception) as refusal:
        theirs.step(actions)
    return refusal.type


@pytest.mark.parametrize("actions", [np.array([0]), [0, 0, 0], 0, None], ids=repr)
def test_a_wrong_number_of_actions_is_refused_as_by_gymnasium(actions, kind, opened):
    ours = opened(OURS[kind]([Moody] * 2))
    theirs = opened(SyncVectorEnv([Moody] * 2))
    for envs in (ours, theirs):
        envs.reset()
    with pytest.raises(refusal_of_actions(theirs, actions)):
        ours.step(actions)
    assert ours.step(np.array([0, 0]))[1].tolist() == [1.0, 1.0]


def test_close_can_be_told_to_terminate(opened):
    envs = opened(dropin.AsyncVectorEnv([Moody] * 2))
    envs.reset()
    envs.step_async(np.array([2, 2]))
    with pytest.warns(UserWarning, match="pending call to `step`"):
        envs.close(terminate=True)
    assert envs.closed


def test_a_reset_can_time_out(opened):
    envs = opened(dropin.AsyncVectorEnv([functools.partial(Drowsy, 0.2)] * 2))
    envs.reset_async()
    with pytest.raises(multiprocessing.TimeoutError, match="reset_wait"):
        envs.reset_wait(timeout=0.01)


class Drowsy(Moody):
    """Takes its time to wake up."""

    def __init__(self, seconds: float) -> None:
        super().__init__()
        self.seconds = seconds

    def reset(self, *, seed=None, options=None):
        time.sleep(self.seconds)
        return super().reset(seed=seed, options=options)


def test_make_vec_finds_the_drop_ins_where_they_are_put(monkeypatch, opened):
    monkeypatch.setattr(gymnasium.vector, "SyncVectorEnv", dropin.SyncVectorEnv)
    envs = opened(gymnasium.make_vec("CartPole-v1", 2, vectorization_mode="sync"))
    assert isinstance(envs.unwrapped, dropin.SyncVectorEnv)
    envs.reset(seed=0)
    envs.step(np.array([0, 1]))


def test_dropin_says_what_it_has():
    with pytest.raises(
        AttributeError, match=r"has AsyncPettingZooVecEnv, .*SyncVectorEnv"
    ):
        dropin.NoSuchVectorEnv  # noqa: B018
