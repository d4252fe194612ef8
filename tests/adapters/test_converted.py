"""Converted envs are stepped as PettingZoo's conversion steps them."""

from __future__ import annotations

import importlib
from typing import Any

import numpy as np
import pytest

pytest.importorskip("pettingzoo", reason="PettingZoo is not installed")

from corral.adapters.converted import Cycle, stepper

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
    step = stepper(ours)
    assert isinstance(step.__self__, Cycle)  # type: ignore[attr-defined]
    for seed in range(2):
        assert ours.reset(seed=seed) == theirs.reset(seed=seed)
        while theirs.agents:
            actions = {
                agent: np.int64((seed + theirs.unwrapped.num_moves * place) % 3)
                for place, agent in enumerate(theirs.agents)
            }
            assert step(actions) == theirs.step(actions)
            assert ours.agents == theirs.agents
    assert ours.unwrapped.calls == theirs.unwrapped.calls


@pytest.mark.parametrize("step_of", [lambda env: env.step, stepper])
def test_wrappers_still_refuse_and_agents_still_have_to_take_turns(
    step_of: Any,
) -> None:
    env = converted()
    env.reset(seed=0)
    with pytest.raises(AssertionError, match="action is not in action space"):
        step_of(env)({"player_0": 7, "player_1": 0})
    env = converted(leaves=True)
    env.reset(seed=0)
    with pytest.raises(AssertionError, match=r"player_1.*player_0"):
        step_of(env)({"player_0": 1, "player_1": 0})


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
        assert stepper(env) == env.step
