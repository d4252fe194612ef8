"""The info writer of a shard: numbers go to columns, the rest into letters.

Infos that are always alike it hands over to the recorder, which writes them while it
steps: see `Recorder.expect`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from corral.engine.layout.columns import FINAL_ROW, Columns
from corral.engine.layout.info_copy import owned_info
from corral.engine.worker.letters import Letter, PackedPart
from corral.engine.worker.record import HAS_INFOS
from corral.engine.worker.step_results import counted
from corral.errors import SpaceMismatch


class InfoWriter:
    """Infos and letters of one shard.

    Args:
        slots: the shard's.
        wanted: which infos: "all", "final", "none", or keys.
        packs: whether a letter that cannot be sent has to fail at once, since the env
            can then be built again.
        columns: where numbers go.
        care: one byte per slot; see `record`.
        recorder: who may write infos by itself.
        inform: called when infos were written.
        post: called with each letter.
    """

    def __init__(
        self,
        slots: range,
        wanted: str | tuple[str, ...],
        packs: bool,
        columns: Columns,
        care: bytearray,
        recorder: Any,
        inform: Callable[[], object],
        post: Callable[[Letter], None],
    ) -> None:
        self._slots = slots
        self._choice = wanted
        self._packs = packs
        self._columns = columns
        self._care = care
        self._recorder = recorder
        self.inform = inform
        self._post = post
        self._offered: Any = None
        """The plan that the recorder was last asked to write infos by."""
        self.is_relieved = False
        """Whether the recorder writes infos by itself."""
        self.drafts: dict[int, Letter] = {}
        """By slot of the shard, until they are posted."""

    # Infos ----------------------------------------------------------------------------

    def write(self, index: int, row: int, info: Any, final: bool = False) -> None:
        """Numbers into columns, the rest into a letter."""
        if type(info) is dict and not info and not self._care[index] & HAS_INFOS:
            return  # nothing to write, and nothing to clear
        _refuse_odd(info)
        if self._choice == "none":
            return
        if self._choice == "final" and not final:
            info = {}  # and the columns of an earlier end are cleared
        rest = self._columns.write(row, self._slots[index], self._wanted(info))
        if rest:
            self.letter(index).info = self.packed_part(rest)
        if info:
            self._care[index] |= HAS_INFOS
            self.inform()

    def write_step(self, index: int, row: int, info: Any) -> None:
        """The same for a step in the middle of an episode: most infos are of one."""
        self.write(index, row, info)
        if self._offered is not self._columns.expected:
            self._offer()

    def _offer(self) -> None:
        """Have the recorder write infos like the last one, if it can."""
        plan = self._columns.expected
        if plan is None or self._choice != "all":
            return
        self._offered = plan
        self.is_relieved = self._recorder.expect(
            plan.keys,
            plan.types,
            plan.arrays,
            plan.columns,
            self._columns.written,
            self._slots.start,
            self._columns.slots,
        )

    def write_end(self, index: int, info: Any) -> None:
        """What came with the end of an episode that another follows at once.

        Copied before the reset, which may clear what the env keeps.
        """
        _refuse_odd(info)
        if self._choice == "none":
            return
        final = self._wanted(info)
        rest = self._columns.write(FINAL_ROW, self._slots[index], final)
        if rest:
            self.letter(index).final_info = self.packed_part(owned_info(rest))

    def clear(self, index: int, row: int) -> None:
        """Nothing was said: the episode broke off."""
        self.write(index, row, {}, final=True)
        self._columns.write(FINAL_ROW, self._slots[index], {})

    def _wanted(self, info: dict[str, Any]) -> dict[str, Any]:
        if isinstance(self._choice, str):
            return info
        return {key: info[key] for key in self._choice if key in info}

    # Letters --------------------------------------------------------------------------

    def letter(self, index: int) -> Letter:
        """The slot's next letter, to be added to."""
        letter = self.drafts.get(index)
        if letter is None:
            letter = self.drafts[index] = Letter(self._slots[index])
        return letter

    def packed_part(self, value: Any) -> Any:
        """Part of a letter."""
        return PackedPart(value) if self._packs else value

    def discard(self, index: int) -> None:
        """What was written to the slot's next letter is void."""
        self.drafts.pop(index, None)

    def post(self) -> None:
        """Send what was written."""
        for letter in self.drafts.values():
            self._post(letter)
        self.drafts.clear()


def _refuse_odd(info: Any) -> None:
    if not isinstance(info, dict):
        raise SpaceMismatch(f"info is {counted(info)}; it must be a dict")
