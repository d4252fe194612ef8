"""The inbox holds letters until the results of their slots are received."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from corral.core import Step
from corral.engine.layout.codec import Codec
from corral.engine.layout.columns import FINAL_ROW, Columns
from corral.engine.layout.infos import NO_INFOS, Infos
from corral.engine.layout.readout import Column
from corral.engine.pool.state import Chosen
from corral.engine.worker.letters import Letter, merged
from corral.errors import Fault


class Inbox:
    """Letters by slot, and the mailed leaves of the latest observations."""

    def __init__(self, codec: Codec, columns: Columns, empty_finals: bool) -> None:
        self._codec = codec
        self.columns = columns
        self._empty_finals = empty_finals
        # By slot, until it is taken.
        self.letters: dict[int, Letter] = {}
        self._obs: dict[int, list[Any]] = {}
        self._final_obs: dict[int, list[Any]] = {}
        # Info columns that the workers do not know yet.
        self.new_columns: list[Column] = []
        # Whether every Step is completed by letters.
        self.always = codec.mailed > 0

    def add(self, letters: Iterable[Letter]) -> None:
        """Keep letters until their slots are taken."""
        for letter in letters:
            earlier = self.letters.get(letter.slot)
            self.letters[letter.slot] = merged(letter, earlier) if earlier else letter

    def add_restart(self, slot: int, fault: Fault) -> None:
        """Note that the slot's result follows a fault that ended in a restart."""
        self.letters.setdefault(slot, Letter(slot)).restarted = fault

    def of(self, slots: Chosen) -> list[Letter]:
        """The letters of these slots."""
        return [self.letters[s] for s in slots.tolist() if s in self.letters]

    def _by_position(self, slots: Chosen) -> dict[int, Letter]:
        known = self.letters
        if not known:
            return {}
        return {at: known[s] for at, s in enumerate(slots.tolist()) if s in known}

    def take_faults(self, letters: Iterable[Letter]) -> dict[int, Fault]:
        """The faults in letters of slots being received, by slot; these are removed."""
        faults: dict[int, Fault] = {}
        for letter in letters:
            if letter.fault is not None:
                faults[letter.slot] = letter.fault
                del self.letters[letter.slot]
                if letter.obs is not None:
                    self._obs[letter.slot] = letter.obs
        return faults

    def infos(self, slots: Chosen, row: int | NDArray[np.int64], whole: bool) -> Infos:
        """Infos from columns and letters."""
        columns = self.columns.read(row, None if whole else slots)
        remainders: dict[int, dict[str, Any]] = {}
        if self.letters:
            letters = self._by_position(slots).items()
            remainders = {at: info for at, one in letters if (info := _info_in(one))}
            self._define(remainders)
        return Infos(columns, remainders) if columns or remainders else NO_INFOS

    def take_finals(self, step: Step) -> None:
        """Infos of ends in steps that also began an episode."""
        told = self.letters or self.columns.defined
        if not (told or self._empty_finals):
            return
        ended = (step.started & (step.terminated | step.truncated)).nonzero()[0]
        if not told:
            step.final_infos = {at: {} for at in ended.tolist()}
            return
        if not len(ended):
            return
        slots = step.slots[ended]
        letters = self._by_position(slots).items()
        remainders = {at: one.final_info for at, one in letters if one.final_info}
        infos = Infos(self.columns.read(FINAL_ROW, slots), remainders)
        pairs = zip(ended.tolist(), infos.to_list(len(slots)), strict=True)
        step.final_infos = {
            at: info for at, info in pairs if info or self._empty_finals
        }
        self._define(remainders)

    def _define(self, remainders: dict[int, dict[str, Any]]) -> None:
        """Make columns for what came by letter and can have one."""
        for info in remainders.values():
            self.new_columns += self.columns.define(info)

    def complete(self, step: Step) -> None:
        """Add to a Step what came by letter."""
        for position, letter in self._by_position(step.slots).items():
            slot = letter.slot
            del self.letters[slot]
            cut = step.truncated[position] and not step.valid[position]
            if letter.restarted is not None and cut:
                # An episode that was cut off ends with the observation before.
                if slot in self._obs:
                    self._final_obs[slot] = self._obs[slot]
                if step.started[position]:
                    step.final_infos[position] = {"fault": letter.restarted}
            if letter.obs is not None:
                self._obs[slot] = letter.obs
            if letter.final_obs is not None:
                self._final_obs[slot] = letter.final_obs
        if self.always:
            step.obs = self.assemble(step.obs, step.slots)
            final = self._mailed(self._final_obs, step.slots)
            step.final_obs = self._codec.assemble(step.final_obs, final)

    def mailed_obs(self, slots: range) -> list[Any]:
        """The mailed leaves of these slots' observations; [] where there are none."""
        return [self._obs.get(slot) for slot in slots] if self.always else []

    def set_mailed_obs(self, slots: range, obs: list[Any]) -> None:
        """Take what other code has received for these slots."""
        found = zip(slots, obs, strict=False)
        self._obs.update((slot, leaves) for slot, leaves in found if leaves is not None)

    def assemble(self, leaves: Sequence[Any], slots: Chosen) -> Any:
        """Observations of these slots, from their leaves in the block and by mail."""
        return self._codec.assemble(leaves, self._mailed(self._obs, slots))

    def _mailed(
        self, values: dict[int, list[Any]], slots: Chosen
    ) -> list[tuple[Any, ...]]:
        if not self.always:
            return []
        nothing = [None] * self._codec.mailed
        rows = [values.get(slot, nothing) for slot in slots.tolist()]
        return list(zip(*rows, strict=True))


def _info_in(letter: Letter) -> dict[str, Any]:
    """What a letter adds to its slot's info."""
    fault = {} if letter.restarted is None else {"fault": letter.restarted}
    return {**(letter.info or {}), **fault}
