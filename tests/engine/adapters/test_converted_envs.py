"""Converted envs are stepped as PettingZoo's conversion steps them."""

from __future__ import annotations

import functools
import importlib
import inspect
from typing import Any

import numpy as np
import pytest
from gymnasium import spaces

pytest.importorskip("pettingzoo", reason="PettingZoo is not installed")

from corral.engine.adapters.pettingzoo_wrappers import Cycle, without_detours

conversions = importlib.import_module("pettingzoo.utils.conversions")
wrappers = importlib.import_module("pettingzoo.utils.wrappers")
rps = importlib.import_module("pettingzoo.classic.rps.rps")


class Diary(rps.raw_env):
    """Rock, paper, scissors that writes down what is asked of it."""

    def __init__(self, leaves: bool = False) -> None:
        super().__init__(max_cycles=3)
        self.calls: list[Any] = []
        self.leaves = leaves

    def reset(self, seed: Any = None, options: Any = None) -> None:
        self.calls.append(("reset", seed))
        super().reset(seed, options)

    def observe(self, agent: Any) -> Any:
        self.calls.append(("observe", agent))
        return super().observe(agent)

    def step(self, action: Any) -> None:
        self.calls.append(("step", self.agent_selection, action))
        super().step(action)
        if self.leaves:
            self.agent_selection = "player_0"


def converted(**options: Any) -> Any:
    env = wrappers.AssertOutOfBoundsWrapper(Diary(**options))
    return conversions.aec_to_parallel(wrappers.OrderEnforcingWrapper(env))


def test_every_call_and_every_value_is_that_of_the_conversion() -> None:
    theirs, ours = converted(), converted()
    course = without_detours(ours)
    assert isinstance(course, Cycle)
    for seed in range(2):
        assert course.reset(seed=seed) == theirs.reset(seed=seed)
        assert ours.agents == theirs.agents
        while theirs.agents:
            actions = {
                agent: np.int64((seed + theirs.unwrapped.num_moves * place) % 3)
                for place, agent in enumerate(theirs.agents)
            }
            assert course.step(actions) == theirs.step(actions)
            assert ours.agents == theirs.agents
    assert ours.unwrapped.calls == theirs.unwrapped.calls


BOTH = pytest.mark.parametrize("course_of", [lambda env: env, without_detours])


@BOTH
@pytest.mark.parametrize("wrong", [7, np.int64(3), -1, 0.5, None, "rock"])
def test_wrappers_still_refuse_what_is_in_no_space(course_of: Any, wrong: Any) -> None:
    env = converted()
    course = course_of(env)
    course.reset(seed=0)
    with pytest.raises(AssertionError, match="action is not in action space"):
        course.step({"player_0": 0, "player_1": wrong})
    assert [call[0] for call in env.unwrapped.calls].count("step") == 1


@BOTH
def test_agents_still_have_to_take_turns(course_of: Any) -> None:
    env = converted(leaves=True)
    course = course_of(env)
    course.reset(seed=0)
    with pytest.raises(AssertionError, match=r"player_1.*player_0"):
        course.step({"player_0": 1, "player_1": 0})


class Pushers(rps.raw_env):
    """Agents that push with some force."""

    def __init__(self) -> None:
        super().__init__(max_cycles=3)
        self.forces: list[Any] = []

    def action_space(self, agent: Any) -> Any:
        return spaces.Box(-1.0, 1.0, (2,), np.float32)

    def step(self, action: Any) -> None:
        self.forces.append(action)
        super().step(None if action is None else int(action[0] > 0))


@BOTH
def test_wrappers_still_clip_what_is_too_much(course_of: Any) -> None:
    env = wrappers.OrderEnforcingWrapper(wrappers.ClipOutOfBoundsWrapper(Pushers()))
    env = conversions.aec_to_parallel(env)
    course = course_of(env)
    course.reset(seed=0)
    inside, outside = np.full(2, 0.5, np.float32), np.full(2, 3.0, np.float32)
    course.step({"player_0": inside, "player_1": outside})
    forces = env.unwrapped.forces
    assert forces[0] is inside and forces[1].tolist() == [1.0, 1.0]


def test_what_somebody_has_put_on_a_wrapper_is_called() -> None:
    env, seen = converted(), []
    outer = env.aec_env
    outer.step = lambda action: (seen.append(action), type(outer).step(outer, action))
    course = without_detours(env)
    course.reset(seed=0)
    course.step({"player_0": 1, "player_1": 2})
    assert seen == [1, 2]


@pytest.mark.parametrize("of_class", [False, True])
@pytest.mark.parametrize("name", ["observe", "last"])
def test_whatever_is_asked_of_a_wrapper_may_be_patched(
    name: str, of_class: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    env, seen = converted(), []
    owner = type(env.aec_env) if of_class else env.aec_env
    own = getattr(owner, name)

    @functools.wraps(own)  # so that it says that it is PettingZoo's
    def replacement(*given: Any) -> Any:
        seen.append(name)
        return own(*given)

    course = None if of_class else without_detours(env)
    monkeypatch.setattr(owner, name, replacement)  # of an env, before its next episode
    course = course or without_detours(env)
    course.reset(seed=0)
    course.step({"player_0": 1, "player_1": 2})
    assert seen


@pytest.mark.parametrize("outermost", [True, False])
def test_a_wrapper_that_is_put_in_later_is_called(outermost: bool) -> None:
    class Counted(wrappers.BaseWrapper):  # type: ignore[misc]
        steps = 0

        def step(self, action: Any) -> None:
            Counted.steps += 1
            super().step(action)

    env = converted()
    course = without_detours(env)
    course.reset(seed=0)
    holder, name = (env, "aec_env") if outermost else (env.aec_env, "env")
    setattr(holder, name, Counted(getattr(holder, name)))
    course.reset(seed=0)
    course.step({"player_0": 1, "player_1": 2})
    assert Counted.steps == 2


@pytest.mark.parametrize("where", ["instance", "class", "between", "kind", "whole"])
def test_what_changes_in_the_middle_of_an_episode_is_called(
    where: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    env, seen = converted(), []
    course = without_detours(env)
    assert isinstance(course, Cycle)
    course.reset(seed=0)
    course.step({"player_0": 1, "player_1": 2})
    outer = env.aec_env

    class Watched(wrappers.OrderEnforcingWrapper):  # type: ignore[misc]
        def step(self, action: Any) -> None:
            seen.append(action)
            super().step(action)

    def watched(owner: Any) -> Any:
        own = owner.step
        return lambda *given: (seen.append(given[-1]), own(*given))[1]

    if where == "instance":
        outer.step = watched(outer)
    elif where == "class":
        monkeypatch.setattr(type(outer), "step", watched(type(outer)))
    elif where == "between":
        outer.env = Watched(outer.env)
        outer.env._has_reset = True
    elif where == "kind":
        outer.__class__ = Watched
    else:
        env.step = watched(env)
    course.step({"player_0": 1, "player_1": 2})
    assert seen == ([{"player_0": 1, "player_1": 2}] if where == "whole" else [1, 2])


def test_what_is_set_on_a_wrapper_hides_what_the_env_has() -> None:
    env = converted()
    env.aec_env.rewards = {"player_0": 5.0, "player_1": 7.0}
    course = without_detours(env)
    course.reset(seed=0)
    rewards = course.step({"player_0": 1, "player_1": 2})[1]
    assert dict(rewards) == {"player_0": 10.0, "player_1": 14.0}


@BOTH
def test_nothing_is_asked_of_an_env_before_its_first_reset(course_of: Any) -> None:
    env = converted()
    with pytest.raises(AttributeError, match="before reset"):
        course_of(env).step({"player_0": 0, "player_1": 0})
    assert env.unwrapped.calls == []


class Sudden(Diary):
    """The first move ends it, and everybody is gone at once."""

    def step(self, action: Any) -> None:
        super().step(action)
        self.agents = []


@BOTH
def test_an_env_without_agents_is_not_stepped(course_of: Any) -> None:
    env = conversions.aec_to_parallel(wrappers.OrderEnforcingWrapper(Sudden()))
    course = course_of(env)
    course.reset(seed=0)
    course.step({"player_0": 0, "player_1": 1})
    assert [call[0] for call in env.unwrapped.calls].count("step") == 1


class Small(Diary):
    def action_space(self, agent: Any) -> Any:
        return spaces.Discrete(3, dtype=np.int8)


@pytest.mark.skipif(
    "dtype" not in inspect.signature(spaces.Discrete).parameters,
    reason="this Gymnasium has none",
)
@BOTH
def test_a_wider_integer_is_in_no_narrow_space(course_of: Any) -> None:
    env = conversions.aec_to_parallel(wrappers.AssertOutOfBoundsWrapper(Small()))
    course = course_of(env)
    course.reset(seed=0)
    with pytest.raises(AssertionError, match="action is not in action space"):
        course.step({"player_0": np.int64(1), "player_1": np.int64(1)})


def test_what_is_not_known_to_the_last_wrapper_is_left_to_the_conversion() -> None:
    class Own(wrappers.OrderEnforcingWrapper):  # type: ignore[misc]
        pass

    class Further(conversions.aec_to_parallel_wrapper):  # type: ignore[misc]
        pass

    for env in (
        conversions.aec_to_parallel(Diary()),
        conversions.aec_to_parallel(Own(Diary())),
        Further(wrappers.OrderEnforcingWrapper(Diary())),
    ):
        assert without_detours(env) is env
