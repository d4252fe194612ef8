"""Driving one env, or a batch of them, with a policy."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np


def drive(env, policy, **reset):
    """One episode; returns rewards, observations and the last info."""
    obs, _ = env.reset(**reset)
    seen, rewards, over = [obs], [], False
    while not over:
        action = policy.act(SimpleNamespace(obs=obs[None])).action[0]
        obs, reward, terminated, truncated, info = env.step(action)
        assert not terminated
        rewards.append(reward)
        seen.append(obs)
        over = truncated
    return np.array(rewards), np.array(seen), info


class Constant:
    """Always the same steer."""

    def __init__(self, steer):
        self.steer = steer

    def act(self, step, carry=None, rng=None):
        from corral import Decision

        return Decision(np.full((len(step.obs), 1), self.steer, np.float32))
