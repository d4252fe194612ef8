"""Trials: several episodes of one task are one episode to everything else."""

from __future__ import annotations

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces

import corral
from corral.core import NO_TASK
from corral.engine.adapters.single_agent import GymnasiumAdapter
from corral.engine.adapters.task_delivery import TaskDelivery
from corral.errors import OptionError


class Counter(gymnasium.Env):
    """Counts steps; an episode ends after `length`, by `how`."""

    observation_space = spaces.Box(-np.inf, np.inf, (1,), np.float64)
    action_space = spaces.Discrete(3)

    def __init__(self, length=3, how="terminated"):
        self.length, self.how = length, how
        self.task = 0.0
        self.resets = 0

    def set_task(self, task):
        self.task = float(task)

    def get_task(self):
        return np.array([self.task])

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.steps = 0
        self.resets += 1
        return np.array([self.resets * 100.0]), {}

    def step(self, action):
        self.steps += 1
        over = self.steps == self.length
        flags = self.how == "terminated" and over, self.how == "truncated" and over
        obs = np.array([self.resets * 100.0 + self.steps])
        return obs, self.task + self.steps, *flags, {"at": self.steps}


def play(env, task=None):
    """Every observation of a trial, the flags of its steps, and its last info."""
    if task is not None:
        env.set_task(task)
    seen, ends = [env.reset(seed=1)[0]], []
    while not ends or not any(ends[-1]):
        obs, _, terminated, truncated, info = env.step(1)
        seen.append(obs)
        ends.append((terminated, truncated))
    return np.array(seen), ends, info


@pytest.mark.parametrize("how", ["terminated", "truncated"])
def test_the_last_inner_end_alone_ends_the_trial_with_the_envs_flags(how):
    seen, ends, info = play(corral.Trials(Counter(3, how), episodes=2), task=10)
    assert seen[:, 0].tolist() == [100, 101, 102, 200, 201, 202, 203]
    assert seen[:, 1].tolist() == [0, 0, 0, 1, 0, 0, 1]
    assert ends[:-1] == [(False, False)] * 5
    assert ends[-1] == (how == "terminated", how == "truncated")
    assert info["trial_returns"].tolist() == [36.0, 36.0]
    assert info["trial_lengths"].tolist() == [3, 3] and info["at"] == 3


def test_varibad_shows_the_last_observation_and_keeps_the_first_in_the_info():
    env = corral.Trials(Counter(2), episodes=2, convention="varibad")
    env.reset(seed=0)
    env.step(0)
    obs, _, terminated, truncated, info = env.step(0)
    assert obs.tolist() == [102, 1] and not (terminated or truncated)
    assert info["start_state"].tolist() == [200]


def test_one_episode_has_no_flag_and_the_oracle_sees_the_task():
    assert play(corral.Trials(Counter(), episodes=1))[0].shape == (4, 1)
    seen, _, _ = play(corral.Trials(Counter(), episodes=2, oracle=True), task=7)
    assert (seen[:, 1] == 7).all() and seen.shape == (7, 3)


def test_previous_action_and_reward_follow_the_flag():
    env = corral.Trials(Counter(2), episodes=2, previous=True)
    seen, _, _ = play(env, task=10)
    assert seen[0].tolist() == [100, 0, 0, 0, 0, 0]
    assert seen[1].tolist() == [101, 0, 0, 1, 0, 11]
    assert seen[2].tolist() == [200, 1, 0, 1, 0, 12], "they last over an inner end"
    assert env.observation_space.contains(seen[2])


@pytest.mark.parametrize("backend", ["serial", "thread", "process"])
def test_a_trial_is_an_episode_to_pools_and_episodes(backend):
    def make():
        return corral.Trials(Counter(3), episodes=2)

    class Always:
        def act(self, step, carry, rng):
            return corral.Decision(np.ones(len(step), np.int64))

    tasks = [5.0, 1.0, 3.0, 2.0, 4.0]
    with corral.Pool(make, 2, backend=backend, seed=0) as pool:
        found = corral.run_episodes(pool, Always(), tasks=tasks)
    assert [one.length for one in found] == [6] * 5
    assert [one.info["trial_returns"].tolist() for one in found] == [
        [6 + 3 * task] * 2 for task in tasks
    ]
    assert [one.task for one in found] == tasks


def test_mistakes_are_named():
    for odd in (0, 1.5, "2"):  # a trial of 1.5 episodes would not end
        with pytest.raises(
            OptionError, match=f"episodes is {odd!r}; it must be an int"
        ):
            corral.Trials(Counter(), episodes=odd)
    with pytest.raises(OptionError, match="choose one of corral, varibad"):
        corral.Trials(Counter(), convention="both")
    with pytest.raises(OptionError, match=r"appends the task, and .* has no get_task"):
        corral.Trials(gymnasium.make("CartPole-v1"), oracle=True)
    with pytest.raises(OptionError, match="FlattenObservation first"):
        corral.Trials(gymnasium.make("Blackjack-v1"))


# How tasks reach an env ---------------------------------------------------------------


class ByResetTask(Counter):
    set_task = None

    def has_wrapper_attr(self, name):
        return name != "set_task" and super().has_wrapper_attr(name)

    def reset_task(self, task):
        self.task = float(task)


class ByKeyword(ByResetTask):
    reset_task = None

    def has_wrapper_attr(self, name):
        return name != "reset_task" and super().has_wrapper_attr(name)

    def reset(self, *, seed=None, options=None, task=None):
        self.task = 0.0 if task is None else float(task)
        return super().reset(seed=seed)


class ByOptions(gymnasium.Env):
    observation_space = spaces.Box(-10, 10, (1,))
    action_space = spaces.Discrete(2)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.task = (options or {}).get("task", 0.0)
        return np.zeros(1, np.float32), {}


@pytest.mark.parametrize(
    ("kind", "way"),
    [
        (Counter, "set_task"),
        (ByResetTask, "reset_task"),
        (ByKeyword, "reset"),
        (ByOptions, "options"),
    ],
)
def test_the_adapter_uses_the_way_that_the_env_has(kind, way):
    env = kind()
    assert TaskDelivery(env).by == way
    GymnasiumAdapter(env).reset(1, {"other": 1}, 4.0)
    assert env.task == 4.0
    GymnasiumAdapter(env).reset(None, None, NO_TASK)


def test_task_by_names_another_way():
    env = Counter()
    by_function = TaskDelivery(env, lambda env, task: setattr(env, "task", task * 2))
    assert by_function(3.0, None) == {} and env.task == 6.0
    assert TaskDelivery(env, "options")(3.0, {"a": 1}) == {
        "options": {"a": 1, "task": 3.0}
    }
    with pytest.raises(OptionError, match=r"task_by is 'choose_task', and .* no such"):
        TaskDelivery(env, "choose_task")
