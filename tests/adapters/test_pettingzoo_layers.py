"""Tables are read behind wrappers that only hand them on, and behind no others."""

from __future__ import annotations

import importlib
from typing import Any

import pytest

pytest.importorskip("pettingzoo", reason="PettingZoo is not installed")

from corral.adapters.layers import TABLES, keeper_of

wrappers = importlib.import_module("pettingzoo.utils.wrappers")
rps = importlib.import_module("pettingzoo.classic.rps.rps")


def wrapped(env: Any) -> Any:
    env = wrappers.TerminateIllegalWrapper(env, illegal_reward=-1)
    env = wrappers.AssertOutOfBoundsWrapper(env)
    return wrappers.OrderEnforcingWrapper(env)


def test_the_env_itself_keeps_what_its_wrappers_show() -> None:
    env = wrapped(rps.raw_env())
    env.reset(seed=0)
    assert keeper_of(env) is env.unwrapped
    for table in TABLES:
        assert getattr(env, table) is getattr(env.unwrapped, table)


def test_a_wrapper_with_tables_of_its_own_is_asked() -> None:
    class Generous(wrappers.BaseWrapper):  # type: ignore[misc]
        @property
        def rewards(self) -> Any:
            return {agent: 7 for agent in self.agents}

    env = wrapped(generous := Generous(rps.raw_env()))
    assert keeper_of(env) is generous

    class Watched(wrappers.OrderEnforcingWrapper):  # type: ignore[misc]
        pass

    assert keeper_of(watched := Watched(rps.raw_env())) is watched


def test_a_table_that_somebody_has_put_on_a_wrapper_counts() -> None:
    env = wrapped(rps.raw_env())
    env.env.infos = {"player_0": {"told": True}}
    assert keeper_of(env) is env.env
