"""One body for both recorders."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from corral.engine.layout.durations import bucket_of
from corral.engine.layout.plan import DURATIONS_DTYPE, RECORD_DTYPE
from corral.engine.worker import record
from corral.engine.worker.record import (
    EPISODE_ENDED,
    EPISODE_OVER,
    HAS_INFOS,
    NOTHING_WRITTEN,
    OBS_UNWRITTEN,
    REWARD_UNWRITTEN,
    PythonRecorder,
)

SLOTS = 3
SHAPE = (2, 2)


def c_recorder(*arguments: Any) -> Any:
    return pytest.importorskip("corral.engine.worker._record").Recorder(*arguments)


class Desk:
    """A recorder and the memory it writes."""

    def __init__(
        self,
        make: Callable[..., Any],
        dtype: Any = np.float32,
        plain: bool = True,
        times: Any = None,
    ) -> None:
        self.records = np.zeros((2, SLOTS), RECORD_DTYPE)
        self.obs = np.zeros((2, SLOTS, *SHAPE), dtype)
        self.done = np.zeros(SLOTS, np.uint32)
        self.rings = 0
        self.recorder = make(
            self.records,
            self.obs if plain else None,
            memoryview(self.done),
            self.ring,
            times,
        )

    def ring(self) -> None:
        self.rings += 1

    def row(self, row: int, slot: int) -> dict[str, Any]:
        """One record, without the time it took."""
        names = [name for name in RECORD_DTYPE.names or () if name != "step_time"]
        return {name: self.records[name][row, slot].item() for name in names}


@pytest.fixture(params=["c", "python"])
def make(request: pytest.FixtureRequest) -> Callable[..., Any]:
    return c_recorder if request.param == "c" else PythonRecorder


@pytest.fixture
def desk(make: Callable[..., Any]) -> Desk:
    return Desk(make)


def image(value: float, dtype: Any = np.float32) -> Any:
    return np.full(SHAPE, value, dtype)


def test_a_plain_step_leaves_nothing_to_do(desk: Desk) -> None:
    desk.records["seed"][1, 2] = 77
    desk.records["episode_return"][1, 2] = 10.0
    desk.records["episode_length"][1, 2] = 4
    desk.records["started"][0, 2] = True
    assert desk.recorder.record(0, 2, image(3), 1.5, False, False) == 0
    assert (desk.obs[0, 2] == 3).all() and not desk.obs[1].any()
    assert desk.row(0, 2) == {
        "reward": 1.5,
        "episode_return": 11.5,
        "episode_length": 5,
        "seed": 77,
        "terminated": False,
        "truncated": False,
        "started": False,
        "valid": True,
    }
    for untouched in ((0, 0), (0, 1), (1, 0), (1, 1)):
        assert not any(desk.row(*untouched).values())


@pytest.mark.parametrize("flags", [(True, False), (False, True), (True, True)])
def test_an_end_is_reported_and_the_next_step_counts_anew(
    desk: Desk, flags: tuple[bool, bool]
) -> None:
    assert desk.recorder.record(0, 0, image(1), 2.0, *flags) == EPISODE_ENDED
    ended = desk.row(0, 0)
    assert (ended["terminated"], ended["truncated"]) == flags
    assert desk.recorder.record(1, 0, image(1), 3.0, False, False) == 0
    after = desk.row(1, 0)
    assert after["episode_return"] == 3.0 and after["episode_length"] == 1


@pytest.mark.parametrize(
    "truth", [(np.True_, np.False_), (1, 0), ("yes", ""), ([0], [])], ids=repr
)
def test_flags_are_what_is_true_in_python(desk: Desk, truth: tuple[Any, Any]) -> None:
    assert desk.recorder.record(0, 0, image(1), 0.0, *truth) == EPISODE_ENDED
    assert desk.row(0, 0)["terminated"] is True and desk.row(0, 0)["truncated"] is False


@pytest.mark.parametrize(
    "reward", [1, True, -0.0, float("inf"), np.float64(0.1)], ids=repr
)
def test_plain_rewards_are_stored_as_they_are(desk: Desk, reward: Any) -> None:
    assert desk.recorder.record(0, 0, image(1), reward, False, False) == 0
    stored = desk.records["reward"][0, 0]
    assert stored.tobytes() == np.float64(reward).tobytes()


@pytest.mark.parametrize(
    "reward", [np.float32(1), np.array([1.0]), np.int64(1), None, "1"], ids=repr
)
def test_other_rewards_are_left_to_the_shard(desk: Desk, reward: Any) -> None:
    desk.records["episode_return"][1, 0] = 5.0
    assert (
        desk.recorder.record(0, 0, image(1), reward, True, False)
        == REWARD_UNWRITTEN | EPISODE_ENDED
    )
    assert desk.row(0, 0)["episode_return"] == 5.0


def test_a_nan_reward_is_stored(desk: Desk) -> None:
    assert desk.recorder.record(0, 0, image(1), float("nan"), False, False) == 0
    assert np.isnan(desk.records["reward"][0, 0])


class Subclass(np.ndarray):
    """Could mean anything by its values."""


@pytest.mark.parametrize(
    "obs",
    [
        image(1, np.float64),
        image(1, np.int32),
        np.zeros((2, 3), np.float32),
        np.zeros(4, np.float32),
        np.zeros((), np.float32),
        image(1).view(Subclass),
        image(1, ">f4"),
        [[1.0, 1.0], [1.0, 1.0]],
        None,
    ],
    ids=lambda obs: f"{type(obs).__name__}-{getattr(obs, 'dtype', '')}{np.shape(obs)}",
)
def test_other_observations_are_left_to_the_shard(desk: Desk, obs: Any) -> None:
    assert desk.recorder.record(0, 0, obs, 1.0, False, False) == OBS_UNWRITTEN
    assert not desk.obs.any()
    assert desk.row(0, 0)["reward"] == 1.0


def test_without_a_plain_leaf_every_observation_is_left(
    make: Callable[..., Any],
) -> None:
    desk = Desk(make, plain=False)
    assert desk.recorder.record(0, 0, image(1), 1.0, False, False) == OBS_UNWRITTEN


def test_observations_in_another_order_arrive_all_the_same(desk: Desk) -> None:
    obs = np.arange(4, dtype=np.float32).reshape(SHAPE)
    for laid_out in (np.asfortranarray(obs), np.repeat(obs, 2, 1)[:, ::2], obs):
        left = desk.recorder.record(0, 1, laid_out, 1.0, False, False)
        # Copied, or left to who can: never stored in the wrong order.
        assert left == OBS_UNWRITTEN or (desk.obs[0, 1] == obs).all()


@pytest.mark.parametrize("dtype", ["?", "i1", "u1", "i4", "i8", "f2", "f4", "f8"])
def test_every_dtype_is_copied_by_its_bits(
    make: Callable[..., Any], dtype: str
) -> None:
    desk = Desk(make, dtype)
    obs = np.random.default_rng(0).integers(0, 2, SHAPE).astype(dtype)
    assert desk.recorder.record(1, 1, obs, 0.0, False, False) == 0
    assert desk.obs[1, 1].tobytes() == obs.tobytes()


def test_the_step_time_is_counted_from_the_last_mark(desk: Desk) -> None:
    desk.recorder.mark()
    desk.recorder.record(0, 0, image(1), 0.0, False, False)
    desk.recorder.record(0, 1, image(1), 0.0, False, False)
    assert (desk.records["step_time"][0, :2] >= 0).all()


@pytest.mark.parametrize("flags", [(np.zeros(2), False), (False, np.zeros(2))])
def test_a_flag_that_is_neither_true_nor_false_raises(desk: Desk, flags: Any) -> None:
    with pytest.raises(ValueError, match="truth value"):
        desk.recorder.record(0, 0, image(1), 0.0, *flags)


def test_a_reward_too_large_for_a_double_raises(desk: Desk) -> None:
    with pytest.raises(OverflowError):
        desk.recorder.record(0, 0, image(1), 10**400, False, False)


def test_a_start_leaves_nothing_of_what_the_row_held(desk: Desk) -> None:
    desk.recorder.record(0, 1, image(1), 5.0, True, True)
    desk.recorder.start(0, 1, 77, False)
    assert desk.row(0, 1) == {
        "reward": 0.0,
        "episode_return": 0.0,
        "episode_length": 0,
        "seed": 77,
        "terminated": False,
        "truncated": False,
        "started": True,
        "valid": False,
    }
    with pytest.raises((IndexError, OverflowError)):
        desk.recorder.start(0, SLOTS, 77, True)


# The loop -----------------------------------------------------------------------------


class Stepper:
    """Something with a `step`."""

    def __init__(self, step: Callable[[Any], Any]) -> None:
        self.step = step


def stepping(*results: Any) -> tuple[list[Stepper], list[Any]]:
    """One stepper per slot, and the actions they were given."""
    given: list[Any] = []

    def make_step(result: Any) -> Callable[[Any], Any]:
        def step(action: Any) -> Any:
            given.append(action)
            if isinstance(result, Exception):
                raise result
            return result

        return step

    return [Stepper(make_step(result)) for result in results], given


def plain(value: float, **info: Any) -> tuple[Any, ...]:
    return image(value), value, False, False, info


def run(desk: Desk, steps: Any, first: int = 0, care: bytes = b"\0\0\0") -> Any:
    actions = iter([10 + slot for slot in range(first, SLOTS)])
    return desk.recorder.run(1, first, 1, steps, actions, bytearray(care), 9)


def test_plain_slots_are_run_and_published_in_one_go(desk: Desk) -> None:
    steps, given = stepping(plain(1), plain(2), plain(3))
    assert run(desk, steps) is None
    assert given == [10, 11, 12]
    assert desk.done.tolist() == [9, 9, 9] and desk.rings == 3
    assert desk.records["reward"][1].tolist() == [1, 2, 3]
    assert desk.obs[1, :, 0, 0].tolist() == [1, 2, 3]


def test_a_step_is_looked_up_when_it_is_called(desk: Desk) -> None:
    steppers, given = stepping(plain(1), plain(2), plain(3))
    others, given_later = stepping(plain(4), plain(5), plain(6))

    def exchange(action: Any) -> Any:
        given.append(action)
        steppers[1].step = others[1].step  # another method on the same object
        steppers[2] = others[2]  # another object in the list
        steppers[0] = others[0]  # also in the place of the one that runs
        return plain(1)

    steppers[0].step = exchange
    assert run(desk, steppers) is None
    assert desk.records["reward"][1].tolist() == [1, 5, 6]
    assert given == [10] and given_later == [11, 12]


def test_what_has_no_step_raises(desk: Desk) -> None:
    with pytest.raises(AttributeError, match="step"):
        run(desk, [object()] * SLOTS)


def test_nobody_has_to_be_rung(make: Callable[..., Any]) -> None:
    desk = Desk(make)
    quiet = make(desk.records, desk.obs, memoryview(desk.done), None)
    steps, _ = stepping(plain(1), plain(2), plain(3))
    last = 2**32 - 1
    assert quiet.run(0, 0, 1, steps, iter([0, 0, 0]), bytearray(SLOTS), last) is None
    assert desk.done.tolist() == [last] * SLOTS


def test_slots_can_be_run_from_the_last_to_the_first(desk: Desk) -> None:
    steps, given = stepping(plain(1), plain(2, word="x"), plain(3))
    actions = iter([12, 11, 10])
    care = bytearray(SLOTS)
    stop = desk.recorder.run(1, 2, -1, steps, actions, care, 9)
    assert stop is not None and desk.recorder.at == 1
    assert given == [12, 11] and desk.done.tolist() == [0, 0, 9]
    assert desk.recorder.run(1, 0, -1, steps, actions, care, 9) is None
    assert given == [12, 11, 10] and desk.done.tolist() == [9, 0, 9]
    assert desk.records["reward"][1].tolist() == [1, 2, 3]


@pytest.mark.parametrize(
    ("outcome", "flags"),
    [
        (plain(2, word="x"), 0),
        ((image(2), 2.0, True, False, {}), EPISODE_ENDED),
        ((image(2, np.float64), 2.0, False, False, {}), OBS_UNWRITTEN),
        ((image(2), np.float32(2), False, False, {}), REWARD_UNWRITTEN),
        ((image(2), 2.0, False, False, None), 0),
        ((image(2), 2.0, False, {}), NOTHING_WRITTEN),
        ([image(2), 2.0, False, False, {}], NOTHING_WRITTEN),
        (None, NOTHING_WRITTEN),
    ],
    ids=["info", "end", "obs", "reward", "no info", "4-tuple", "list", "None"],
)
def test_it_stops_at_what_needs_care_before_publishing(
    desk: Desk, outcome: Any, flags: int
) -> None:
    steps, given = stepping(plain(1), outcome, plain(3))
    left, result = run(desk, steps)
    assert left == flags and result is outcome and desk.recorder.at == 1
    assert given == [10, 11]
    assert desk.done.tolist() == [9, 0, 0] and desk.rings == 1
    assert run(desk, steps, first=2) is None
    assert desk.done.tolist() == [9, 0, 9] and desk.rings == 2


def test_a_slot_that_is_over_is_not_stepped(desk: Desk) -> None:
    steps, given = stepping(plain(1), plain(2), plain(3))
    assert run(desk, steps, care=bytes([0, EPISODE_OVER, 0])) == (0, None)
    assert desk.recorder.at == 1 and given == [10]


def test_a_slot_that_was_noisy_is_stopped_at_even_when_it_is_silent(desk: Desk) -> None:
    steps, _ = stepping(plain(1), plain(2), plain(3))
    left, result = run(desk, steps, care=bytes([0, 0, HAS_INFOS]))
    assert left == 0 and result[1] == 3 and desk.recorder.at == 2
    assert desk.done.tolist() == [9, 9, 0]


def test_an_env_that_raises_is_known_by_its_place(desk: Desk) -> None:
    steps, _ = stepping(plain(1), KeyError("lost"), plain(3))
    with pytest.raises(KeyError, match="lost"):
        run(desk, steps)
    assert desk.recorder.at == 1
    assert desk.done.tolist() == [9, 0, 0]


def test_the_recorder_that_is_used_was_chosen_once() -> None:
    chosen = {"python": "PythonRecorder", "c": "Recorder"}[record.KIND]
    assert record.Recorder.__name__ == chosen


# Times --------------------------------------------------------------------------------


@pytest.mark.parametrize("seconds", [0.0, 63e-9, 64e-9, 1e-6, 0.37, 3.0, 1e9])
def test_both_count_a_duration_in_the_same_bucket(make, seconds: float) -> None:
    times = np.zeros(SLOTS, DURATIONS_DTYPE)
    desk = Desk(make, times=times)
    desk.recorder.reset_took(1, seconds)
    assert times["reset"][1].nonzero()[0].tolist() == [bucket_of(seconds)]
    assert times["reset_seconds"].tolist() == [0.0, seconds, 0.0]
    assert not times["step"].any()


def test_every_recorded_step_is_counted(make) -> None:
    times = np.zeros(SLOTS, DURATIONS_DTYPE)
    desk = Desk(make, times=times)
    for _ in range(3):
        desk.recorder.record(0, 2, np.zeros(SHAPE, np.float32), 1.0, False, False)
    assert times["step"].sum(axis=1).tolist() == [0, 0, 3]
    assert times["step_seconds"][2] > 0


def test_times_of_another_size_are_refused() -> None:
    with pytest.raises(ValueError, match="DURATIONS_DTYPE"):
        Desk(c_recorder, times=np.zeros(SLOTS + 1, DURATIONS_DTYPE))


class Notebook:
    """Columns for infos of a count and a speed, of which some slots have begun one."""

    keys, types, columns = ["count", "speed"], [int, np.float32], (0, 1)

    def __init__(self, rows: int = 3, slots: int = 5, first: int = 1) -> None:
        self.counts = np.zeros(rows * slots, np.int64)
        self.speeds = np.zeros(rows * slots, np.float32)
        self.written: list[Any] = [None] * (rows * slots)
        self.first, self.slots = first, slots

    def offered_to(self, recorder: Any, **changed: Any) -> bool:
        given = {
            "keys": self.keys,
            "types": self.types,
            "targets": [self.counts, self.speeds],
            "columns": self.columns,
            "written": self.written,
            "first": self.first,
            "slots": self.slots,
        }
        done: bool = recorder.expect(*(given | changed).values())
        return done

    def begin(self, row: int, *slots: int) -> None:
        for slot in slots:
            self.written[row * self.slots + self.first + slot] = self.columns


def speaking(*infos: Any) -> list[Stepper]:
    return [
        Stepper(lambda _, info=info: (image(0), 0.0, False, False, info))  # type: ignore[misc]
        for info in infos
    ]


FAMILIAR = {"count": 7, "speed": np.float32(2.5)}


def test_an_expected_info_is_written_and_does_not_stop_it() -> None:
    desk, notes = Desk(c_recorder), Notebook()
    notes.begin(1, 0, 1, 2)
    assert notes.offered_to(desk.recorder)
    steps, care = (
        speaking(FAMILIAR, dict(FAMILIAR), FAMILIAR),
        bytearray([HAS_INFOS] * 3),
    )
    assert desk.recorder.run(1, 2, -1, steps, iter("abc"), care, 4) is None
    assert notes.counts.tolist() == [0] * 6 + [7] * 3 + [0] * 6
    assert notes.speeds.tolist() == [0] * 6 + [2.5] * 3 + [0] * 6
    assert desk.done.tolist() == [4, 4, 4] and desk.rings == 3


@pytest.mark.parametrize(
    "odd",
    [
        {},
        {"count": 7},
        {"speed": np.float32(2.5), "count": 7},
        {"count": 7, "speed": 2.5},
        {"count": True, "speed": np.float32(2.5)},
        {"count": 2**70, "speed": np.float32(2.5)},
        {"count": 7, "pace": np.float32(2.5)},
        {"count": 7, "speed": np.float32(2.5), "more": 1},
        type("Info", (dict,), {})(FAMILIAR),
        None,
    ],
)
def test_it_stops_at_an_info_that_is_not_as_expected(odd: Any) -> None:
    desk, notes = Desk(c_recorder), Notebook()
    notes.begin(0, 0, 1, 2)
    assert notes.offered_to(desk.recorder)
    steps, care = speaking(FAMILIAR, odd, FAMILIAR), bytearray([HAS_INFOS] * 3)
    left, result = desk.recorder.run(0, 0, 1, steps, iter("abc"), care, 4)
    assert (left, desk.recorder.at) == (0, 1) and result[4] is odd
    assert desk.done.tolist() == [4, 0, 0]


def test_it_stops_where_an_expected_info_is_the_first_of_its_kind() -> None:
    desk, notes = Desk(c_recorder), Notebook()
    notes.begin(0, 0)
    assert notes.offered_to(desk.recorder)
    steps = speaking(FAMILIAR, FAMILIAR, FAMILIAR)
    run = desk.recorder.run
    assert run(0, 0, 1, steps, iter("abc"), bytearray([HAS_INFOS] * 3), 4)[0] == 0
    assert desk.recorder.at == 1, "its presence is not marked"
    assert run(0, 0, 1, steps, iter("abc"), bytearray(3), 4)[0] == 0
    assert desk.recorder.at == 0, "it was silent until now"


def test_it_refuses_to_expect_what_it_cannot_write() -> None:
    desk, notes = Desk(c_recorder), Notebook()
    assert notes.offered_to(desk.recorder, types=[int, float]) is False
    assert notes.offered_to(desk.recorder, types=[int, np.ndarray]) is False
    strided = np.zeros(30, np.float32)[::2]
    assert notes.offered_to(desk.recorder, targets=[notes.counts, strided]) is False
    for changed in ({"slots": 3}, {"first": -1}, {"keys": ["count"]}, {"slots": 9}):
        with pytest.raises(ValueError, match="fit together"):
            notes.offered_to(desk.recorder, **changed)
    with pytest.raises(TypeError, match="expect"):
        desk.recorder.expect(1, 2)
    notes.begin(0, 0, 1, 2)
    steps, care = speaking(FAMILIAR, FAMILIAR, FAMILIAR), bytearray([HAS_INFOS] * 3)
    assert desk.recorder.run(0, 0, 1, steps, iter("abc"), care, 4)[0] == 0


def test_only_the_c_recorder_writes_infos() -> None:
    assert Notebook().offered_to(Desk(PythonRecorder).recorder) is False
