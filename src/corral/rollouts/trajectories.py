"""Trajectories of slots, from steps in any order.

    step = pool.recv(min_slots=8)            the first slots that are ready
    trajectories.received(step)              completes a row of each, starts the next
    pool.send(actions, step.slots)
    trajectories.sent(actions, step.slots)   adds the actions

A trajectory is consecutive rows of one slot. Row t is an observation, the action, and
its result:

    obs[t]  started[t]  action[t]  ──►  reward[t]  terminated[t]  truncated[t]  valid[t]

Everything is copied, so a Step may consist of views. Resets are recognised: an action
without a result, since the caller reset the slot, leaves no row.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from corral.core import Step
from corral.engine.keywords import checked_keywords, is_count
from corral.engine.pool import Pool
from corral.engine.pool.state import Slots, chosen_slots
from corral.errors import OptionError, OrderError
from corral.rollouts.actor import check_pool
from corral.rollouts.rollout_buffer import check_extra, check_names
from corral.rollouts.space_rows import Array, SpaceParts, widened

OUTCOME_FIELDS = ("reward", "terminated", "truncated", "valid")
# Initial number of rows, if it is not known.
INITIAL_ROWS = 16


@dataclass(frozen=True, slots=True)
class Trajectory:
    """Rows of one slot that own their memory; arrays are `(length, ...)`.

    Attributes:
        started: True where `obs` is the first observation of an episode.
        valid: False for padding rows: the action was not taken, the episode restarted.
        final_obs: (ends, ...): the last observations of the episodes that ended, one
            for each True in `ended`, in their order.
        next_obs: (1, ...): the observation after the last row; of the next episode if
            it ended.
        extras: Further values of each row, by name.
    """

    slot: int
    obs: Any
    started: NDArray[np.bool_]
    action: Any
    reward: NDArray[np.float64]
    terminated: NDArray[np.bool_]
    truncated: NDArray[np.bool_]
    valid: NDArray[np.bool_]
    final_obs: Any
    next_obs: Any
    next_started: bool
    extras: dict[str, NDArray[Any]]

    @property
    def ended(self) -> NDArray[np.bool_]:
        """Where an episode ended, for either reason."""
        return self.terminated | self.truncated

    def __len__(self) -> int:
        return len(self.reward)


class Trajectories:
    """Sorts steps by slot.

        trajectories = corral.Trajectories(pool, length=128)
        pool.send_reset()
        while learning:
            step = pool.recv(min_slots=8)
            for fragment in trajectories.received(step):
                learn(fragment)
            actions, values = policy(step.obs)
            pool.send(actions, step.slots)
            trajectories.sent(actions, step.slots, value=values)

    Args:
        pool: the pool that the steps come from.
        length: rows in a fragment, of any number of episodes, padding rows included;
            None for whole episodes without padding. An episode that was not seen from
            its start, or was reset before its end, is left out.
    """

    @checked_keywords(pool=Pool)
    def __init__(self, pool: Pool, length: int | None = None) -> None:
        check_pool(pool)
        if length is not None and not is_count(length):
            raise OptionError(
                f"length is {length!r}; it must be None or an integer >= 1"
            )
        self.length = length
        self._count = count = pool.num_envs
        self._obs_space = SpaceParts(pool.spec.observation_space)
        self._action_space = SpaceParts(pool.spec.action_space)
        # A fragment's rows, and the row that follows.
        self._rows = SlotRows(count, INITIAL_ROWS if length is None else length + 1)
        self._finals = SlotRows(count)
        self._extras: tuple[str, ...] | None = None
        # By slot: the row to fill next, and the number of episode ends before it.
        self._row = np.zeros(count, np.intp)
        self._ends = np.zeros(count, np.intp)
        self._seen = np.zeros(count, np.bool_)
        self._acted = np.zeros(count, np.bool_)
        self._in_episode = np.zeros(count, np.bool_)

    # Input ----------------------------------------------------------------------------

    def received(self, step: Step) -> list[Trajectory]:
        """Add a received step; returns the trajectories that it completes."""
        slots = step.slots
        kept = self._conclude(step)
        if self.length is None:
            complete = kept & step.ended
            self._follow_episodes(step, complete)
        else:
            complete = self._row[slots] == self.length
        rows = self._row[slots]
        self._rows.write_parts("obs", slots, rows, self._obs_space.arrays(step.obs))
        self._rows.write("started", slots, rows, step.started)
        self._seen[slots] = True
        return [self._cut(slot) for slot in slots[complete].tolist()]

    def sent(self, actions: Any, slots: Slots | None = None, **extras: Any) -> None:
        """Add the actions that were sent to these slots, or to all.

        Args:
            actions: as given to `send`.
            slots: as given to `send`.
            **extras: arrays of one value per slot to keep: log-probs, values, a carry.
        """
        chosen = np.arange(self._count)
        if slots is not None:
            chosen = chosen_slots(slots, self._count)
        self._check_open(chosen)
        parts = self._action_space.split(actions, len(chosen))
        arrays = self._checked_extras(extras, len(chosen))
        rows = self._row[chosen]
        self._rows.write_parts("actions", chosen, rows, parts)
        for name, array in arrays.items():
            self._rows.write(_extra(name), chosen, rows, array)
        self._acted[chosen] = True

    def rest(self) -> list[Trajectory]:
        """Remove and return unfinished trajectories, up to their last complete row.

        Actions without a result stay, as the first rows of the next trajectories.
        """
        return [self._cut(slot) for slot in np.flatnonzero(self._row).tolist()]

    # Rows -----------------------------------------------------------------------------

    def _conclude(self, step: Step) -> NDArray[np.bool_]:
        """Store the results of actions; True where that completed a row."""
        slots = step.slots
        # An episode that started without an end before it, not in a padding row, was
        # reset by the caller: no action led to it.
        kept = self._acted[slots] & ~(step.started & step.valid & ~step.ended)
        self._acted[slots] = False
        if self.length is None:
            kept &= step.valid & self._in_episode[slots]
        if not kept.any():
            return kept
        part = slice(None) if kept.all() else kept  # a slice makes no copies
        at = slots[part]
        rows = self._row[at]
        for name in OUTCOME_FIELDS:
            self._rows.write(name, at, rows, getattr(step, name)[part])
        self._row[at] += 1
        self._keep_final(step, kept & step.ended)
        return kept

    def _keep_final(self, step: Step, ended: NDArray[np.bool_]) -> None:
        if not ended.any():
            return
        at = step.slots[ended]
        parts = [part[ended] for part in self._obs_space.arrays(step.final_obs)]
        self._finals.write_parts("final_obs", at, self._ends[at], parts)
        self._ends[at] += 1

    def _follow_episodes(self, step: Step, complete: NDArray[np.bool_]) -> None:
        slots = step.slots
        self._forget(slots[step.started & ~complete])  # cut short by a reset
        going_on = self._in_episode[slots] & ~step.ended
        self._in_episode[slots] = step.started | going_on

    def _cut(self, slot: int) -> Trajectory:
        """Remove the complete rows of a slot; its next row becomes the first."""
        row = int(self._row[slot])
        done, following = slice(0, row), slice(row, row + 1)
        read, seen, chosen = self._rows.read, self._obs_space, self._action_space
        obs = partial(self._rows.read_batch, "obs", seen, slot)
        ends = slice(0, int(self._ends[slot]))
        trajectory = Trajectory(
            slot=slot,
            obs=obs(done),
            started=read("started", slot, done),
            action=self._rows.read_batch("actions", chosen, slot, done),
            final_obs=self._finals.read_batch("final_obs", seen, slot, ends),
            next_obs=obs(following),
            next_started=bool(read("started", slot, following)[0]),
            extras={
                name: read(_extra(name), slot, done) for name in self._extras or ()
            },
            **{name: read(name, slot, done) for name in OUTCOME_FIELDS},
        )
        self._rows.move(slot, row)
        self._forget(np.array([slot]))
        return trajectory

    def _forget(self, slots: NDArray[np.intp]) -> None:
        self._row[slots] = 0
        self._ends[slots] = 0

    # Checks ---------------------------------------------------------------------------

    def _check_open(self, slots: NDArray[np.intp]) -> None:
        early, twice = slots[~self._seen[slots]], slots[self._acted[slots]]
        for wrong, when in (
            (early, "before any step of them was received"),
            (twice, "twice"),
        ):
            if len(wrong):
                raise OrderError(
                    f"actions were sent to slots {wrong.tolist()} {when}; call "
                    "received(step) for every step before the next actions"
                )

    def _checked_extras(self, extras: dict[str, Any], count: int) -> dict[str, Any]:
        """Extras as arrays of one value per slot, with the names of the first call."""
        arrays = {name: np.asarray(values) for name, values in extras.items()}
        for name, array in arrays.items():
            check_extra(name, array, count)
        if self._extras is None:
            self._extras = tuple(arrays)
        check_names(arrays, self._extras)
        return arrays


def _extra(name: str) -> str:
    return f"extras[{name!r}]"


# Storage ------------------------------------------------------------------------------


class SlotRows:
    """`(slots, rows, ...)` arrays by name; of a space, one for each part.

    An array grows with the rows and takes the widest dtype of its values.
    """

    def __init__(self, slots: int, rows: int = INITIAL_ROWS) -> None:
        self._slots = slots
        self._rows = rows
        self._arrays: dict[Hashable, Array] = {}

    def write(self, name: Hashable, slots: Array, rows: Array, values: Array) -> None:
        """Copy one value per slot into its row."""
        array = self._arrays.get(name)
        if (
            array is None
            or array.dtype != values.dtype
            or array.shape[2:] != values.shape[1:]
        ):
            array = self._fitting(name, values)
        try:
            array[slots, rows] = values
        except IndexError:  # cheaper than a check of every batch
            shape = (len(array), 2 * (int(rows.max()) + 1), *array.shape[2:])
            grown = self._arrays[name] = np.empty_like(array, shape=shape)
            grown[:, : array.shape[1]] = array
            grown[slots, rows] = values

    def write_parts(
        self, name: str, slots: Array, rows: Array, parts: Iterable[Array]
    ) -> None:
        """Copy one value of a space per slot into its row."""
        for place, values in enumerate(parts):
            self.write((name, place), slots, rows, values)

    def _fitting(self, name: Hashable, values: Array) -> Array:
        """The array, in a dtype that holds these values without loss."""
        array = self._arrays.get(name)
        if array is None:
            shape = (self._slots, self._rows, *values.shape[1:])
            array = np.empty(shape, values.dtype)
        if values.shape[1:] != array.shape[2:]:
            raise OptionError(
                f"{name} has shape {values.shape[1:]} per slot; before it had "
                f"shape {array.shape[2:]}"
            )
        self._arrays[name] = array = widened(array, values.dtype)
        return array

    def read(self, name: Hashable, slot: int, rows: slice) -> Array:
        """A copy of some rows of one slot."""
        return self._arrays[name][slot, rows].copy()

    def read_batch(self, name: str, space: SpaceParts, slot: int, rows: slice) -> Any:
        """The same of a space, as a batch."""
        if rows.stop == 0:  # perhaps before the first write: no episode has ended
            return space.stacked([])
        places = range(len(space.parts))
        return space.batch([self.read((name, place), slot, rows) for place in places])

    def move(self, slot: int, row: int) -> None:
        """Copy a row of one slot to its first row."""
        for array in self._arrays.values():
            if row < array.shape[1]:
                array[slot, 0] = array[slot, row]
