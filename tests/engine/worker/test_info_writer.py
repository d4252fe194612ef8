"""The info writer of a shard that is the third and fourth of five slots."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from corral.engine.layout.columns import (
    ARENA_BYTES_PER_SLOT,
    FINAL_ROW,
    INFO_ROWS,
    MAX_COLUMNS,
    Columns,
)
from corral.engine.layout.plan import RECORD_DTYPE, Tickets
from corral.engine.worker.info_writer import InfoWriter
from corral.engine.worker.letters import Letter, NotSent, Packed
from corral.engine.worker.record import HAS_INFOS, PythonRecorder
from corral.errors import SpaceMismatch

SLOTS, SHARD = 5, range(2, 4)


def c_recorder(*arguments: Any) -> Any:
    return pytest.importorskip("corral.engine.worker._record").Recorder(*arguments)


class Desk:
    """A writer, the block it writes to, and the parent that reads it."""

    def __init__(
        self,
        wanted: str | tuple[str, ...] = "all",
        packs: bool = False,
        recorder: Callable[..., Any] = PythonRecorder,
    ) -> None:
        arena = np.full(INFO_ROWS * SLOTS * ARENA_BYTES_PER_SLOT, 0xA5, np.uint8)
        presence = np.zeros((INFO_ROWS, SLOTS, MAX_COLUMNS), np.uint8)
        self.parent, self.columns = (Columns(arena, presence) for _ in range(2))
        self.care = bytearray(len(SHARD))
        self.done = np.zeros(len(SHARD), np.uint32)
        self.records = np.zeros((2, len(SHARD)), RECORD_DTYPE)
        self.obs = np.zeros((2, len(SHARD), 1))
        self.recorder = recorder(self.records, self.obs, memoryview(self.done), None)
        self.informed = 0
        self.letters: list[Letter] = []
        self.writer = InfoWriter(
            slots=SHARD,
            wanted=wanted,
            packs=packs,
            columns=self.columns,
            care=self.care,
            recorder=self.recorder,
            inform=self.inform,
            send=self.letters.append,
            tickets=Tickets(len(SHARD)),
        )

    def inform(self) -> None:
        self.informed += 1

    def know(self, **info: Any) -> None:
        """The parent has made columns for entries like these."""
        self.columns.adopt(self.parent.define(info))

    def read(self, row: int) -> dict[tuple[str, int], Any]:
        """What the parent sees on a row, by name and slot."""
        return {
            (column.path[0], slot): values[slot].item()
            for column, values, mask in self.parent.read(row)
            for slot in np.flatnonzero(mask).tolist()
        }

    def post(self) -> list[Letter]:
        self.writer.post()
        posted, self.letters[:] = list(self.letters), []
        assert {letter.ticket for letter in posted} <= {0}  # nothing was sent yet
        return [replace(letter, ticket=None) for letter in posted]


@pytest.fixture
def desk() -> Desk:
    return Desk()


def test_numbers_go_to_the_columns_of_their_slot_and_row(desk: Desk) -> None:
    desk.know(speed=0.0)
    desk.writer.write(0, 0, {"speed": 1.5})
    desk.writer.write(1, 1, {"speed": 2.5})
    assert desk.read(0) == {("speed", 2): 1.5}
    assert desk.read(1) == {("speed", 3): 2.5}
    assert desk.post() == [] and desk.informed == 2


def test_the_rest_goes_into_a_letter_of_the_slot(desk: Desk) -> None:
    desk.know(speed=0.0)
    desk.writer.write(1, 0, {"speed": 1.5, "name": "ant"})
    desk.writer.write(0, 0, {"name": "bee"})
    assert desk.read(0) == {("speed", 3): 1.5}
    assert desk.post() == [Letter(3, info={"name": "ant"}), Letter(2, {"name": "bee"})]
    assert desk.post() == []


def test_one_letter_holds_all_that_a_slot_has_to_say(desk: Desk) -> None:
    desk.writer.letter(1).obs = ["text"]
    desk.writer.write(1, 0, {"name": "ant"})
    desk.writer.write_end(1, {"name": "bee"})
    assert desk.post() == [
        Letter(3, info={"name": "ant"}, final_info={"name": "bee"}, obs=["text"])
    ]


def test_a_letter_that_is_void_is_not_posted(desk: Desk) -> None:
    desk.writer.write(0, 0, {"name": "ant"})
    desk.writer.write(1, 0, {"name": "bee"})
    desk.writer.discard(0)
    desk.writer.discard(0)
    assert desk.post() == [Letter(3, info={"name": "bee"})]


def test_an_env_that_never_said_anything_costs_nothing(desk: Desk) -> None:
    desk.writer.write(0, 0, {})
    desk.writer.write_step(0, 1, {})
    assert not desk.informed and not any(desk.care) and desk.post() == []


def test_an_empty_info_clears_what_an_earlier_step_left_on_the_row(desk: Desk) -> None:
    desk.know(speed=0.0)
    desk.writer.write(0, 0, {"speed": 1.5})
    assert desk.care[0] == HAS_INFOS and not desk.care[1]
    desk.writer.write(0, 1, {})
    desk.writer.write(0, 0, {})
    assert desk.read(0) == desk.read(1) == {}


def test_the_info_of_an_end_has_a_row_of_its_own(desk: Desk) -> None:
    desk.know(speed=0.0)
    desk.writer.write_end(0, {"speed": 9.5, "path": [1]})
    desk.writer.write(0, 1, {"speed": 0.5})
    assert desk.read(FINAL_ROW) == {("speed", 2): 9.5}
    assert desk.read(1) == {("speed", 2): 0.5}
    assert desk.post() == [Letter(2, final_info={"path": [1]})]


def test_the_info_of_an_end_is_what_it_was_before_the_reset(desk: Desk) -> None:
    path = [1, 2]
    desk.writer.write_end(0, {"path": path})
    path.clear()
    assert desk.post() == [Letter(2, final_info={"path": [1, 2]})]


def test_an_episode_that_broke_off_says_nothing(desk: Desk) -> None:
    desk.know(speed=0.0)
    desk.writer.write_end(0, {"speed": 9.5})
    desk.writer.write(0, 0, {"speed": 1.5})
    desk.writer.clear(0, 0)
    assert desk.read(0) == desk.read(FINAL_ROW) == {}


def test_none_means_none() -> None:
    desk = Desk(wanted="none")
    desk.know(speed=0.0)
    desk.writer.write(0, 0, {"speed": 1.5, "name": "ant"}, final=True)
    desk.writer.write_end(0, {"speed": 1.5, "name": "ant"})
    assert desk.read(0) == desk.read(FINAL_ROW) == {}
    assert desk.post() == [] and not desk.informed


def test_final_means_the_infos_of_ends_alone() -> None:
    desk = Desk(wanted="final")
    desk.know(speed=0.0)
    desk.writer.write(0, 0, {"speed": 1.5, "name": "ant"}, final=True)
    assert desk.read(0) == {("speed", 2): 1.5}
    assert desk.post() == [Letter(2, info={"name": "ant"})]
    desk.writer.write(0, 0, {"speed": 2.5, "name": "ant"})
    assert desk.read(0) == {} and desk.post() == []
    desk.writer.write_end(0, {"speed": 3.5})
    assert desk.read(FINAL_ROW) == {("speed", 2): 3.5}


def test_keys_mean_these_and_no_others() -> None:
    desk = Desk(wanted=("speed", "name"))
    desk.know(speed=0.0, height=0.0)
    info = {"height": 1.0, "name": "ant", "speed": 1.5}
    desk.writer.write(0, 0, info)
    desk.writer.write_end(1, info)
    assert desk.read(0) == {("speed", 2): 1.5}
    assert desk.read(FINAL_ROW) == {("speed", 3): 1.5}
    assert desk.post() == [Letter(2, {"name": "ant"}), Letter(3, None, {"name": "ant"})]


@pytest.mark.parametrize("info", [None, [], "text"], ids=repr)
@pytest.mark.parametrize("wanted", ["all", "none", ("speed",)], ids=repr)
def test_an_info_must_be_a_dict(info: Any, wanted: Any) -> None:
    writer = Desk(wanted=wanted).writer
    for write in (
        lambda: writer.write(0, 0, info),
        lambda: writer.write_step(0, 0, info),
        lambda: writer.write_end(0, info),
    ):
        with pytest.raises(SpaceMismatch, match=r"info is .*; it must be a dict"):
            write()


def test_what_cannot_be_sent_fails_at_once_where_the_env_can_be_built_again() -> None:
    desk = Desk(packs=True)
    desk.writer.write(0, 0, {"name": "ant"})
    with pytest.raises(NotSent):
        desk.writer.write(1, 0, {"code": (one for one in "ab")})
    (letter,) = desk.post()
    assert isinstance(letter.info, Packed)
    assert pickle.loads(pickle.dumps(letter)) == Letter(2, info={"name": "ant"})


# Infos that the recorder writes by itself ---------------------------------------------


class Said:
    """An env whose infos are these, in turn."""

    def __init__(self, *infos: Any) -> None:
        self._infos = iter(infos)

    def step(self, action: Any) -> Any:
        return np.zeros(1), 1.0, False, False, next(self._infos)


def test_infos_that_are_always_alike_are_handed_over_to_the_c_recorder() -> None:
    desk = Desk(recorder=c_recorder)
    desk.know(speed=0.0)
    for index in (0, 1, 0, 1):
        desk.writer.write_step(index, 0, {"speed": 0.5})
    assert desk.writer.is_relieved
    steppers = [Said({"speed": 7.5}, {"speed": 8.5}), Said({"speed": 9.5}, {})]
    assert desk.recorder.run(0, 0, 1, steppers, iter("ab"), desk.care, 2) is None
    assert desk.read(0) == {("speed", 2): 7.5, ("speed", 3): 9.5}
    # One that is not like the others is the writer's again, and says so on its row.
    stopped = desk.recorder.run(0, 0, 1, steppers, iter("ab"), desk.care, 4)
    assert stopped is not None and desk.recorder.at == 1
    desk.writer.write_step(1, 0, stopped[1][4])
    assert desk.read(0) == {("speed", 2): 8.5}


def test_the_python_recorder_takes_nothing_over(desk: Desk) -> None:
    desk.know(speed=0.0)
    desk.writer.write_step(0, 0, {"speed": 1.5})
    assert not desk.writer.is_relieved


@pytest.mark.parametrize("wanted", ["final", ("speed",)], ids=repr)
def test_nothing_is_handed_over_where_not_all_infos_are_wanted(wanted: Any) -> None:
    desk = Desk(wanted=wanted, recorder=c_recorder)
    desk.know(speed=0.0)
    desk.writer.write_step(0, 0, {"speed": 1.5})
    assert not desk.writer.is_relieved


def test_infos_without_columns_are_not_handed_over() -> None:
    desk = Desk(recorder=c_recorder)
    desk.writer.write_step(0, 0, {"name": "ant"})
    assert not desk.writer.is_relieved
