"""The tape is what a collector writes on: so many rows of every slot.

    tape.decided(at, step, seen, decision)   what was seen, and decided
    tape.reward[at] = step.reward            what came of it
    tape.flagged(at, step)                   the same, where episodes end or start
    tape.ended(row, step, position, seed)    where that was the end of an episode

`at` is a row, for all slots, or `(rows, slots)`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from corral.core import Decision, Step
from corral.errors import Fault, OptionError
from corral.layout.codec import Codecs
from corral.rollouts import carry as carries
from corral.rollouts.normalise import ObsNorm
from corral.rollouts.rollout import EpisodeSummary
from corral.rollouts.space_rows import At, SpaceRows, as_batch
from corral.rollouts.structure import parts_of

Array = NDArray[Any]


@dataclass(slots=True)
class Cut:
    """Episodes that were truncated: where, and what was last known of them."""

    rows: NDArray[np.intp]
    slots: NDArray[np.intp]
    obs: Any
    carry: Any


class Tape:
    """`[rows, slots]` of everything."""

    def __init__(
        self,
        codecs: Codecs,
        rows: int,
        started: NDArray[np.bool_],
        norm: ObsNorm | None,
    ) -> None:
        slots = len(started)
        self.rows, self.slots = rows, slots
        self._codec = codecs.obs
        self._parts = parts_of(codecs.obs)
        self.obs = SpaceRows(codecs.obs, rows, slots, norm and norm.dtype_of)
        self.raw = None if norm is None else SpaceRows(codecs.obs, rows, slots)
        """What the envs gave, where the policy sees something else."""
        self._plain_obs = self.obs.plain
        self.action = SpaceRows(codecs.action, rows, slots)
        self.reward = np.empty((rows, slots))
        # As in the middle of an episode; other rows are written where they occur.
        self.terminated, self.truncated = (
            np.zeros((rows, slots), np.bool_) for _ in range(2)
        )
        self._started = np.zeros((rows + 1, slots), np.bool_)
        self._started[0] = started
        self.started = self._started[:-1]
        self.valid = np.ones((rows, slots), np.bool_)
        self.extras: dict[str, Array] | None = None
        # By row and slot, in whatever order they ended:
        self.episodes: dict[tuple[int, int], EpisodeSummary] = {}
        self.faults: dict[tuple[int, int], Fault] = {}
        self._finals: dict[tuple[int, int], list[Any]] = {}
        """Last observations, part by part."""
        self._carries: dict[tuple[int, int], Any] = {}
        """Of episodes that were truncated."""

    def decided(self, at: At, step: Step, seen: Step, decision: Decision) -> None:
        """What came, what the policy saw of it, and what it decided."""
        if self._plain_obs is not None:
            self._plain_obs[at] = seen.obs
        else:
            self.obs.write(at, seen.obs)
        if self.raw is not None:
            self.raw.write(at, step.obs)
        self.action.take(at, decision.action, len(step.slots))
        extras = self.extras
        if extras is None:
            extras = self._begin_extras(decision.extras, len(step.slots))
        if len(decision.extras) != len(extras):
            raise OptionError(
                f"the policy's extras are {sorted(decision.extras)}; before they were "
                f"{sorted(extras)}"
            )
        name = ""
        try:
            for name, values in decision.extras.items():
                extras[name][at] = values
        except (KeyError, ValueError):
            raise self._misfit(decision, name, len(step.slots)) from None

    def flagged(self, at: At, step: Step) -> None:
        """Some of the rows are not in the middle of an episode."""
        self.terminated[at] = step.terminated
        self.truncated[at] = step.truncated
        self.valid[at] = step.valid

    def begun(self, rows: At, slots: NDArray[np.intp]) -> None:
        """These rows, if there are any such, are the first of an episode."""
        self._started[rows, slots] = True

    # Extras ---------------------------------------------------------------------------

    def _begin_extras(self, given: dict[str, Any], count: int) -> dict[str, Array]:
        self.extras = {}
        for name, values in given.items():
            array = np.asarray(values)
            if array.shape[:1] != (count,):
                raise self._misfit(Decision(None, None, given), name, count)
            shape = (self.rows, self.slots, *array.shape[1:])
            self.extras[name] = np.empty(shape, array.dtype)
        return self.extras

    def _misfit(self, decision: Decision, name: str, count: int) -> OptionError:
        known, shape = self.extras or {}, np.shape(decision.extras[name])
        if name in known:
            expected = (count, *known[name].shape[2:])
            wants = f"expected {expected}: one row for each row of the step"
        elif known:
            wants = f"before there were only {sorted(known)}"
        else:
            wants = f"expected ({count}, ...): one row for each row of the step"
        return OptionError(f"the policy's extras[{name!r}] has shape {shape}; {wants}")

    # Ends -----------------------------------------------------------------------------

    def ended(self, row: int, step: Step, position: int, seed: int) -> bool:
        """Keep what is known of an episode that ended, before another starts.

        Returns whether it was truncated, so that its carry is wanted as well. One by
        one: as a rule few end together, and a few numbers are quicker than an array.
        """
        slot = step.slots.item(position)
        place = row, slot
        self._finals[place] = [
            part.value_at(step.final_obs, position) for part in self._parts
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

    def cut(self, row: int, slot: int, carry: Any) -> None:
        """A truncated episode's carry, one row, after its last act."""
        self._carries[row, slot] = carry

    def cut_off(self, now: Step, slot: int, carry: Any) -> None:
        """The slot's episode is truncated after the last row; `now` is of all slots."""
        place = self.rows - 1, slot
        self.truncated[place] = True
        self._finals[place] = [part.value_at(now.obs, slot) for part in self._parts]
        self._carries[place] = carry

    def final_obs(self) -> Any:
        """The last observations of what ended, row by row, as the envs gave them."""
        return self._batch_of(sorted(self._finals))

    def cut_short(self) -> Cut | None:
        """Those that were truncated, if any were."""
        places = sorted(self._carries)
        if not places:
            return None
        rows, slots = (np.array(column) for column in zip(*places, strict=True))
        carry = carries.joined([self._carries[place] for place in places])
        return Cut(rows, slots, self._batch_of(places), carry)

    def _batch_of(self, places: list[tuple[int, int]]) -> Any:
        """A batch of last observations."""
        arrays = []
        for number, part in enumerate(self._parts):
            array = np.empty((len(places), *part.shape), part.dtype)
            for position, place in enumerate(places):
                array[position] = self._finals[place][number]
            arrays.append(array)
        return as_batch(self._codec, arrays)
