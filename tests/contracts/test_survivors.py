"""With on_fault="raise", what the other slots of a batch returned is not lost."""

from __future__ import annotations

import functools
import os
import signal
from collections.abc import Callable
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces

import corral
from corral import Pool
from corral.errors import CorralError, EnvError, SpaceMismatch, WorkerDied

from .envs import Broken, Talker

pytestmark = pytest.mark.usefixtures("no_child_stays")
MakePool = Callable[..., Pool]
GOOD = functools.partial(Broken)


def broken(*wrong: str) -> list[Callable[[], Any]]:
    return [functools.partial(Broken, each) for each in wrong]


def test_the_error_carries_the_step_of_the_slots_that_were_fine(
    make_pool: MakePool,
) -> None:
    pool = make_pool(broken("", "step raises", "", "step raises"))
    pool.reset()
    with pytest.raises(EnvError, match="slot 1") as caught:
        pool.step([0, 0, 0, 0])
    step = caught.value.step
    assert step.slots.tolist() == [0, 2]
    assert step.valid.all() and step.episode_length.tolist() == [1, 1]
    kept = step.obs.copy()
    again = pool.step([0, 0], slots=[0, 2])
    assert again.episode_length.tolist() == [2, 2]
    np.testing.assert_array_equal(step.obs, kept)  # the caller's own


def test_a_batch_that_failed_as_a_whole_has_no_step(make_pool: MakePool) -> None:
    pool = make_pool(broken("step raises", "step raises"))
    pool.reset()
    with pytest.raises(EnvError) as caught:
        pool.step([0, 0])
    assert caught.value.step is None
    assert [fault.slot for fault in caught.value.faults] == [0, 1]


def test_resets_and_parts_of_a_batch_are_kept_as_well(make_pool: MakePool) -> None:
    pool = make_pool(broken("", "reset raises", ""))
    with pytest.raises(EnvError) as caught:
        pool.reset()
    assert caught.value.step.slots.tolist() == [0, 2]
    assert caught.value.step.started.all()
    with pytest.raises(EnvError) as caught:
        pool.reset([1, 2])
    assert caught.value.step.slots.tolist() == [2]


def test_a_mistake_of_an_env_keeps_the_others_results_too(make_pool: MakePool) -> None:
    wrong = functools.partial(Broken, "step obs", np.zeros(9, np.float32))
    pool = make_pool([GOOD, wrong, GOOD])
    pool.reset()
    with pytest.raises(SpaceMismatch, match="slot 1") as caught:
        pool.step([0, 0, 0])
    assert caught.value.step.slots.tolist() == [0, 2]
    assert caught.value.fault is not None and caught.value.fault.slot == 1


def test_infos_and_ends_of_the_others_come_along(make_pool: MakePool) -> None:
    chatty = functools.partial(Talker, [{}, {"word": "early", "n": 3}], length=1)

    class Failing(Talker):
        def step(self, action: Any) -> Any:
            raise RuntimeError("not today")

    pool = make_pool([chatty, functools.partial(Failing, [{}])])
    pool.reset()
    with pytest.raises(EnvError) as caught:
        pool.step([0, 0])
    step = caught.value.step
    assert step.ended.tolist() == [True]
    assert step.final_infos[0] == {"word": "early", "n": 3}


def test_mailed_observations_of_the_others_come_along(make_pool: MakePool) -> None:
    class Speaker(gymnasium.Env[Any, Any]):
        observation_space = spaces.Text(9)
        action_space = spaces.Discrete(2)

        def reset(self, **_: Any) -> Any:
            return "hello", {}

        def step(self, action: Any) -> Any:
            if action:
                raise RuntimeError("speechless")
            return "again", 0.0, False, False, {}

    pool = make_pool(Speaker, 3)
    pool.reset()
    with pytest.raises(EnvError) as caught:
        pool.step([0, 1, 0])
    assert caught.value.step.obs == ("again", "again")
    assert pool.observe()[0] == "again"


@pytest.mark.parametrize("backend", ["process"])
def test_a_death_keeps_what_had_arrived(make_pool: MakePool) -> None:
    class Mortal(Broken):
        def step(self, action: Any) -> Any:
            if action == 1:
                os.kill(os.getpid(), signal.SIGKILL)
            return super().step(action)

    pool = make_pool(Mortal, 4)  # two in each worker
    pool.reset()
    pool.send([0, 0, 1, 0])
    pool.recv(slots=[0])  # so slot 1, its neighbour, may be there as well
    pool.get_attr("spec", slots=[1])  # answered after its step
    with pytest.raises(WorkerDied, match="slot 2") as caught:
        pool.recv()
    step = caught.value.step
    assert step.slots.tolist() == [1] and step.valid.all()
    assert [fault.slot for fault in caught.value.faults] == [2]


@pytest.mark.parametrize("backend", ["process"])
def test_a_death_tells_of_envs_that_raised_meanwhile(make_pool: MakePool) -> None:
    class Mortal(Broken):
        def step(self, action: Any) -> Any:
            if action == 1:
                os.kill(os.getpid(), signal.SIGKILL)
            if action == 2:
                raise RuntimeError("me too")
            return super().step(action)

    pool = make_pool(Mortal, 2)
    pool.reset()
    pool.send([2], slots=[0])
    pool.get_attr("spec", slots=[0])
    pool.send([1], slots=[1])
    with pytest.raises(WorkerDied) as caught:
        pool.recv()
    assert [fault.slot for fault in caught.value.faults] == [1, 0]
    assert caught.value.step is None


def test_gymnasiums_api_hands_it_on(backend: str) -> None:
    envs = corral.make(broken("", "step raises", "step raises"), backend=backend)
    try:
        envs.reset(seed=0)
        with pytest.raises(ZeroDivisionError) as caught:
            envs.step(np.zeros(3, int))
        ours = caught.value.__cause__
        assert isinstance(ours, CorralError)
        assert ours.step.slots.tolist() == [0]
        assert [fault.slot for fault in ours.faults] == [1, 2]
    finally:
        envs.close()
