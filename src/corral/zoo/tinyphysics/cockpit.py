"""The env that policies are trained in: actions turn the wheel.

    env = make_cockpit("data", "tinyphysics.onnx")
    envs = make_cockpit_batched(8, "data", "tinyphysics.onnx")

Cars, routes, rewards and infos are those of TinyPhysicsEnv. An action is the change of
the steer, in units of TURN, starting from the steer of the warm-up. The observation has
the error, the road ahead relative to the current position, and the latest turns, since
the car follows with a delay of three to four steps. Most numbers are differences, so
that all curves look alike; all have a similar size.

Why turns: a policy explores with noise. Noise of 0.01 on each steer shakes the car: the
cost of a PID controller rises from 89 to 115 (160 steps of 50 routes, official model).
The same noise on turns adds up to larger but slow errors, and costs 102: the policy
explores more at a lower cost.
"""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
from gymnasium.spaces import Box
from gymnasium.vector import VectorWrapper
from gymnasium.vector.utils import batch_space
from numpy.typing import NDArray

from corral.zoo.tinyphysics.batch import TinyPhysicsVectorEnv
from corral.zoo.tinyphysics.env import TinyPhysicsEnv
from corral.zoo.tinyphysics.pid import BY_CHANGE, BY_ERROR, BY_SUM
from corral.zoo.tinyphysics.track import LOOKING_AHEAD, SIZE, STEER_LIMIT

Floats = NDArray[np.float64]

# Steer of one unit of action.
TURN = 0.1
# Rows ahead that are observed one by one.
NEAR = 12
# Later rows, observed as means.
FAR = (slice(12, 16), slice(16, 24), slice(24, 36), slice(36, 49))
# Number of past turns and moves in the observation.
PAST = 6
PRESENT = 7
# Factors of the error, its change and the change of that.
ERRORS = np.array([5.0, 10.0, 10.0])
WIDTH = PRESENT + NEAR + len(FAR) + 2 * PAST
LARGEST = 10.0


class Cockpit:
    """The observations of `count` cars, with their past turns and moves."""

    def __init__(self, count: int) -> None:
        self._seen = np.zeros((count, SIZE))
        self._turns = np.zeros((count, PAST))
        self._moves = np.zeros((count, PAST))
        # The change of the error's change.
        self._bends = np.zeros(count)

    def begin(self, rows: Any, seen: Floats) -> None:
        """Start a route with these cars."""
        self._seen[rows] = seen[rows]
        self._turns[rows] = self._moves[rows] = 0.0
        self._bends[rows] = 0.0

    def steered(self, rows: Any, turns: Floats) -> Floats:
        """Turn the wheels of these cars; returns the new steers."""
        before = self._seen[rows, -1]
        steer: Floats = np.clip(before + TURN * turns[rows], -STEER_LIMIT, STEER_LIMIT)
        _remember(self._turns, rows, steer - before)
        return steer

    def see(self, rows: Any, seen: Floats) -> None:
        """Update these cars with the next observations of TinyPhysicsEnv."""
        _remember(self._moves, rows, seen[rows, 3] - self._seen[rows, 3])
        self._bends[rows] = seen[rows, 1] - self._seen[rows, 1]
        self._seen[rows] = seen[rows]

    def shown(self) -> NDArray[np.float32]:
        """The policy's observations, (count, WIDTH)."""
        seen = self._seen
        ahead = seen[:, LOOKING_AHEAD] - seen[:, 5:6]
        errors = np.stack([seen[:, 0], seen[:, 1], self._bends], 1)
        now = [0.5 * seen[:, 3], seen[:, 4] / 15.0 - 1.5, 0.5 * seen[:, 5], seen[:, -1]]
        shown = np.concatenate(
            [
                ERRORS * errors,
                np.stack(now, 1),
                5.0 * ahead[:, :NEAR],
                np.stack([2.0 * ahead[:, part].mean(1) for part in FAR], 1),
                self._turns / (0.3 * TURN),
                10.0 * self._moves,
            ],
            1,
        )
        return np.asarray(np.clip(shown, -LARGEST, LARGEST), np.float32)


def turn_of_pid(shown: NDArray[Any]) -> NDArray[np.float32]:
    """The turns of a PID controller, (rows, 1), for observations of this env.

    Its steer is a weighted sum of the error, the error's sum and its change; so each
    turn is a weighted sum of the error's change, the error, and the change of its
    change.
    """
    error, change, bend = (shown[:, :3] / ERRORS).T
    turn = BY_ERROR * change + BY_SUM * error + BY_CHANGE * bend
    return np.asarray(turn[:, None] / TURN, np.float32)


def _remember(past: Floats, rows: Any, latest: Floats) -> None:
    past[rows] = np.concatenate([latest[:, None], past[rows, :-1]], 1)


def _space(width: int) -> Box:
    return Box(-LARGEST, LARGEST, (width,), np.float32)


class CockpitEnv(gymnasium.Wrapper[Any, Any, Any, Any]):
    """A TinyPhysicsEnv whose actions turn the wheel."""

    def __init__(self, env: TinyPhysicsEnv) -> None:
        super().__init__(env)
        self.observation_space, self.action_space = _space(WIDTH), _space(1)
        self._cockpit = Cockpit(1)

    def reset(self, **given: Any) -> tuple[NDArray[np.float32], dict[str, Any]]:
        """Start the next route."""
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


class CockpitVectorEnv(VectorWrapper):
    """A TinyPhysicsVectorEnv whose actions turn the wheels."""

    env: TinyPhysicsVectorEnv

    def __init__(self, env: TinyPhysicsVectorEnv) -> None:
        super().__init__(env)
        seen, turn, count = _space(WIDTH), _space(1), env.num_envs
        self.single_observation_space, self.single_action_space = seen, turn
        self.observation_space = batch_space(seen, count)
        self.action_space = batch_space(turn, count)
        self._cockpit = Cockpit(count)

    def reset(
        self, *, seed: Any = None, options: dict[str, Any] | None = None
    ) -> tuple[NDArray[np.float32], dict[str, Any]]:
        """Start the next routes of all slots, or of those in the mask."""
        mask = (options or {}).get("reset_mask")
        rows = np.arange(self.num_envs) if mask is None else np.flatnonzero(mask)
        seen, infos = self.env.reset(seed=seed, options=options)
        self._cockpit.begin(rows, seen)
        return self._cockpit.shown(), infos

    def step(self, actions: Any, step_mask: NDArray[np.bool_] | None = None) -> Any:
        """Turn the wheels of all cars, or of those in the mask, and drive on."""
        every = np.arange(self.num_envs)
        rows = every if step_mask is None else np.flatnonzero(step_mask)
        steers = np.zeros((self.num_envs, 1), np.float32)
        turns = np.asarray(actions, np.float64)[:, 0]
        steers[rows, 0] = self._cockpit.steered(rows, turns)
        seen, *outcome = self.env.step(steers, step_mask)
        self._cockpit.see(rows, seen)
        return self._cockpit.shown(), *outcome


def make_cockpit(*given: Any, **options: Any) -> CockpitEnv:
    """Make one env; arguments as for TinyPhysicsEnv, without dtype and road."""
    env = TinyPhysicsEnv(*given, **options, dtype="float64", road="lataccel")
    return CockpitEnv(env)


def make_cockpit_batched(
    num_envs: int, *given: Any, slots: Any = None, **options: Any
) -> CockpitVectorEnv:
    """Make many; arguments as for TinyPhysicsVectorEnv, without dtype and road."""
    env = TinyPhysicsVectorEnv(
        num_envs, *given, slots=slots, **options, dtype="float64", road="lataccel"
    )
    return CockpitVectorEnv(env)
