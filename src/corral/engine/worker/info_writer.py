"""The info writer of a shard: numbers go to columns, the rest into letters.

Infos that always have the same form are written by the recorder while it steps: see
`Recorder.expect`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from corral.engine.layout.columns import FINAL_ROW, Columns
from corral.engine.layout.info_copy import owned_info
from corral.engine.layout.plan import Tickets
from corral.engine.worker.letters import Letter, packed_part
from corral.engine.worker.record import HAS_INFOS
from corral.engine.worker.step_results import counted
from corral.errors import SpaceMismatch


@dataclass(slots=True)
class InfoWriter:
    """Infos and letters of one shard.

    Attributes:
        slots: The shard's.
        wanted: Which infos: "all", "final", "none", or keys.
        packs: Whether a letter that cannot be sent has to fail at once, since the env
            can then be built again.
        columns: Where numbers go.
        care: One byte per slot; see `record`.
        recorder: May write infos by itself.
        inform: Called when infos were written.
        send: Called with each letter.
        tickets: The shard's.
        is_relieved: Whether the recorder writes infos by itself.
        drafts: By slot of the shard, until they are posted.
    """

    slots: range
    wanted: str | tuple[str, ...]
    packs: bool
    columns: Columns
    care: bytearray
    recorder: Any
    inform: Callable[[], object]
    send: Callable[[Letter], None]
    tickets: Tickets
    is_relieved: bool = False
    drafts: dict[int, Letter] = field(default_factory=dict)
    # The plan that the recorder was last asked to write infos by.
    _offered: Any = None

    # Infos ----------------------------------------------------------------------------

    def write(self, index: int, row: int, info: Any, final: bool = False) -> None:
        """Numbers into columns, the rest into a letter."""
        if type(info) is dict and not info and not self.care[index] & HAS_INFOS:
            return  # nothing to write, and nothing to clear
        _refuse_odd(info)
        if self.wanted == "none":
            return
        if self.wanted == "final" and not final:
            info = {}  # and the columns of an earlier end are cleared
        rest = self.columns.write(row, self.slots[index], self._chosen(info))
        if rest:
            self.letter(index).info = self.packed_part(rest)
        if info:
            self.care[index] |= HAS_INFOS
            self.inform()

    def write_step(self, index: int, row: int, info: Any) -> None:
        """The same for a step in the middle of an episode: most infos are of one."""
        self.write(index, row, info)
        plan = self.columns.expected
        if plan is self._offered or plan is None or self.wanted != "all":
            return
        # Have the recorder write infos like this one, if it can.
        self._offered = plan
        self.is_relieved = self.recorder.expect(
            plan.keys,
            plan.types,
            plan.arrays,
            plan.columns,
            self.columns.written,
            self.slots.start,
            self.columns.slots,
        )

    def write_end(self, index: int, info: Any) -> None:
        """What came with the end of an episode that another follows at once.

        Copied before the reset, which may clear what the env keeps.
        """
        _refuse_odd(info)
        if self.wanted == "none":
            return
        rest = self.columns.write(FINAL_ROW, self.slots[index], self._chosen(info))
        if rest:
            self.letter(index).final_info = self.packed_part(owned_info(rest))

    def clear(self, index: int, row: int) -> None:
        """Nothing was said: the episode broke off."""
        self.write(index, row, {}, final=True)
        self.columns.write(FINAL_ROW, self.slots[index], {})

    def _chosen(self, info: dict[str, Any]) -> dict[str, Any]:
        if isinstance(self.wanted, str):
            return info
        return {key: info[key] for key in self.wanted if key in info}

    # Letters --------------------------------------------------------------------------

    def letter(self, index: int) -> Letter:
        """The slot's next letter, to be added to."""
        if index not in self.drafts:
            ticket = self.tickets.word(index)
            self.drafts[index] = Letter(self.slots[index], ticket=ticket)
        return self.drafts[index]

    def packed_part(self, value: Any) -> Any:
        """Part of a letter."""
        return packed_part(value) if self.packs else value

    def discard(self, index: int) -> None:
        """What was written to the slot's next letter is void."""
        self.drafts.pop(index, None)

    def post(self) -> None:
        """Send what was written."""
        for letter in self.drafts.values():
            self.send(letter)
        self.drafts.clear()


def _refuse_odd(info: Any) -> None:
    if not isinstance(info, dict):
        raise SpaceMismatch(f"info is {counted(info)}; it must be a dict")
