"""One car on one route, as a Gymnasium env."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import gymnasium
import numpy as np
from numpy.typing import NDArray

from corral.errors import OptionError
from corral.zoo.tinyphysics.costs import cost_info, reward
from corral.zoo.tinyphysics.model import Model, load_model
from corral.zoo.tinyphysics.route import CONTEXT, CONTROL_START, request_of
from corral.zoo.tinyphysics.tokens import decode_one, encode_one, sample_one
from corral.zoo.tinyphysics.track import (
    AHEAD,
    FIRST_AHEAD,
    LARGEST_CHANGE,
    LOOKING_AHEAD,
    SIZE,
    STEER_LIMIT,
    Drives,
    Track,
)

Observation = NDArray[Any]


class TinyPhysicsEnv(gymnasium.Env[Any, Any]):
    """Steer a car so that it follows a target lateral acceleration, smoothly.

    An episode is the part of a route that counts, 400 steps; then it is truncated. Its
    first observation is that of row 100, after the warm-up. The last info has
    `episode_cost`: lataccel, jerk and total.

    Args:
        routes: a directory of CSV files, one file, or a list of paths (default:
            synthetic routes).
        model: an ONNX file, or a loaded Model (default: a small generated one).
        slot: index of this env among `num_envs`; episode k takes route
            permutation[k * num_envs + slot]. If None, the reset's seed chooses the
            route. A reset with `options={"route": path}`, or a task of that form,
            takes that route; with `"trace": True` the last info has `trace`, the
            (400, 3) array of targets, lateral accelerations and steers.
        num_envs: number of envs in all.
        shuffle: seed of the permutation; None keeps the order of the routes.
        noise: "route" seeds the simulation with the spelling of the path, as for the
            official costs; "episode" with the reset's seed.
        whole_route: continue to the end of the file, though costs end with row 499.
        dtype: of observations; float64 for exact controllers.
        scaled: whether to multiply observations with OBS_SCALE.
        limit: largest absolute value of an observation (default: none); a curvature
            at speed 0 is as large as 1e9 when scaled.
        error_sum_limit: largest absolute value of the error's sum (anti-windup).
        road: "curvature" for the curvature of the road; "lataccel" for the
            acceleration that the steer has to cause (target minus that of the roll),
            which is also defined at speed 0, and the previous steer as the last number.
    """

    # The model releases the GIL.
    metadata: dict[str, Any] = {  # noqa: RUF012 - as Gymnasium declares it
        "render_modes": [],
        "corral.threads": True,
    }

    def __init__(
        self,
        routes: str | Sequence[str] | None = None,
        model: str | Model | None = None,
        *,
        slot: int | None = None,
        num_envs: int = 1,
        shuffle: int | None = 0,
        noise: str = "route",
        whole_route: bool = False,
        dtype: str = "float32",
        scaled: bool = False,
        limit: float | None = None,
        error_sum_limit: float = math.inf,
        road: str = "curvature",
    ) -> None:
        self._drives = Drives(
            routes,
            1,
            None if slot is None else [slot],
            num_envs,
            shuffle=shuffle,
            noise=noise,
            road=road,
            dtype=dtype,
            scaled=scaled,
            limit=limit,
            error_sum_limit=error_sum_limit,
            whole_route=whole_route,
        )
        self._model = model if isinstance(model, Model) else load_model(model)
        self.observation_space, self.action_space = self._drives.spaces()
        self._track: Track | None = None
        self._trace = False
        self._index = self._end = 0
        self._now = self._error = self._error_sum = 0.0
        self._seen = np.zeros(SIZE)

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Observation, dict[str, Any]]:
        """Start the next route, after its warm-up."""
        super().reset(seed=seed)
        route, trace = request_of(options)
        self._track = track = self._drives.begin(0, seed, route)
        self._trace = trace
        self._index = CONTROL_START
        self._end = self._drives.end_of(track)
        self._error, self._error_sum = track.error, track.error_sum
        self._now = track.lataccel.item(CONTROL_START - 1)
        self._see(track, CONTROL_START)
        return self._drives.shown(self._seen), {"route": track.path}

    def step(
        self, action: NDArray[np.float32]
    ) -> tuple[Observation, float, bool, bool, dict[str, Any]]:
        """Steer for a tenth of a second."""
        track, index, before = self._track, self._index, self._now
        if track is None or index >= self._end:
            raise gymnasium.error.ResetNeeded("the route is over: call reset")
        after = self._drive(track, index, float(action[0]))
        # The first row that counts has no jerk.
        change = after - before if index > CONTROL_START else 0.0
        gained = reward(track.target.item(index) - after, change)
        self._index = index = index + 1
        self._see(track, index)
        info, over = {}, index == self._end
        if over:
            driven = (track.target, track.lataccel, track.states)
            info = cost_info(track.path, *driven, self._trace)
        return self._drives.shown(self._seen), gained, False, over, info

    def _drive(self, track: Track, index: int, steer: float) -> float:
        """The lateral acceleration after this steer."""
        if steer != steer:
            raise OptionError(f"the steer at row {index} of {track.path} is nan")
        states, tokens, now = track.states, track.tokens, self._now
        states[index, 0] = min(max(steer, -STEER_LIMIT), STEER_LIMIT)
        logits = self._model.logits(
            states[None, index + 1 - CONTEXT : index + 1],
            tokens[None, index - CONTEXT : index],
        )
        chosen = decode_one(sample_one(logits[0], track.draws.item(index)))
        after = min(max(chosen, now - LARGEST_CHANGE), now + LARGEST_CHANGE)
        self._now = track.lataccel[index] = after
        tokens[index] = encode_one(after)
        return after

    def _see(self, track: Track, index: int) -> None:
        """Update the observation to this row."""
        error = track.target.item(index) - self._now
        most = self._drives.error_sum_limit
        self._error_sum = min(max(self._error_sum + error, -most), most)
        change, self._error = error - self._error, error
        seen = self._seen
        seen[:FIRST_AHEAD] = (
            error,
            change,
            self._error_sum,
            self._now,
            track.speed.item(index),
            track.curvature.item(index),
        )
        seen[LOOKING_AHEAD] = track.ahead[index + 1 : index + 1 + AHEAD]
        if self._drives.road == "lataccel":
            seen[-1] = track.states[index - 1, 0]


def make_tinyphysics(
    routes: str | Sequence[str] | None = None,
    model: str | Model | None = None,
    **options: Any,
) -> TinyPhysicsEnv:
    """Make a TinyPhysicsEnv; arguments as there."""
    return TinyPhysicsEnv(routes, model, **options)
