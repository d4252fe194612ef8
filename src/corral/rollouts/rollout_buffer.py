"""What a collector fills: so many rows of every slot.

    buffer.add_decision(at, step, seen, decision)    what was seen, and decided
    buffer.reward[at] = step.reward                  what came of it
    buffer.add_flags(at, step)                       where episodes end or start
    buffer.add_end(row, step, position, seed)        where an episode ended

`at` is a row, for all slots, or `(rows, slots)`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from corral.core import Decision, Step
from corral.errors import Fault, OptionError
from corral.rollouts import carry as carries
from corral.rollouts.normalise import ObsNorm
from corral.rollouts.rollout import EpisodeSummary
from corral.rollouts.space_rows import At, SpaceParts, SpaceRows

Array = NDArray[Any]


@dataclass(slots=True)
class TruncatedEpisodes:
    """Episodes that were truncated: where, and what was last known of them."""

    rows: NDArray[np.intp]
    slots: NDArray[np.intp]
    obs: Any
    carry: Any


class RolloutBuffer:
    """`[rows, slots]` of everything."""

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
        """What the envs gave, where the policy sees something else."""
        self.action = SpaceRows(action, rows, slots)
        self.reward = np.empty((rows, slots))
        # As in the middle of an episode; other rows are written where they occur.
        self.terminated, self.truncated = (
            np.zeros((rows, slots), np.bool_) for _ in range(2)
        )
        self._started = np.zeros((rows + 1, slots), np.bool_)
        self._started[0] = started
        self.started = self._started[:-1]
        self.valid = np.ones((rows, slots), np.bool_)
        self.extras: dict[str, Array] = {}
        self._named = False
        # By row and slot, in whatever order they ended:
        self.episodes: dict[tuple[int, int], EpisodeSummary] = {}
        self.faults: dict[tuple[int, int], Fault] = {}
        self._finals: dict[tuple[int, int], list[Any]] = {}
        """Last observations, part by part."""
        self._carries: dict[tuple[int, int], Any] = {}
        """Of episodes that were truncated."""

    def add_decision(
        self, at: At, step: Step, seen: Step, decision: Decision
    ) -> list[Array]:
        """What came, what the policy saw of it, and what it decided.

        Returns the actions as they are stored, part by part; views of a whole row.
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
            # The shape is looked at closely if it is not that of a whole row.
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
        """Some of the rows are not in the middle of an episode."""
        following = at + 1 if isinstance(at, int) else (at[0] + 1, at[1])
        self._started[following] = step.started
        self.terminated[at] = step.terminated
        self.truncated[at] = step.truncated
        self.valid[at] = step.valid

    # Extras ---------------------------------------------------------------------------

    def _check_names(self, given: dict[str, Any], count: int) -> None:
        """The names of a rollout's extras are those of its first decision."""
        if given.keys() == self.extras.keys():
            return
        if self._named:
            raise OptionError(
                f"the policy's extras are {sorted(given)}; before they were "
                f"{sorted(self.extras)}"
            )
        self._named = True
        for name, values in given.items():
            array = np.asarray(values)
            if array.shape[:1] != (count,):
                raise _misfit(name, array, count, ("...",))
            shape = (self.rows, self.slots, *array.shape[1:])
            self.extras[name] = np.zeros(shape, array.dtype)

    def _fitted(self, name: str, values: Any, count: int) -> tuple[Array, Array]:
        """Values and where they go, in a dtype that loses nothing."""
        given, array = np.asarray(values), self.extras[name]
        if given.shape != (count, *array.shape[2:]):
            raise _misfit(name, given, count, array.shape[2:])
        if not np.can_cast(given.dtype, array.dtype, "safe"):
            array = array.astype(np.promote_types(given.dtype, array.dtype))
            self.extras[name] = array
        return given, array

    # Ends -----------------------------------------------------------------------------

    def add_end(self, row: int, step: Step, position: int, seed: int) -> bool:
        """Keep what is known of an episode that ended, before another starts.

        Returns whether it was truncated, so that its carry is wanted as well. One by
        one: as a rule few end together, and a few numbers are quicker than an array.
        """
        slot = step.slots.item(position)
        place = row, slot
        self._finals[place] = [
            part.value_at(step.final_obs, position) for part in self._space.parts
        ]
        info = step.final_infos.get(position)
        if info is None:  # next_step, or an env that said nothing
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
        """A truncated episode's carry, one row, after its last act."""
        self._carries[row, slot] = carry

    def truncate_after_last_row(self, now: Step, slot: int, carry: Any) -> None:
        """The slot's episode is truncated after the last row; `now` is of all slots."""
        place = self.rows - 1, slot
        self.truncated[place] = True
        self._finals[place] = [
            part.value_at(now.obs, slot) for part in self._space.parts
        ]
        self._carries[place] = carry

    def final_obs(self) -> Any:
        """The last observations of what ended, row by row, as the envs gave them."""
        return self._batch_of(sorted(self._finals))

    def truncated_episodes(self) -> TruncatedEpisodes | None:
        """Those that were truncated, if any were."""
        places = sorted(self._carries)
        if not places:
            return None
        rows, slots = (np.array(column) for column in zip(*places, strict=True))
        carry = carries.joined([self._carries[place] for place in places])
        return TruncatedEpisodes(rows, slots, self._batch_of(places), carry)

    def _batch_of(self, places: list[tuple[int, int]]) -> Any:
        """A batch of last observations."""
        arrays = []
        for number, part in enumerate(self._space.parts):
            array = np.empty((len(places), *part.shape), part.dtype)
            for position, place in enumerate(places):
                array[position] = self._finals[place][number]
            arrays.append(array)
        return self._space.batch(arrays)


def _misfit(
    name: str, values: Array, count: int, shape: tuple[Any, ...]
) -> OptionError:
    expected = ", ".join(map(str, (count, *shape)))
    return OptionError(
        f"the policy's extras[{name!r}] has shape {values.shape}; expected "
        f"({expected}): one row for each row of the step"
    )
