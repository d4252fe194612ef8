"""Envs and policies of the cluster's tests; installed nowhere, so sent by value."""

from __future__ import annotations

from dataclasses import fields, is_dataclass

import gymnasium
import numpy as np
from gymnasium import spaces

import corral


class Rooms(gymnasium.Env):
    """Dict observations, a task that moves the goal, episodes of drawn lengths."""

    observation_space = spaces.Dict(
        {"place": spaces.Box(-10, 10, (2,), np.float32), "room": spaces.Discrete(3)}
    )
    action_space = spaces.Box(-1, 1, (2,), np.float32)

    def __init__(self):
        self.goal = 0.0

    def set_task(self, task):
        self.goal = float(task)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.place = self.np_random.normal(size=2).astype(np.float32)
        self.left = int(self.np_random.integers(3, 12))
        return self._seen(), {}

    def step(self, action):
        self.place = np.clip(self.place + action, -10, 10).astype(np.float32)
        self.left -= 1
        reward = -abs(float(self.place[0]) - self.goal)
        found = abs(reward) < 0.1
        return self._seen(), reward, found, self.left <= 0, {"goal": self.goal}

    def _seen(self):
        return {"place": self.place, "room": int(self.left % 3)}


def draw_task(slot, episode, rng):
    return round(float(rng.uniform(-1, 1)), 3) + slot


class Walker:
    """Recurrent; a row's decision depends on its own row alone."""

    def __init__(self, gain=0.5):
        self.gain = np.full(2, gain)

    def initial_carry(self, rows):
        return np.zeros((rows, 2))

    def act(self, step, carry, rng):
        seen = step.obs["place"].astype(np.float64)
        carry = 0.5 * carry + seen
        noise = rng.normal(2)
        action = np.clip(self.gain * noise - 0.1 * carry, -1, 1).astype(np.float32)
        return corral.Decision(action, carry, {"noise": noise})

    def value(self, obs, carry):
        return obs["place"][:, 0].astype(np.float64) + carry[:, 0]

    def weights(self):
        return {"gain": self.gain}

    def load_weights(self, weights):
        self.gain = np.array(weights["gain"])


def make_trial():
    """Two episodes of one task, with the action and reward before each observation."""
    flat = gymnasium.wrappers.FlattenObservation(Rooms())
    return corral.Trials(flat, episodes=2, previous=True)


class Recall:
    """For trials: what it has seen is in its carry, across the inner episodes."""

    def initial_carry(self, rows):
        return np.zeros((rows, 2))

    def act(self, step, carry, rng):
        carry = 0.5 * carry + step.obs[:, :2]
        action = np.clip(0.3 * rng.normal(2) - 0.1 * carry, -1, 1).astype(np.float32)
        return corral.Decision(action, carry)

    def value(self, obs, carry):
        return obs[:, 0].astype(np.float64) + carry[:, 0]


class Tilt:
    """For CartPole: draws, and depends on its own row alone."""

    def act(self, step, carry, rng):
        tilted = step.obs[:, 2] + 0.2 * rng.normal()[:, 0] > 0
        return corral.Decision(tilted.astype(np.int64), None, {"seen": step.obs[:, 0]})

    def value(self, obs, carry):
        return obs[:, 2].astype(np.float64)


PARTS = (
    *("obs", "action", "reward", "terminated", "truncated", "started", "valid"),
    *("extras", "final_obs", "next_obs", "next_started", "first_carry", "next_carry"),
    *("bootstrap", "next_value", "episodes", "version"),
)


def assert_equal(one, other, where=""):
    """Bit for bit, in any structure."""
    if isinstance(one, dict):
        assert one.keys() == other.keys(), where
        for key in one:
            assert_equal(one[key], other[key], f"{where}.{key}")
    elif isinstance(one, (list, tuple)):
        assert len(one) == len(other), where
        for number, pair in enumerate(zip(one, other, strict=True)):
            assert_equal(*pair, f"{where}[{number}]")
    elif is_dataclass(one):
        for field in fields(one):
            pair = (getattr(each, field.name) for each in (one, other))
            assert_equal(*pair, f"{where}.{field.name}")
    elif isinstance(one, np.ndarray):
        assert one.dtype == other.dtype, (where, one.dtype, other.dtype)
        assert np.array_equal(one, other), where
    elif hasattr(one, "detach"):
        assert_equal(one.detach().numpy(), other.detach().numpy(), where)
    else:
        assert one == other, where


def assert_same_rollouts(ours, theirs, slots=slice(None)):
    for number, (one, other) in enumerate(zip(ours, theirs, strict=True)):
        for name in PARTS:
            assert_equal(getattr(one, name), getattr(other, name), f"{number}.{name}")


def collected(pool, policy, norm=True, rows=24, change=True):
    """Three rollouts, the third after `end_episodes`, with weights that change."""
    obs_norm = corral.ObsNorm(pool.spec.observation_space) if norm else None
    reward_norm = corral.RewardNorm(0.99)
    collector = corral.Collector(
        pool, policy, obs_norm=obs_norm, reward_norm=reward_norm
    )
    found = [collector.collect(rows)]
    if change and hasattr(policy, "gain"):
        policy.gain = policy.gain * 0.5
    found.append(collector.collect(rows))
    collector.end_episodes(2)
    found.append(collector.collect(rows, end_episodes=3))
    return found
