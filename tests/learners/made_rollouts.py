"""Rollouts made up, as a collector would have made them with a learner's policy."""

from __future__ import annotations

from dataclasses import fields, replace
from types import SimpleNamespace

import numpy as np
from gymnasium import spaces

from corral.learners.ppo import PPO
from corral.rollouts.rollout import Rollout

BOX = spaces.Box(-1.0, 1.0, (3,), np.float32)


class Draws:
    """What a policy is given as `rng`, of one generator for all rows."""

    def __init__(self, rows: int, seed: int = 0) -> None:
        self._rows = rows
        self._generator = np.random.default_rng(seed)

    def __len__(self) -> int:
        return self._rows

    def random(self, count: int = 1):
        return self._generator.random((self._rows, count))

    def normal(self, count: int = 1):
        return self._generator.standard_normal((self._rows, count))


def sampled(space, count: int, seed: int):
    """A batch of observations."""
    if isinstance(space, spaces.Dict):
        return {key: sampled(inner, count, seed) for key, inner in space.spaces.items()}
    space.seed(seed)
    return np.stack([space.sample() for _ in range(count)])


def at(obs, row):
    if isinstance(obs, dict):
        return {key: at(part, row) for key, part in obs.items()}
    return obs[row]


def with_axes(obs, rows, slots):
    if isinstance(obs, dict):
        return {key: with_axes(part, rows, slots) for key, part in obs.items()}
    return obs.reshape(rows, slots, *obs.shape[1:])


def made_rollout(
    ppo: PPO, space, rows: int = 16, slots: int = 4, seed: int = 0, end: float = 0.1
) -> Rollout:
    """Random observations, rewards and ends; decisions as the policy makes them."""
    generator = np.random.default_rng(seed)
    obs = with_axes(sampled(space, (rows + 1) * slots, seed), rows + 1, slots)
    terminated = generator.random((rows, slots)) < end
    truncated = ~terminated & (generator.random((rows, slots)) < end)
    started = np.zeros((rows + 1, slots), np.bool_)
    started[1:] = terminated | truncated
    started[0, 0] = True
    carry = ppo.policy.initial_carry(slots)
    if carry is not None:
        carry = map_carry(carry, lambda part: part + np.float32(0.1))
        carry = begun(carry, started[0])
    first, draws, decisions = carry, Draws(slots, seed), []
    for row in range(rows):
        step = SimpleNamespace(obs=at(obs, row))
        decisions.append(ppo.policy.act(step, carry, draws))
        carry = begun(decisions[-1].carry, started[row + 1])
    bootstrap = np.where(truncated, generator.normal(size=(rows, slots)), 0.0)
    names = decisions[0].extras
    return blank(
        obs=map_obs(obs, lambda array: array[:rows].copy()),
        action=np.stack([one.action for one in decisions]),
        reward=generator.normal(size=(rows, slots)),
        terminated=terminated,
        truncated=truncated,
        started=started[:rows].copy(),
        valid=np.ones((rows, slots), np.bool_),
        extras={
            name: np.stack([one.extras[name] for one in decisions]) for name in names
        },
        first_carry=first,
        bootstrap=bootstrap,
        next_value=generator.normal(size=slots),
    )


def map_obs(obs, function):
    if isinstance(obs, dict):
        return {key: map_obs(part, function) for key, part in obs.items()}
    return function(obs)


def begun(carry, started):
    """The carry, with nothing remembered where an episode starts."""
    zero = np.float32(0)
    return map_carry(carry, lambda part: np.where(started[:, None], zero, part))


def map_carry(carry, function):
    if isinstance(carry, tuple):
        return tuple(function(part) for part in carry)
    return None if carry is None else function(carry)


def blank(**values) -> Rollout:
    """A rollout of these values; what learners do not look at is None."""
    missing = {field.name: None for field in fields(Rollout)} | values
    return Rollout(**missing)


def with_filler(rollout: Rollout, valid, **garbage: float) -> Rollout:
    """The same with some rows not valid, and whatever in them."""
    changed = {}
    for name, value in garbage.items():
        array = getattr(rollout, name).copy()
        array[~valid] = value
        changed[name] = array
    return replace(rollout, valid=valid, **changed)
