"""The memory that a collector fills: rows of every slot.

    buffer.add_decision(at, step, seen, decision)    observation, action, extras
    buffer.reward[at] = step.reward
    buffer.add_flags(at, step)                       where episodes end or start
    buffer.add_end(row, step, position, seed, carry) where an episode ended

`at` is a row, for all slots, or `(rows, slots)`.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from corral.core import Decision, Step
from corral.errors import Fault, OptionError
from corral.rollouts.normalise import ObsNorm
from corral.rollouts.rollout import EpisodeSummary
from corral.rollouts.space_rows import At, SpaceParts, SpaceRows, widened

Array = NDArray[Any]


@dataclass(slots=True)
class EpisodeEnd:
    """The end of an episode in a rollout."""

    final_obs: list[Any]
    """The last observation, part by part."""
    carry: Any
    """After the last action; one row."""
    bootstrapped: bool
    """Whether it was truncated, so that the value of what follows counts."""
    summary: EpisodeSummary | None = None
    fault: Fault | None = None


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
        self.ends: dict[tuple[int, int], EpisodeEnd] = {}
        """By row and slot, in the order in which they were added."""

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
            summary = EpisodeSummary(
                slot, row, seed, returned, length, terminated, info
            )
            end = EpisodeEnd(final_obs, carry, not terminated, summary)
        self.ends[row, slot] = end

    def truncate_after_last_row(self, now: Step, slot: int, carry: Any) -> None:
        """Truncate the slot's episode after the last row; `now` has all slots."""
        place = self.rows - 1, slot
        self.truncated[place] = True
        self.ends[place] = EpisodeEnd(
            self._space.value_at(now.obs, slot), carry, bootstrapped=True
        )


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
