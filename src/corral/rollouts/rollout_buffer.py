"""The memory that a collector fills: rows of every slot.

    buffer.add_decision(at, step, seen, decision)    observation, action, extras
    buffer.reward[at] = step.reward
    buffer.add_flags(at, step)                       where episodes end or start
    buffer.add_end(row, step, position, seed)        where an episode ended

`at` is a row, for all slots, or `(rows, slots)`.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import numpy as np
from numpy.typing import NDArray

from corral.core import Decision, Step
from corral.errors import Fault, OptionError
from corral.rollouts import carry as carries
from corral.rollouts.normalise import ObsNorm
from corral.rollouts.rollout import EpisodeSummary
from corral.rollouts.space_rows import At, SpaceParts, SpaceRows, widened

Array = NDArray[Any]


class RolloutBuffer:
    """Arrays `[rows, slots, ...]`."""

    def __init__(
        self,
        obs: SpaceParts,
        action: SpaceParts,
        rows: int,
        started: NDArray[np.bool_],
        norm: ObsNorm | None = None,
    ) -> None:
        slots = len(started)
        self.rows, self.slots = rows, slots
        self._space = obs
        self.obs = SpaceRows(obs, rows, slots, norm and norm.dtype_of)
        self.raw = None if norm is None else SpaceRows(obs, rows, slots)
        """Observations before normalisation."""
        self.action = SpaceRows(action, rows, slots)
        self.reward = np.empty((rows, slots))
        # As in the middle of an episode; `add_flags` writes all other rows.
        self.terminated, self.truncated = (
            np.zeros((rows, slots), np.bool_) for _ in range(2)
        )
        self._started = np.zeros((rows + 1, slots), np.bool_)
        self._started[0] = started
        self.started = self._started[:-1]
        self.valid = np.ones((rows, slots), np.bool_)
        self.extras: dict[str, Array] = {}
        self._named = False
        # By row and slot, in the order of their ends:
        self.episodes: dict[tuple[int, int], EpisodeSummary] = {}
        self.faults: dict[tuple[int, int], Fault] = {}
        self._finals: dict[tuple[int, int], list[Any]] = {}
        """Last observations, part by part."""
        self._carries: dict[tuple[int, int], Any] = {}
        """Carries at the end of truncated episodes."""

    def add_decision(
        self, at: At, step: Step, seen: Step, decision: Decision
    ) -> list[Array]:
        """Store the step, as the policy saw it, and its decision.

        Returns the stored actions, part by part; views of a whole row.
        """
        self.obs.write(at, seen.obs)
        if self.raw is not None:
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
            shape = (self.rows, self.slots, *array.shape[1:])
            self.extras[name] = np.zeros(shape, array.dtype)

    def _fitted(self, name: str, values: Any, count: int) -> tuple[Array, Array]:
        """The values, and their array in a dtype that loses nothing."""
        given, array = np.asarray(values), self.extras[name]
        check_extra(name, given, count, array.shape[2:])
        self.extras[name] = array = widened(array, given.dtype)
        return given, array

    # Ends -----------------------------------------------------------------------------

    def add_end(self, row: int, step: Step, position: int, seed: int) -> bool:
        """Store the end of an episode, before another starts.

        Returns whether it was truncated, so that its carry is needed as well. One by
        one: usually few end together, and then numbers are quicker than arrays.
        """
        slot = step.slots.item(position)
        place = row, slot
        self._finals[place] = [
            part.value_at(step.final_obs, position) for part in self._space.parts
        ]
        info = step.final_infos.get(position)
        if info is None:  # next_step, or an env without infos
            info = step.infos.of(position) if step.infos else {}
        if not step.valid.item(position):
            if "fault" in info:
                self.faults[place] = info["fault"]
            return False
        terminated = step.terminated.item(position)
        self.episodes[place] = EpisodeSummary(
            slot,
            row,
            seed,
            step.episode_return.item(position),
            step.episode_length.item(position),
            terminated,
            info,
        )
        return not terminated

    def add_truncation(self, row: int, slot: int, carry: Any) -> None:
        """Store the carry, one row, after the last act of a truncated episode."""
        self._carries[row, slot] = carry

    def truncate_after_last_row(self, now: Step, slot: int, carry: Any) -> None:
        """Truncate the slot's episode after the last row; `now` has all slots."""
        place = self.rows - 1, slot
        self.truncated[place] = True
        self._finals[place] = [
            part.value_at(now.obs, slot) for part in self._space.parts
        ]
        self._carries[place] = carry

    def final_obs(self) -> Any:
        """The last observations of episodes, row by row, not normalised."""
        return self._batch_of(sorted(self._finals))

    def truncated_episodes(self) -> tuple[list[tuple[int, int]], Any, Any]:
        """(row, slot) of each truncation; the last observations and carries there."""
        places = sorted(self._carries)
        if not places:
            return [], None, None
        carry = carries.joined([self._carries[place] for place in places])
        return places, self._batch_of(places), carry

    def _batch_of(self, places: list[tuple[int, int]]) -> Any:
        """A batch of last observations."""
        arrays = []
        for number, part in enumerate(self._space.parts):
            array = np.empty((len(places), *part.shape), part.dtype)
            for position, place in enumerate(places):
                array[position] = self._finals[place][number]
            arrays.append(array)
        return self._space.batch(arrays)


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
