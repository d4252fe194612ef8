"""A fault in one slot cuts short those of its agents who were alive, and no others."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import corral
from corral.api.pettingzoo.env import MultiEnv
from corral.errors import EnvError, WorkerDied
from tests.api.multi_envs import FINE, KILL, RAISE, Fragile

AGENTS = ("early", "late_0", "late_1")
OPTIONS: dict[str, Any] = {"backend": "process", "workers": 2}


def actions(slot: int = 0, action: int = FINE) -> Any:
    chosen = {agent: np.zeros(2, np.int64) for agent in AGENTS}
    chosen["late_0"][slot] = action
    return chosen


def at(arrays: Any, slot: int) -> list[Any]:
    """What the slot's agents have, in their order."""
    return [np.asarray(arrays[agent][slot]).tolist() for agent in AGENTS]


@pytest.mark.parametrize("action, kind", [(RAISE, "raised"), (KILL, "died")])
def test_a_restarted_slot_ends_with_its_living_agents_cut_short(
    action: int, kind: str
) -> None:
    with corral.make_multi(Fragile, 2, on_fault="restart", **OPTIONS) as same_step:
        for mode in ("same_step", "next_step", "off"):
            envs = MultiEnv(same_step.pool, autoreset=mode)
            envs.reset(seed=1)
            for _ in range(3):
                envs.step(actions())
            obs, rewards, terminated, truncated, infos = envs.step(actions(1, action))
            assert infos["fault"][1].kind == kind and envs.valid.tolist() == [
                True,
                False,
            ]
            assert at(rewards, 0) == [0, 1, 1] and at(rewards, 1) == [0, 0, 0]
            assert at(truncated, 0) == [False] * 3
            assert at(truncated, 1) == [False, True, True]
            assert not np.any([*terminated.values()])
            assert at(envs.final_obs, 1) == [[0], [13], [13]]
            begun = mode == "same_step"
            assert at(envs.alive, 1) == [begun] * 3
            assert at(obs, 1) == [[10 * begun]] * 3
            assert at(envs.alive, 0) == [False, True, True]
            assert at(obs, 0) == [[0], [14], [14]]
            if mode == "off":
                obs, _ = envs.reset(slots=[1])
                assert at(envs.alive, 0) == [False, True, True]
            elif mode == "next_step":
                obs, *_ = envs.step(actions())
                assert envs.valid.tolist() == [True, False]
            assert at(obs, 1) == [[10]] * 3 and at(envs.alive, 1) == [True] * 3
            obs, rewards, *_ = envs.step(actions())
            assert at(obs, 1) == [[11]] * 3 and at(rewards, 1) == [1, 1, 1]


@pytest.mark.parametrize("backend", ["serial", "thread", "process"])
def test_an_exception_names_its_slot_and_the_others_go_on(backend: str) -> None:
    workers = {} if backend == "serial" else {"workers": 2}
    with corral.make_multi(Fragile, 2, backend=backend, **workers) as envs:
        envs.reset(seed=1)
        with pytest.raises(EnvError, match=r"(?s)slot 1.*not that one") as caught:
            envs.step(actions(1, RAISE))
        assert caught.value.step.slots.tolist() == [0]
        obs, _ = envs.reset(slots=[1])
        assert at(obs, 0) == [[11]] * 3 and at(obs, 1) == [[10]] * 3
        obs, *_ = envs.step(actions())
        assert at(obs, 0) == [[0], [12], [12]] and at(obs, 1) == [[11]] * 3


def test_a_killed_worker_is_one_error_and_the_pool_closes() -> None:
    with corral.make_multi(Fragile, 2, **OPTIONS) as envs:
        envs.reset(seed=1)
        with pytest.raises(WorkerDied, match="SIGKILL"):
            envs.step(actions(1, KILL))
