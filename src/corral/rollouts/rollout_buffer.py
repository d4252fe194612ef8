"""The memory that a collector fills: rows of every slot.

    buffer.add_decision(at, step, seen, decision)    observation, action, extras
    buffer.reward[at] = step.reward
    buffer.add_flags(at, step)                       where episodes end or start
    buffer.add_end(row, step, position, seed, carry) where an episode ended

`at` is a row, for all slots, or `(rows, slots)`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

from corral.core import Decision, Step
from corral.errors import Fault, OptionError
from corral.rollouts.normalise import ObsNorm
from corral.rollouts.packed_ends import EpisodeEnd, PackedEnds, join_ends, pack_ends
from corral.rollouts.rollout import EpisodeSummary
from corral.rollouts.space_rows import At, SpaceParts, SpaceRows, widened

Array = NDArray[Any]


# Arrays of a buffer by name.
REWARD, TERMINATED, TRUNCATED, VALID, STARTED = (
    *("reward", "terminated", "truncated", "valid", "started"),
)
OBS, ACTION, EXTRAS = "obs/", "action/", "extras/"
# Rows times slots that are computed together: they should stay in the cache.
COMPUTED_TOGETHER = 2**12


class RolloutBuffer:
    """Arrays `[rows, slots, ...]`.

    Args:
        obs: the observation space.
        action: the action space.
        rows: number of rows.
        started: of row 0, for each slot.
        norm: what the policy's observations are normalised with, if those are stored.
        memory: arrays to use, by the names of `arrays`; those of objects, and of
            extras that do not fit, are made new.
    """

    def __init__(
        self,
        obs: SpaceParts,
        action: SpaceParts,
        rows: int,
        started: NDArray[np.bool_],
        norm: ObsNorm | None = None,
        memory: dict[str, Array] | None = None,
    ) -> None:
        slots = len(started)
        self.rows, self.slots = rows, slots
        # The number of the first slot, where this buffer has a part of a pool's slots.
        self.first_slot = 0
        self.memory = {} if memory is None else memory
        self._space = obs
        seen, chosen = (
            (self._given(OBS), self._given(ACTION)) if self.memory else (None, None)
        )
        self.obs = SpaceRows(obs, rows, slots, norm and norm.dtype_of, seen)
        # Observations before normalisation.
        self.raw = None if norm is None else SpaceRows(obs, rows, slots)
        self.action = SpaceRows(action, rows, slots, None, chosen)
        shape, given = (rows, slots), self.memory
        self.reward = given[REWARD] if given else np.zeros(shape)
        # As in the middle of an episode; `add_flags` writes all other rows.
        self.terminated, self.truncated, self.valid = (
            given[name] if given else np.zeros(shape, np.bool_)
            for name in (TERMINATED, TRUNCATED, VALID)
        )
        self._started = given[STARTED] if given else np.zeros((rows + 1, slots), bool)
        if given:  # it may have been used before
            self.terminated[:] = self.truncated[:] = self._started[:] = False
        self.valid[:] = True
        self._started[0] = started
        self.started = self._started[:-1]
        self.extras: dict[str, Array] = {}
        self._named = False
        # By row and slot, in the order in which they were added.
        self.ends: dict[tuple[int, int], EpisodeEnd] = {}
        # Those of rows that were filled elsewhere.
        self._adopted: list[PackedEnds] = []
        # The extras of the slots adopted last, if all of it was in the common memory.
        self._all_shared: Collection[str] | None = None
        # What ended episodes before row 0.
        self.faults: list[Fault] = []

    def _given(self, prefix: str) -> dict[int, Array]:
        """The given memory of the parts of a space."""
        return {
            int(name[len(prefix) :]): array
            for name, array in self.memory.items()
            if name.startswith(prefix)
        }

    def _extra(self, name: str, shape: tuple[int, ...], dtype: DTypeLike) -> Array:
        """An array for extras: the given one if it fits, else a new one."""
        shape = (self.rows, self.slots, *shape)
        array = self.memory.get(EXTRAS + name)
        if array is None or array.shape != shape or array.dtype != dtype:
            return np.zeros(shape, dtype)
        return array

    def arrays(self) -> dict[str, Array]:
        """All arrays by name, with observations as they are stored."""
        return {
            REWARD: self.reward,
            TERMINATED: self.terminated,
            TRUNCATED: self.truncated,
            VALID: self.valid,
            STARTED: self._started,
            **{f"{OBS}{n}": one for n, one in enumerate(self.obs.arrays)},
            **{f"{ACTION}{n}": one for n, one in enumerate(self.action.arrays)},
            **{f"{EXTRAS}{name}": one for name, one in self.extras.items()},
        }

    def add_decision(
        self, at: At, step: Step, seen: Step, decision: Decision
    ) -> list[Array]:
        """Store the step, as the policy saw it if it is normalised, and its decision.

        Returns the stored actions, part by part; views of a whole row.
        """
        if self.raw is None:
            self.obs.write(at, step.obs)
        else:
            self.obs.write(at, seen.obs)
            self.raw.write(at, step.obs)
        count = len(step.slots)
        actions = self.action.take(at, decision.action, count)
        extras = decision.extras
        if len(extras) != len(self.extras):
            self._check_names(extras, count)
        for name, values in extras.items():
            array = self.extras.get(name)
            # Checked closely only if the shape is not that of a whole row.
            if (
                array is None
                or getattr(values, "dtype", None) is not array.dtype
                or values.shape != array.shape[1:]
            ):
                self._check_names(extras, count)
                values, array = self._fitted(name, values, count)
            array[at] = values
        return actions

    def add_late(
        self, extras_of: Callable[[Any], dict[str, Array]], norm: ObsNorm | None
    ) -> None:
        """Store those extras of all rows that decisions did not have.

        Args:
            extras_of: makes them from observations as the policy saw them.
            norm: makes these from those that are stored.
        """
        for part in self._parts():
            obs = self.obs.some(part)
            found = extras_of(obs if norm is None else norm(obs))
            for name, values in found.items():
                if name not in self.extras:
                    one = self._extra(name, values.shape[2:], values.dtype)
                    self.extras[name] = one
                self.extras[name][part] = values

    def _parts(self) -> Iterator[slice]:
        """The rows, as many at a time as should be computed together."""
        together = max(1, COMPUTED_TOGETHER // self.slots)
        for first in range(0, self.rows, together):
            yield slice(first, first + together)

    def add_flags(self, at: At, step: Step) -> None:
        """Store the flags of rows where episodes end or start."""
        following = at + 1 if isinstance(at, int) else (at[0] + 1, at[1])
        self._started[following] = step.started
        self.terminated[at] = step.terminated
        self.truncated[at] = step.truncated
        self.valid[at] = step.valid

    # Extras ---------------------------------------------------------------------------

    def _check_names(self, given: dict[str, Any], count: int) -> None:
        """A rollout's first decision sets the names of its extras."""
        if self._named:
            check_names(given, self.extras)
            return
        self._named = True
        for name, values in given.items():
            array = np.asarray(values)
            check_extra(name, array, count)
            self.extras[name] = self._extra(name, array.shape[1:], array.dtype)

    def _fitted(self, name: str, values: Any, count: int) -> tuple[Array, Array]:
        """The values, and their array in a dtype that loses nothing."""
        given, array = np.asarray(values), self.extras[name]
        check_extra(name, given, count, array.shape[2:])
        self.extras[name] = array = widened(array, given.dtype)
        return given, array

    # Ends -----------------------------------------------------------------------------

    def add_end(
        self, row: int, step: Step, position: int, seed: int, carry: Any
    ) -> None:
        """Store the end of an episode, before another starts.

        One by one: usually few end together, and then numbers are quicker than arrays.
        """
        slot = step.slots.item(position)
        info = step.final_infos.get(position)
        if info is None:  # next_step, or an env without infos
            info = step.infos.of(position) if step.infos else {}
        final_obs = self._space.value_at(step.final_obs, position)
        if not step.valid.item(position):
            end = EpisodeEnd(final_obs, carry, False, fault=info.get("fault"))
        else:
            terminated = step.terminated.item(position)
            returned = step.episode_return.item(position)
            length = step.episode_length.item(position)
            number = self.first_slot + slot
            summary = EpisodeSummary(
                number, row, seed, returned, length, terminated, info
            )
            end = EpisodeEnd(final_obs, carry, not terminated, summary)
        self.ends[row, slot] = end

    def packed_ends(self) -> PackedEnds:
        """All ends, by row and slot."""
        parts = self._adopted
        if self.ends or not parts:
            parts = [*parts, pack_ends(self.ends, self._space)]
        return join_ends(parts) if self._adopted else parts[0]

    def truncate_after_last_row(self, obs: Any, slot: int, carry: Any) -> None:
        """Truncate the slot's episode after the last row; `obs` has all slots."""
        place = self.rows - 1, slot
        self.truncated[place] = True
        self.ends[place] = EpisodeEnd(
            self._space.value_at(obs, slot), carry, bootstrapped=True
        )

    # Rows that were filled elsewhere --------------------------------------------------

    def private_arrays(self) -> dict[str, Array]:
        """The arrays that are not in the given memory."""
        given = self.memory
        return {
            name: array
            for name, array in self.arrays().items()
            if array is not given.get(name)
        }

    def adopt(
        self,
        slots: slice,
        extras: Collection[str],
        arrays: dict[str, Array],
        ends: PackedEnds | None = None,
    ) -> None:
        """Take over rows of some slots, filled by a buffer with parts of this memory.

        Args:
            slots: which.
            extras: the names of their extras.
            arrays: what is not in the common memory, by name.
            ends: those in these rows; their slots are counted from the first of these.
        """
        if ends is not None:
            self._adopted.append(ends.shifted(slots.start))
        if not arrays and extras == self._all_shared:
            return  # as most slots: nothing to check or copy
        if self._named:
            check_names(extras, self.extras)
        self._named = True
        for name in extras:
            if name not in self.extras:
                one = arrays.get(EXTRAS + name, self.memory.get(EXTRAS + name))
                assert one is not None, f"the values of {name} are missing"
                self.extras[name] = self._extra(name, one.shape[2:], one.dtype)
        for name in extras:
            shared = self.memory.get(EXTRAS + name)
            # Other slots needed another dtype: these rows are copied from the memory.
            if EXTRAS + name not in arrays and self.extras[name] is not shared:
                assert shared is not None, f"the values of {name} are missing"
                arrays = {**arrays, EXTRAS + name: shared[:, slots]}
        self._all_shared = None if arrays else extras
        for name, array in arrays.items():
            self._widened(name, array)[:, slots] = array

    def _widened(self, name: str, values: Array) -> Array:
        """One of the arrays, in a dtype that also holds these values."""
        for prefix, rows in ((OBS, self.obs), (ACTION, self.action)):
            if name.startswith(prefix):
                number = int(name[len(prefix) :])
                rows.arrays[number] = widened(rows.arrays[number], values.dtype)
                return rows.arrays[number]
        if name.startswith(EXTRAS):
            key = name[len(EXTRAS) :]
            check_extra(key, values[0], values.shape[1], self.extras[key].shape[2:])
            self.extras[key] = widened(self.extras[key], values.dtype)
            return self.extras[key]
        return self.arrays()[name]

    def lose(self, slots: range, fault: Fault) -> None:
        """The rows of these slots were lost in a fault: padding rows, all of them."""
        part = slice(slots.start, slots.stop)
        for array in self.arrays().values():
            array[:, part] = 0 if array.dtype != object else None
        # Neither a carry nor a return crosses them; the last one ends the episode.
        self.truncated[-1, part] = self._started[:, part] = True
        for slot in slots:
            final_obs = [array[-1, slot] for array in self.obs.arrays]
            self.ends[self.rows - 1, slot] = EpisodeEnd(final_obs, None, False)
        self.ends[self.rows - 1, slots.start].fault = fault

    def own(self) -> None:
        """Copy everything out of the given memory, which is free afterwards."""
        self.obs.arrays = [array.copy() for array in self.obs.arrays]
        self.action.arrays = [array.copy() for array in self.action.arrays]
        self.reward = self.reward.copy()
        self.terminated, self.truncated = self.terminated.copy(), self.truncated.copy()
        self.valid, self._started = self.valid.copy(), self._started.copy()
        self.started = self._started[:-1]
        self.extras = {name: array.copy() for name, array in self.extras.items()}
        self.memory = {}

    def normalise(self, norm: ObsNorm) -> None:
        """Normalise the observations that are stored, and keep them in `raw`."""
        self.raw = self.obs
        self.obs = SpaceRows(self._space, self.rows, self.slots, norm.dtype_of)
        for part in self._parts():
            self.obs.write(part, norm(self.raw.some(part)))


def check_names(given: Collection[str], names: Collection[str]) -> None:
    """Raise OptionError if the names of extras are not those of the first call."""
    if set(given) != set(names):
        raise OptionError(
            f"the extras are {sorted(given)}; before they were {sorted(names)}. "
            "Return the same names every time"
        )


def check_extra(
    name: str, values: Array, count: int, shape: tuple[int, ...] | None = None
) -> None:
    """Raise OptionError if an extra has not one value, of this shape, per row."""
    found = values.shape[1:] if shape is None else shape
    if values.shape != (count, *found):
        rest = ("...",) if shape is None else shape
        expected = ", ".join(map(str, (count, *rest)))
        raise OptionError(
            f"extras[{name!r}] has shape {values.shape}; expected ({expected}): one "
            "value for each row of the step"
        )
