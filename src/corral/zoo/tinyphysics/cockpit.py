"""What a policy that learns to drive sees and does: it turns the wheel.

    env = make_cockpit("data", "tinyphysics.onnx")
    envs = make_cockpit_batched(8, "data", "tinyphysics.onnx")

The same cars, routes, rewards and infos as elsewhere in this package. Other actions: by
how much the wheel is turned further, in units of TURN, beginning with where it was left
by the warm-up. And other observations: where the car is off, where the road leads from
here, and how the wheel was turned of late, since the car follows with a delay of three
to four steps. Most are differences, so that one turn is like another; each is about
as large as the others.

Why turns: a policy explores by being inexact. Steers that are each off by 0.01 shake
the car: a PID controller's cost rises from 89 to 115 (160 steps of 50 routes, official
model). Turns that are off by as much add up to larger errors, but slow ones, and cost
102: more is seen for less.
"""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
from gymnasium.spaces import Box
from gymnasium.vector import VectorEnv
from gymnasium.vector.utils import batch_space
from numpy.typing import NDArray

from corral.zoo.tinyphysics.batch import TinyPhysicsVectorEnv
from corral.zoo.tinyphysics.env import TinyPhysicsEnv
from corral.zoo.tinyphysics.observation import LOOKING_AHEAD, SIZE
from corral.zoo.tinyphysics.pid import BY_CHANGE, BY_ERROR, BY_SUM
from corral.zoo.tinyphysics.track import STEER_LIMIT

Floats = NDArray[np.float64]

TURN = 0.1
"""Steer of one unit of action."""
NEAR = 12
"""Rows ahead that are shown one by one."""
FAR = (slice(12, 16), slice(16, 24), slice(24, 36), slice(36, 49))
"""Those behind them, of which means are shown."""
PAST = 6
"""Turns and positions that are remembered."""
PRESENT = 7
ERRORS = np.array([5.0, 10.0, 10.0])
"""What the error, its change and the change of that are multiplied with."""
WIDTH = PRESENT + NEAR + len(FAR) + 2 * PAST
LARGEST = 10.0


class Cockpit:
    """The instruments of `count` cars, and what they remember."""

    def __init__(self, count: int) -> None:
        self._seen = np.zeros((count, SIZE))
        self._turns = np.zeros((count, PAST))
        self._moves = np.zeros((count, PAST))
        self._bends = np.zeros(count)
        """By how much the error's change has changed."""

    def begin(self, rows: Any, seen: Floats) -> None:
        """These cars begin a route."""
        self._seen[rows] = seen[rows]
        self._turns[rows] = self._moves[rows] = 0.0
        self._bends[rows] = 0.0

    def steered(self, rows: Any, turns: Floats) -> Floats:
        """Turn the wheels of these cars; where they are then."""
        before = self._seen[rows, -1]
        steer: Floats = np.clip(before + TURN * turns[rows], -STEER_LIMIT, STEER_LIMIT)
        _remember(self._turns, rows, steer - before)
        return steer

    def see(self, rows: Any, seen: Floats) -> None:
        """Where that led these cars."""
        _remember(self._moves, rows, seen[rows, 3] - self._seen[rows, 3])
        self._bends[rows] = seen[rows, 1] - self._seen[rows, 1]
        self._seen[rows] = seen[rows]

    def shown(self) -> NDArray[np.float32]:
        """(count, WIDTH): what the policy sees."""
        seen = self._seen
        ahead = seen[:, LOOKING_AHEAD] - seen[:, 5:6]
        errors = (seen[:, 0], seen[:, 1], self._bends)
        present = (
            *(ERRORS * np.stack(errors, 1)).T,
            0.5 * seen[:, 3],
            seen[:, 4] / 15.0 - 1.5,
            0.5 * seen[:, 5],
            seen[:, -1],
        )
        shown = np.concatenate(
            [
                np.stack(present, 1),
                5.0 * ahead[:, :NEAR],
                np.stack([2.0 * ahead[:, part].mean(1) for part in FAR], 1),
                self._turns / (0.3 * TURN),
                10.0 * self._moves,
            ],
            1,
        )
        return np.asarray(np.clip(shown, -LARGEST, LARGEST), np.float32)


def turn_of_pid(shown: NDArray[Any]) -> NDArray[np.float32]:
    """How a PID controller turns the wheel, of what is shown: (rows, 1) actions.

    Its steer is a weighted sum of the error, of the error's sum and of its change; so
    each turn is one of the error's change, the error, and the change of its change.
    """
    error, change, bend = (shown[:, :3] / ERRORS).T
    turn = BY_ERROR * change + BY_SUM * error + BY_CHANGE * bend
    return np.asarray(turn[:, None] / TURN, np.float32)


def _remember(past: Floats, rows: Any, latest: Floats) -> None:
    past[rows] = np.concatenate([latest[:, None], past[rows, :-1]], 1)


def _space() -> Box:
    return Box(-LARGEST, LARGEST, (WIDTH,), np.float32)


def _action_space() -> Box:
    return Box(-LARGEST, LARGEST, (1,), np.float32)


class CockpitEnv(gymnasium.Wrapper[Any, Any, Any, Any]):
    """A TinyPhysicsEnv, driven from its cockpit."""

    def __init__(self, env: TinyPhysicsEnv) -> None:
        super().__init__(env)
        self.observation_space = _space()
        self.action_space = _action_space()
        self._cockpit = Cockpit(1)

    def reset(self, **given: Any) -> tuple[NDArray[np.float32], dict[str, Any]]:
        """Begin the next route."""
        seen, info = self.env.reset(**given)
        self._cockpit.begin(slice(None), seen[None])
        return self._cockpit.shown()[0], info

    def step(self, action: Any) -> Any:
        """Turn the wheel, and drive for a tenth of a second."""
        steer = self._cockpit.steered(slice(None), np.asarray(action, np.float64))
        seen, reward, terminated, truncated, info = self.env.step(
            steer.astype(np.float32)
        )
        self._cockpit.see(slice(None), seen[None])
        return self._cockpit.shown()[0], reward, terminated, truncated, info


class CockpitVectorEnv(VectorEnv[Any, Any, Any]):
    """A TinyPhysicsVectorEnv, driven from its cockpits."""

    def __init__(self, env: TinyPhysicsVectorEnv) -> None:
        self._env = env
        self.metadata = dict(env.metadata)
        self.num_envs = env.num_envs
        self.single_observation_space = _space()
        self.single_action_space = _action_space()
        self.observation_space = batch_space(_space(), env.num_envs)
        self.action_space = batch_space(_action_space(), env.num_envs)
        self._cockpit = Cockpit(env.num_envs)

    def reset(
        self, *, seed: Any = None, options: dict[str, Any] | None = None
    ) -> tuple[NDArray[np.float32], dict[str, Any]]:
        """Begin the next routes, of all slots or of those in the mask."""
        mask = (options or {}).get("reset_mask")
        rows = np.arange(self.num_envs) if mask is None else np.flatnonzero(mask)
        seen, infos = self._env.reset(seed=seed, options=options)
        self._cockpit.begin(rows, seen)
        return self._cockpit.shown(), infos

    def step(self, actions: Any, step_mask: NDArray[np.bool_] | None = None) -> Any:
        """Turn wheels, and drive for a tenth of a second: all, or those in the mask."""
        every = np.arange(self.num_envs)
        rows = every if step_mask is None else np.flatnonzero(step_mask)
        steers = np.zeros((self.num_envs, 1), np.float32)
        turns = np.asarray(actions, np.float64)[:, 0]
        steers[rows, 0] = self._cockpit.steered(rows, turns)
        seen, *outcome = self._env.step(steers, step_mask)
        self._cockpit.see(rows, seen)
        return self._cockpit.shown(), *outcome

    def close_extras(self, **kwargs: Any) -> None:
        """Close the cars."""
        self._env.close()


def make_cockpit(*given: Any, **options: Any) -> CockpitEnv:
    """One env; takes what TinyPhysicsEnv takes, but for how it observes."""
    env = TinyPhysicsEnv(*given, **options, dtype="float64", road="lataccel")
    return CockpitEnv(env)


def make_cockpit_batched(
    num_envs: int, *given: Any, slots: Any = None, **options: Any
) -> CockpitVectorEnv:
    """Many in one; takes what TinyPhysicsVectorEnv takes, but for how it observes."""
    env = TinyPhysicsVectorEnv(
        num_envs, *given, slots=slots, **options, dtype="float64", road="lataccel"
    )
    return CockpitVectorEnv(env)
