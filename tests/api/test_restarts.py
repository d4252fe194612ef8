"""With on_fault="restart" a loop that knows nothing of faults goes on, with every API.

The env counts its steps and says which episode it is in, so that a step that is lost,
doubled or another slot's shows.
"""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces
from gymnasium.vector import SyncVectorEnv

import corral
from corral.errors import EnvError, WorkerDied

from .counting_env import FINE, HANG, KILL, LEAVE, LENGTH, RAISE, Counting

KINDS = {RAISE: "raised", LEAVE: "raised", KILL: "died", HANG: "hung"}
OPTIONS: dict[str, Any] = {
    "backend": "process",
    "workers": 2,
    "on_fault": "restart",
    "step_timeout": 0.5,
}


def batch(slot: int, action: int, count: int = 4) -> Any:
    actions = np.zeros(count, np.int64)
    actions[slot] = action
    return actions


# Gymnasium ----------------------------------------------------------------------------


@pytest.mark.parametrize("action", KINDS)
def test_gymnasium_goes_on_in_the_same_step(action: int, opened) -> None:
    envs = opened(corral.make(Counting, 4, autoreset="same_step", **OPTIONS))
    envs.reset(seed=1)
    envs.step(batch(0, FINE))
    # Walked downwards, so that slot 2's neighbour was done before.
    obs, rewards, terminations, truncations, infos = envs.step(batch(2, action))
    assert obs[:, 0].tolist() == [2, 2, 0, 2]
    assert rewards.tolist() == [2, 2, 0, 2]
    assert not terminations.any()
    assert truncations.tolist() == [False, False, True, False]
    assert envs.valid.tolist() == [True, True, False, True]
    assert infos["_fault"].tolist() == [False, False, True, False]
    assert infos["fault"][2].kind == KINDS[action]
    assert infos["_final_obs"].tolist() == [False, False, True, False]
    assert infos["final_obs"][2].tolist() == [1]
    obs, _, _, truncations, infos = envs.step(batch(0, FINE))
    # A death takes the neighbour's episode with it, one step later.
    beside = action in (KILL, HANG)
    assert obs[:, 0].tolist() == [3, 3, 1, 0 if beside else 3]
    assert truncations.tolist() == [False, False, False, beside]


@pytest.mark.parametrize("action", KINDS)
def test_gymnasium_goes_on_in_the_next_step(action: int, opened) -> None:
    envs = opened(corral.make(Counting, 4, **OPTIONS))
    envs.reset(seed=1)
    envs.step(batch(0, FINE))
    obs, _, _, truncations, _ = envs.step(batch(2, action))
    assert obs[:, 0].tolist() == [2, 2, 1, 2]  # it ends where it stood
    assert truncations.tolist() == [False, False, True, False]
    assert envs.valid.tolist() == [True, True, False, True]
    obs, rewards, _, truncations, _ = envs.step(batch(0, FINE))
    assert obs[2] == 0 and rewards[2] == 0 and not truncations[2]
    assert not envs.valid[2] and envs.started[2]
    obs, rewards, *_ = envs.step(batch(0, FINE))
    assert obs[2] == 1 and rewards[2] == 1 and envs.valid[2]


def counted_lengths(envs: Any, faults: dict[int, int]) -> list[int]:
    """The lengths of slot 0's episodes as Gymnasium's wrapper counts them."""
    counted = gymnasium.wrappers.vector.RecordEpisodeStatistics(envs)
    counted.reset(seed=1)
    lengths = []
    for number in range(12):
        actions = batch(1, faults.get(number, FINE), 2)
        _, _, terminations, truncations, infos = counted.step(actions)
        if (terminations | truncations)[0]:
            lengths.append(int(infos["episode"]["l"][0]))
    return lengths


def test_gymnasium_wrappers_count_whole_episodes_through_faults(opened) -> None:
    ours = opened(corral.make(Counting, 2, autoreset="same_step", **OPTIONS))
    theirs = opened(SyncVectorEnv([Counting] * 2, autoreset_mode="SameStep"))
    lengths = counted_lengths(ours, {3: RAISE, 6: KILL})
    # The other slot's worker was never touched. Before 1.4, Gymnasium's wrapper counts
    # one step too few from the second episode on, with its own classes too.
    assert lengths == counted_lengths(theirs, {})
    assert len(lengths) == 2 and lengths[0] == LENGTH


def test_gymnasium_questions_after_a_death_are_answered_by_the_new_worker(opened):
    envs = opened(corral.make(Counting, 4, **OPTIONS))
    envs.reset(seed=1)
    before = envs.call("pid")
    envs.step(batch(3, KILL))
    after = envs.call("pid")
    assert after[:2] == before[:2]
    assert len({*after[2:]}) == 1 and after[2] != before[2]


# Stable-Baselines3 --------------------------------------------------------------------


@pytest.mark.parametrize("action", KINDS)
def test_sb3_goes_on(action: int, opened) -> None:
    pytest.importorskip("stable_baselines3")
    envs = opened(corral.make_sb3(Counting, 4, **OPTIONS))
    envs.reset()
    envs.step(batch(0, FINE))
    obs, rewards, dones, infos = envs.step(batch(2, action))
    assert obs[:, 0].tolist() == [2, 2, 0, 2]
    assert rewards.tolist() == [2, 2, 0, 2]
    assert dones.tolist() == [False, False, True, False]
    assert envs.valid.tolist() == [True, True, False, True]
    assert infos[2]["TimeLimit.truncated"] is True  # so that it is bootstrapped
    assert infos[2]["terminal_observation"].tolist() == [1]
    assert infos[2]["fault"].kind == KINDS[action]
    assert not any("fault" in infos[slot] for slot in (0, 1, 3))
    obs, _, dones, infos = envs.step(batch(0, FINE))
    beside = action in (KILL, HANG)
    assert obs[:, 0].tolist() == [3, 3, 1, 0 if beside else 3]
    assert dones.tolist() == [False, False, False, beside]
    assert not beside or infos[3]["fault"].beside == 2


def test_sb3_trains_through_faults(opened) -> None:
    pytest.importorskip("stable_baselines3")
    import torch
    from stable_baselines3 import PPO
    from stable_baselines3.common.vec_env import VecMonitor, VecNormalize

    class Doomed(Counting):
        """Fails by what it drew, not by its action."""

        action_space = spaces.Discrete(2)

        def step(self, action: Any) -> Any:
            draw = self.np_random.random()
            doom = RAISE if draw < 0.05 else KILL if draw < 0.07 else FINE
            return super().step(doom)

    torch.manual_seed(0)
    options = {**OPTIONS, "step_timeout": None, "restarts_per_minute": 1000}
    envs = opened(corral.make_sb3(Doomed, 4, seed=0, **options))
    model = PPO("MlpPolicy", VecNormalize(VecMonitor(envs)), n_steps=32, batch_size=64)
    model.learn(128)
    assert model.num_timesteps == 128
    kinds = {fault.kind for fault in envs.pool.faults}
    assert kinds == {"raised", "died"}
    lengths = {episode["l"] for episode in model.ep_info_buffer}
    assert LENGTH in lengths and max(lengths) == LENGTH


# The first that are ready -------------------------------------------------------------


@pytest.mark.parametrize("action", KINDS)
def test_async_batches_go_on_without_the_slot_and_have_it_back(action: int, opened):
    envs = opened(corral.make_async(Counting, 4, 2, **OPTIONS))
    envs.async_reset(seed=1)
    taken = np.zeros(4, int)
    failed: list[Any] = []
    ordered = False
    while not failed or taken.min() < 8:
        obs, _, _, truncations, infos = envs.recv()
        for position, slot in enumerate(envs.slots.tolist()):
            lost = not envs.valid[position]
            assert truncations[position] == lost
            if lost:
                failed.append(infos["fault"][position])
                assert obs[position] == 0 and envs.started[position]
            taken[slot] += 1
        actions = np.zeros(2, int)
        if not ordered and 3 in envs.slots and taken[3] > 2:
            actions[envs.slots.tolist().index(3)] = action
            ordered = True
        envs.send(actions)
    assert [fault.kind for fault in failed if fault.slot == 3] == [KINDS[action]]
    assert {fault.slot for fault in failed} <= {2, 3}


# What is not mended -------------------------------------------------------------------


def test_too_many_restarts_are_each_apis_own_error(opened) -> None:
    options = {**OPTIONS, "max_restarts": 1}
    envs = opened(corral.make(Counting, 2, **options))
    envs.reset(seed=1)
    envs.step(batch(1, RAISE, 2))
    envs.step(batch(1, FINE, 2))
    with pytest.raises(ValueError, match="not that one") as caught:
        envs.step(batch(1, RAISE, 2))
    ours = caught.value.__cause__
    assert isinstance(ours, EnvError) and ours.fault.gave_up

    pytest.importorskip("stable_baselines3")
    vec = opened(corral.make_sb3(Counting, 2, **options))
    vec.reset()
    vec.step(batch(1, KILL, 2))
    with pytest.raises(WorkerDied, match="given up after 1 restart"):
        vec.step(batch(1, KILL, 2))
