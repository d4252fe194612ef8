"""Tables are read behind wrappers that only hand them on, and behind no others."""

from __future__ import annotations

import importlib
from typing import Any

import pytest

pytest.importorskip("pettingzoo", reason="PettingZoo is not installed")

from corral.core import NO_TASK
from corral.engine.adapters.aec import AecAdapter
from corral.engine.adapters.pettingzoo_wrappers import TABLES, keeper_of

wrappers = importlib.import_module("pettingzoo.utils.wrappers")
rps = importlib.import_module("pettingzoo.classic.rps.rps")


def wrapped(env: Any) -> Any:
    env = wrappers.TerminateIllegalWrapper(env, illegal_reward=-1)
    env = wrappers.AssertOutOfBoundsWrapper(env)
    return wrappers.OrderEnforcingWrapper(env)


def test_the_env_itself_keeps_what_its_wrappers_show() -> None:
    env = wrapped(rps.raw_env())
    env.reset(seed=0)
    assert keeper_of(env)[0] is env.unwrapped
    for table in TABLES:
        assert getattr(env, table) is getattr(env.unwrapped, table)


def test_a_wrapper_with_tables_of_its_own_is_asked() -> None:
    class Generous(wrappers.BaseWrapper):  # type: ignore[misc]
        @property
        def rewards(self) -> Any:
            return {agent: 7 for agent in self.agents}

    env = wrapped(generous := Generous(rps.raw_env()))
    assert keeper_of(env)[0] is generous

    class Watched(wrappers.OrderEnforcingWrapper):  # type: ignore[misc]
        pass

    assert keeper_of(watched := Watched(rps.raw_env()))[0] is watched


def test_a_table_that_somebody_has_put_on_a_wrapper_counts() -> None:
    env = wrapped(rps.raw_env())
    env.env.infos = {"player_0": {"told": True}}
    assert keeper_of(env)[0] is env.env


@pytest.mark.parametrize("change", ["table", "env"])
def test_a_layer_that_changes_in_the_middle_of_an_episode_is_asked(change: str) -> None:
    inside = wrappers.AssertOutOfBoundsWrapper(rps.raw_env())
    adapter = AecAdapter(wrappers.OrderEnforcingWrapper(inside))
    adapter.reset(0, None, NO_TASK)
    actions = adapter.spec.action_space.sample()
    adapter.step(actions)
    layer = adapter.env.env
    if change == "table":
        layer.rewards = {"player_0": 3.0, "player_1": 4.0}
    else:
        inner = layer.env
        layer.env = Rich(inner)
    assert adapter.step(actions)[1] == 7.0


class Rich(wrappers.BaseWrapper):  # type: ignore[misc]
    @property
    def rewards(self) -> Any:
        return {"player_0": 3.0, "player_1": 4.0}


class Forgetful(rps.raw_env):  # type: ignore[misc]
    """The steps of the dead clear what their players were told."""

    def step(self, action: Any) -> None:
        dead = self.terminations[self.agent_selection]
        dead = dead or self.truncations[self.agent_selection]
        if dead:
            self.infos[self.agent_selection].clear()
        super().step(action)
        if not dead:
            for agent in self.agents:
                self.infos[agent]["moves"] = [1]


def test_last_words_are_those_of_the_end() -> None:
    adapter = AecAdapter(Forgetful(max_cycles=1))
    adapter.reset(0, None, NO_TASK)
    actions = adapter.spec.action_space.sample()
    adapter.step(actions)
    *_, over, cut, told = adapter.step(actions)
    assert over or cut
    assert told == {"player_0": {"moves": [1]}, "player_1": {"moves": [1]}}
