"""Many cars that step together: one call of the model moves them all.

Each slot drives as it would alone; the slots share nothing but the call.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import gymnasium
import numpy as np
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import batch_space
from numpy.typing import NDArray

from corral.api.async_calls import seeds_for
from corral.errors import OptionError
from corral.zoo.tinyphysics.costs import cost_info, reward
from corral.zoo.tinyphysics.model import Model, load_model
from corral.zoo.tinyphysics.route import CONTEXT, CONTROL_START, request_of
from corral.zoo.tinyphysics.tokens import BINS, encode, sample
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

WINDOW = np.arange(1 - CONTEXT, 1)
ROAD = np.arange(AHEAD)
# Initial number of rows of the arrays; longer routes enlarge them.
ROWS = 640
TABLE = ("target", "speed", "curvature", "draws")
# The columns that are read of a track, and the index of the draw.
DRAW = 3
EVERY = slice(None)

Rows = slice | NDArray[np.intp]
Mask = NDArray[np.bool_]


class TinyPhysicsVectorEnv(VectorEnv[NDArray[Any], NDArray[np.float32], NDArray[Any]]):
    """`num_envs` cars, each of which does the same as a TinyPhysicsEnv.

    The caller starts episodes: `reset(options={"reset_mask": mask})` starts those of
    the mask, on the routes of `options["tasks"]`; `step(actions, step_mask)` moves only
    the cars of the mask.

    Args:
        num_envs: number of cars.
        slots: the indices of these cars among `total`, if slots take routes in turn.
        total: number of cars in all workers (default: num_envs).

    All other arguments are those of TinyPhysicsEnv.
    """

    metadata: dict[str, Any] = {  # noqa: RUF012 - as Gymnasium declares it
        "render_modes": [],
        "autoreset_mode": AutoresetMode.DISABLED,
        "corral.threads": True,
    }

    def __init__(
        self,
        num_envs: int,
        routes: str | Sequence[str] | None = None,
        model: str | Model | None = None,
        *,
        slots: Sequence[int] | None = None,
        total: int | None = None,
        shuffle: int | None = 0,
        noise: str = "route",
        whole_route: bool = False,
        dtype: str = "float32",
        scaled: bool = False,
        limit: float | None = None,
        error_sum_limit: float = math.inf,
        road: str = "curvature",
    ) -> None:
        self.num_envs = num_envs
        self._drives = Drives(
            routes,
            num_envs,
            # Without the total number the turns of slots are unknown.
            None if total is None else slots,
            num_envs if total is None else total,
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
        if self._model.rows not in (None, num_envs):
            raise OptionError(
                f"the model {self._model.path} takes {self._model.rows} routes per "
                f"call, but there are {num_envs} cars; leave out batched, or export "
                "the model with a free first axis"
            )
        seen, steer = self._drives.spaces()
        self.single_observation_space, self.single_action_space = seen, steer
        self.observation_space = batch_space(seen, num_envs)
        self.action_space = batch_space(steer, num_envs)
        self._paths = [""] * num_envs
        self._traced = [False] * num_envs
        self._index, self._end = np.zeros((2, num_envs), np.intp)
        self._now = np.zeros(num_envs)
        self._row = np.zeros((num_envs, len(TABLE)))
        self._seen = np.zeros((num_envs, SIZE))
        self._held: dict[str, NDArray[Any]] = {}
        self._hold(ROWS)

    def _hold(self, rows: int) -> None:
        """Make arrays for routes of this many rows; values are kept."""
        count, old = self.num_envs, self._held
        held: dict[str, NDArray[Any]] = {
            "states": np.zeros((count, rows, 4), np.float32),
            "tokens": np.zeros((count, rows), np.int64),
            "table": np.zeros((count, rows, len(TABLE))),
            "lataccel": np.zeros((count, rows)),
            "ahead": np.zeros((count, rows + AHEAD)),
        }
        for name, array in old.items():
            held[name][:, : array.shape[1]] = array
        self._held = held
        # Flat views, which are quicker to index.
        self._first = np.arange(count) * rows
        self._first_ahead = np.arange(count) * (rows + AHEAD) + 1
        self._states = held["states"].reshape(-1, 4)
        self._tokens = held["tokens"].reshape(-1)
        self._table = held["table"].reshape(-1, len(TABLE))
        self._lataccel = held["lataccel"].reshape(-1)
        self._ahead = held["ahead"].reshape(-1)

    # Episodes -------------------------------------------------------------------------

    def reset(
        self,
        *,
        seed: int | Sequence[int | None] | None = None,
        options: dict[str, Any] | None = None,
    ) -> tuple[NDArray[Any], dict[str, Any]]:
        """Start the next routes of all slots, or of `options["reset_mask"]`."""
        options = dict(options or {})
        mask = options.pop("reset_mask", None)
        rows = np.arange(self.num_envs) if mask is None else np.flatnonzero(mask)
        tasks = options.pop("tasks", None)
        seeds = seeds_for(seed, self.num_envs, 1) or [None] * self.num_envs
        begun: list[tuple[int, Track, bool]] = []
        with self._drives.all_or_none():
            for row in rows.tolist():
                task = {} if tasks is None else {"task": tasks[row]}
                route, traced = request_of({**options, **task})
                track = self._drives.begin(row, seeds[row], route)
                begun.append((row, track, traced))
        # All routes have been read: a bad one leaves all slots unchanged.
        infos: dict[str, Any] = {}
        for row, track, traced in begun:
            self._load(row, track)
            self._traced[row] = traced
            infos = self._add_info(infos, {"route": track.path}, row)
        self._see(rows)
        return self._drives.shown(self._seen), infos

    def _load(self, row: int, track: Track) -> None:
        rows = track.length + 1
        if rows > self._held["tokens"].shape[1]:
            self._hold(rows)
        held = self._held
        for name in ("states", "tokens", "lataccel"):
            held[name][row, :rows] = getattr(track, name)
        for column, name in enumerate(TABLE):
            held["table"][row, :rows, column] = getattr(track, name)
        held["ahead"][row, : rows + AHEAD] = track.ahead
        self._paths[row] = track.path
        self._index[row] = CONTROL_START
        self._end[row] = self._drives.end_of(track)
        self._now[row] = track.lataccel[CONTROL_START - 1]
        self._seen[row, 0], self._seen[row, 2] = track.error, track.error_sum

    # Steps ----------------------------------------------------------------------------

    def step(
        self, actions: NDArray[np.float32], step_mask: Mask | None = None
    ) -> tuple[NDArray[Any], NDArray[np.float64], Mask, Mask, dict[str, Any]]:
        """Steer all cars, or those of the mask, for a tenth of a second."""
        rows = EVERY if step_mask is None else np.flatnonzero(step_mask)
        actions = np.asarray(actions)
        self._check(rows, actions)
        before, target = self._now[rows].copy(), self._row[rows, 0].copy()
        after = self._drive(rows, actions[rows, 0])
        # The first row that counts has no jerk.
        counted = self._index[rows] > CONTROL_START
        rewards = np.zeros(self.num_envs)
        rewards[rows] = reward(target - after, counted * (after - before))
        self._index[rows] += 1
        self._see(rows)
        over = np.zeros(self.num_envs, np.bool_)
        over[rows] = self._index[rows] == self._end[rows]
        infos = self._infos(over) if over.any() else {}
        seen = self._drives.shown(self._seen)
        return seen, rewards, np.zeros_like(over), over, infos

    def _check(self, rows: Rows, actions: NDArray[Any]) -> None:
        if actions.shape != (self.num_envs, 1):
            raise OptionError(
                f"actions have shape {actions.shape}; expected {(self.num_envs, 1)}: "
                "one steer for each car"
            )
        over = self._index[rows] >= self._end[rows]
        if over.any():
            which = np.arange(self.num_envs)[rows][over].tolist()
            raise gymnasium.error.ResetNeeded(
                f"the routes of slots {which} are over: reset them, or exclude them "
                "with step_mask"
            )

    def _drive(self, rows: Rows, steer: NDArray[np.float32]) -> NDArray[np.float64]:
        """The lateral accelerations after these steers."""
        if np.isnan(steer).any():
            row = int(np.arange(self.num_envs)[rows][np.isnan(steer)][0])
            raise OptionError(
                f"the steer of slot {row} at row {self._index[row]} of "
                f"{self._paths[row]} is nan"
            )
        at = self._first[rows] + self._index[rows]
        self._states[at, 0] = np.minimum(np.maximum(steer, -STEER_LIMIT), STEER_LIMIT)
        window = at[:, None] + WINDOW
        logits = self._model.logits(
            self._states.take(window, axis=0), self._tokens.take(window - 1)
        )
        chosen, now = BINS[sample(logits, self._row[rows, DRAW])], self._now[rows]
        after = np.maximum(chosen, now - LARGEST_CHANGE)
        after = np.minimum(after, now + LARGEST_CHANGE)
        self._lataccel[at] = self._now[rows] = after
        self._tokens[at] = encode(after)
        return after

    def _see(self, rows: Rows) -> None:
        """Update the observations of these cars."""
        index, seen = self._index[rows], self._seen
        row = self._table.take(self._first[rows] + index, axis=0)
        now = self._now[rows]
        error = row[:, 0] - now
        seen[rows, 1] = error - seen[rows, 0]
        most = self._drives.error_sum_limit
        seen[rows, 2] = np.clip(seen[rows, 2] + error, -most, most)
        seen[rows, 0] = error
        seen[rows, 3] = now
        seen[rows, 4:FIRST_AHEAD] = row[:, 1:DRAW]
        road = (self._first_ahead[rows] + index)[:, None] + ROAD
        seen[rows, LOOKING_AHEAD] = self._ahead.take(road)
        if self._drives.road == "lataccel":
            seen[rows, -1] = self._states[self._first[rows] + index - 1, 0]
        self._row[rows] = row

    def _infos(self, over: Mask) -> dict[str, Any]:
        """The infos of routes that are over."""
        infos: dict[str, Any] = {}
        for row in np.flatnonzero(over).tolist():
            target = self._held["table"][row, :, 0]
            lataccel, states = self._held["lataccel"][row], self._held["states"][row]
            path, traced = self._paths[row], self._traced[row]
            info = cost_info(path, target, lataccel, states, traced)
            infos = self._add_info(infos, info, row)
        return infos


def make_tinyphysics_batched(
    num_envs: int,
    routes: str | Sequence[str] | None = None,
    model: str | Model | None = None,
    *,
    slots: Sequence[int] | None = None,
    **options: Any,
) -> TinyPhysicsVectorEnv:
    """Make a TinyPhysicsVectorEnv; arguments as there."""
    return TinyPhysicsVectorEnv(num_envs, routes, model, slots=slots, **options)
