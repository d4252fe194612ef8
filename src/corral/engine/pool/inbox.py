"""The inbox holds letters until the results of their slots are received."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from corral.core import Step
from corral.engine.layout.codec import Codec
from corral.engine.layout.columns import FINAL_ROW, Columns
from corral.engine.layout.entries import Column
from corral.engine.layout.infos import NO_INFOS, Infos
from corral.engine.worker.letters import Letter, merged
from corral.errors import Fault


class Inbox:
    """Letters by slot, and the mailed leaves of the latest observations."""

    def __init__(self, codec: Codec, columns: Columns, empty_finals: bool) -> None:
        self._codec = codec
        self._columns = columns
        self._empty_finals = empty_finals
        self.letters: dict[int, Letter] = {}
        """By slot, until it is taken."""
        self._obs: dict[int, list[Any]] = {}
        self._final_obs: dict[int, list[Any]] = {}
        self.always = codec.mailed > 0
        """Whether every Step is completed by letters."""

    def add(self, letters: Iterable[Letter]) -> None:
        """Keep letters until their slots are taken."""
        for letter in letters:
            earlier = self.letters.get(letter.slot)
            if earlier is not None:
                letter = merged(letter, earlier)
            self.letters[letter.slot] = letter

    def add_restart(self, slot: int, fault: Fault) -> None:
        """Note that the slot's result follows a fault that ended in a restart."""
        self.letters.setdefault(slot, Letter(slot)).restarted = fault

    @property
    def columns(self) -> list[Column]:
        """All info columns so far."""
        return list(self._columns.defined)

    def rebuilt_env_letters(self, slots: NDArray[np.intp]) -> list[Letter]:
        """The letters of these slots that say an env was rebuilt after a fault."""
        if all(letter.restarted is None for letter in self.letters.values()):
            return []
        found = (self.letters.get(slot) for slot in slots.tolist())
        return [letter for letter in found if letter and letter.restarted]

    def faults(self, slots: NDArray[np.intp]) -> list[Fault]:
        """The faults of slots being received; their letters are removed."""
        if all(letter.fault is None for letter in self.letters.values()):
            return []
        taken = [self.letters[slot] for slot in slots.tolist() if slot in self.letters]
        faults = []
        for letter in taken:
            if letter.fault is not None:
                faults.append(letter.fault)
                del self.letters[letter.slot]
                if letter.obs is not None:
                    self._obs[letter.slot] = letter.obs
        return faults

    def infos(
        self, slots: NDArray[np.intp], row: int | NDArray[np.int64], whole: bool
    ) -> tuple[Infos, list[Column]]:
        """Infos from columns and letters, and the columns that are new."""
        columns = self._columns.read(row, None if whole else slots)
        remainders = {}
        if self.letters:
            for position, slot in enumerate(slots.tolist()):
                letter = self.letters.get(slot)
                if letter is None:
                    continue
                if letter.info:
                    remainders[position] = letter.info
                if letter.restarted is not None:
                    fault = {"fault": letter.restarted}
                    remainders[position] = {**(letter.info or {}), **fault}
        new = [c for info in remainders.values() for c in self._columns.define(info)]
        infos = Infos(columns, remainders) if columns or remainders else NO_INFOS
        return infos, new

    def take_finals(self, step: Step) -> list[Column]:
        """Infos of ends in steps that also began an episode; return new columns."""
        ended = np.flatnonzero(step.started & (step.terminated | step.truncated))
        if not len(ended):
            return []
        slots, remainders = step.slots[ended], {}
        for index, slot in enumerate(slots.tolist()):
            letter = self.letters.get(slot)
            if letter is not None and letter.final_info:
                remainders[index] = letter.final_info
        infos = Infos(self._columns.read(FINAL_ROW, slots), remainders)
        pairs = zip(ended.tolist(), infos.to_list(len(slots)), strict=True)
        step.final_infos = {
            at: info for at, info in pairs if info or self._empty_finals
        }
        return [c for info in remainders.values() for c in self._columns.define(info)]

    def complete(self, step: Step) -> None:
        """Add to a Step what came by letter."""
        for position, slot in enumerate(step.slots.tolist()):
            letter = self.letters.pop(slot, None)
            if letter is None:
                continue
            cut = step.truncated[position] and not step.valid[position]
            if letter.restarted is not None and cut:
                self._truncate(step, position, letter)
            if letter.obs is not None:
                self._obs[slot] = letter.obs
            if letter.final_obs is not None:
                self._final_obs[slot] = letter.final_obs
        if self.always:
            step.obs = self.assemble(step.obs, step.slots)
            final = self._mailed(self._final_obs, step.slots)
            step.final_obs = self._codec.assemble(step.final_obs, final)

    def _truncate(self, step: Step, position: int, letter: Letter) -> None:
        """An episode that was cut off ends with the observation before."""
        if letter.slot in self._obs:
            self._final_obs[letter.slot] = self._obs[letter.slot]
        if step.started[position]:
            step.final_infos[position] = {"fault": letter.restarted}

    def assemble(self, leaves: Sequence[Any], slots: NDArray[np.intp]) -> Any:
        """Observations of these slots, from their leaves in the block and by mail."""
        return self._codec.assemble(leaves, self._mailed(self._obs, slots))

    def _mailed(
        self, values: dict[int, list[Any]], slots: NDArray[np.intp]
    ) -> list[tuple[Any, ...]]:
        if not self.always:
            return []
        nothing = [None] * self._codec.mailed
        rows = [values.get(slot, nothing) for slot in slots.tolist()]
        return list(zip(*rows, strict=True))
