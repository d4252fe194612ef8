"""Infos arrive as the env returned them, whichever way they travelled."""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from corral import Pool
from corral.errors import EnvError, OptionError

from .envs import Talker
from .reference import same

MakePool = Callable[..., Pool]

CONVERSATION: list[dict[str, Any]] = [
    {},
    {"speed": 1.5, "count": 3, "name": "ant"},
    {"speed": 2.5, "count": 4},
    {"speed": np.float32(2.5), "count": 2**80, "flag": True, "sure": np.True_},
    {},
    {"speed": 3.5, "deep": {"x": 1, "deeper": {"y": np.arange(3), "text": "hm"}}},
    {"deep": {"x": 2, "deeper": {"y": np.arange(4.0)}}, "speed": None},
    {"deep": 5, "list": [1, 2], "empty": {}, 7: "odd key", "_deep": 1},
    {"speed": 1.5, "big": np.zeros((40, 40)), "count": -1},
    {"nan": float("nan"), "speed": 9.5},
]


def said(slot: int, number: int) -> dict[str, Any]:
    """Slots run through the same conversation from different places."""
    return CONVERSATION[(number + 3 * slot) % len(CONVERSATION)]


def talkers(length: int = 10**9) -> list[Callable[[], Any]]:
    return [
        functools.partial(
            Talker, CONVERSATION[3 * slot :] + CONVERSATION[: 3 * slot], length
        )
        for slot in range(3)
    ]


def test_every_info_arrives_as_it_was_said(make_pool: MakePool) -> None:
    pool = make_pool(talkers())
    step = pool.reset()
    for number in range(3 * len(CONVERSATION)):
        for slot in range(3):
            got = step.infos.of(slot)
            assert same(got, said(slot, number)), (number, slot, got)
        step = pool.step([0, 0, 0])


SCALARS: dict[str, Any] = {
    "speed": 1.5,
    "count": 3,
    "sure": True,
    "wide": np.float64(0.1),
    "narrow": np.float32(0.2),
    "half": np.float16(0.5),
    "small": np.uint8(200),
    "long": np.int64(-5),
    "flag": np.True_,
    "both": np.complex64(1 + 2j),
}
SURPRISES: list[dict[str, Any]] = [
    {**SCALARS, "speed": 2},
    {**SCALARS, "count": 2**64},
    {**SCALARS, "wide": 0.1},
    {**SCALARS, "flag": True},
    dict(reversed(SCALARS.items())),
    {key: value for key, value in SCALARS.items() if key != "half"},
    {**SCALARS, "more": 1.0},
    {**SCALARS, "count": None},
    {},
]


def test_infos_that_are_always_alike_may_change_at_any_time(
    make_pool: MakePool,
) -> None:
    familiar = [{**SCALARS, "speed": float(n), "count": -n} for n in range(4)]
    talk = [one for surprise in SURPRISES for one in (*familiar, surprise)]
    pool = make_pool(
        [functools.partial(Talker, talk[5 * n :] + talk[: 5 * n]) for n in range(3)]
    )
    pool.reset()
    for number in range(1, 2 * len(talk)):
        step = pool.step([0, 0, 0])
        for slot, got in enumerate(step.infos.to_list(3)):
            assert same(got, talk[(number + 5 * slot) % len(talk)]), (number, slot)


ENDS: list[dict[str, Any]] = [
    {"episode": {"r": 1.5, "l": 3, "t": 0.25}, "speed": 1.0},
    {"episode": {"r": 2.5, "l": 3, "t": 0.5}, "speed": 2.0},
    {"speed": 3.0, "name": "ant"},
    {},
    {"where": np.arange(3), "episode": {"r": 3.5, "l": 3, "t": 0.75}},
]


def test_an_episode_ends_with_its_own_info(make_pool: MakePool) -> None:
    talk = [one for end in ENDS for one in ({}, {"speed": 0.5}, end)]
    pool = make_pool(
        [functools.partial(Talker, talk[3 * n :] + talk[: 3 * n], 2) for n in range(3)],
        autoreset="same_step",
    )
    pool.reset()
    for number in range(1, 4 * len(ENDS)):
        assert pool.step([0, 0, 0]).final_infos == {}
        step = pool.step([0, 0, 0])
        for slot in range(3):
            end = ENDS[(number - 1 + slot) % len(ENDS)]
            assert same(step.final_infos[slot], end), (number, slot)
            assert step.infos.of(slot) == {}


class Forgetful(Talker):
    """Keeps one list of what happened, and clears it for the next episode."""

    def __init__(self) -> None:
        super().__init__([{}], 2)
        self._path: list[list[int]] = []

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        self._path.clear()
        return super().reset(seed=seed, options=options)

    def step(self, action: Any) -> Any:
        self._path.append([self._count])
        *outcome, _ = super().step(action)
        return (*outcome, {"path": self._path} if outcome[2] else {})


def test_what_ended_an_episode_is_told_as_it_was_before_the_next_one(
    make_pool: MakePool,
) -> None:
    pool = make_pool([Forgetful] * 2, autoreset="same_step")
    pool.reset()
    pool.step([0, 0])
    assert pool.step([0, 0]).final_infos[1] == {"path": [[0], [1]]}


def test_infos_of_some_slots_are_theirs(make_pool: MakePool) -> None:
    pool = make_pool(talkers())
    pool.reset()
    numbers = [0, 0, 0]
    for slots in ([2], [0, 2], [1, 2], [0, 1, 2], [1]) * 5:
        step = pool.step([0] * len(slots), slots=slots)
        for position, slot in enumerate(slots):
            numbers[slot] += 1
            got = step.infos.of(position)
            assert same(got, said(slot, numbers[slot])), (slots, slot, got)


def test_a_key_that_is_absent_this_step_is_absent(make_pool: MakePool) -> None:
    infos = [{}, {"a": 1}, {"b": 2}, {}, {"a": 3}]
    pool = make_pool(
        [functools.partial(Talker, infos), functools.partial(Talker, [{}])]
    )
    pool.reset()
    seen = [pool.step([0, 0]).infos.to_vector(2) for _ in range(2 * len(infos))]
    keys = [{key for key in vector if not key.startswith("_")} for vector in seen]
    assert keys == [{"a"}, {"b"}, set(), {"a"}, set()] * 2
    assert seen[0]["a"].tolist() == [1, 0] and seen[0]["_a"].tolist() == [True, False]


def test_only_the_last_infos_come_with_final(make_pool: MakePool) -> None:
    pool = make_pool(talkers(length=4), infos="final")
    assert not pool.reset().infos
    for number in range(1, 12):
        step = pool.step([0, 0, 0])
        assert [step.infos.of(slot) for slot in range(3)] == [{}, {}, {}]
        assert set(step.final_infos) == ({0, 1, 2} if number % 4 == 0 else set())


@pytest.mark.parametrize("whole", [True, False])
def test_final_infos_do_not_linger_with_next_step(
    make_pool: MakePool, whole: bool
) -> None:
    info = [{"speed": 1.5, "name": "ant"}]
    lengths = [functools.partial(Talker, info, length) for length in (2, 3)]
    pool = make_pool(lengths, infos="final", autoreset="next_step")
    pool.reset()
    for _ in range(24):
        pool.send([0, 0], slots=None if whole else [0, 1])
        step = pool.recv()
        for slot in (0, 1):
            expected = info[0] if step.ended[slot] else {}
            assert step.infos.of(slot) == expected


def test_no_infos_come_with_none(make_pool: MakePool) -> None:
    pool = make_pool(talkers(length=4), infos="none")
    assert not pool.reset().infos
    for _ in range(8):
        step = pool.step([0, 0, 0])
        assert not step.infos and not step.final_infos


@pytest.mark.parametrize("mode", ["same_step", "next_step"])
def test_only_the_keys_that_were_asked_for_come(make_pool: MakePool, mode: str) -> None:
    keys = ["speed", "name"]
    pool = make_pool(talkers(length=4), infos=keys, autoreset=mode)
    pool.reset()
    seen = set()
    for _ in range(40):
        step = pool.step([0, 0, 0])
        said_now = [step.infos.of(slot) for slot in range(3)]
        seen |= {
            key for info in [*said_now, *step.final_infos.values()] for key in info
        }
    assert seen == set(keys)


def test_an_unknown_choice_of_infos_is_refused(make_pool: MakePool) -> None:
    with pytest.raises(OptionError, match="infos is 'some'"):
        make_pool(talkers(), infos="some")


def test_an_info_that_cannot_be_pickled_names_its_slot() -> None:
    infos = [{}, {"speed": 1.0}, {"lock": "a lock"}]

    def locked() -> Any:
        env = Talker([{}, {"lock": threading.Lock()}])
        return env

    factories = [functools.partial(Talker, infos), locked]
    with Pool(factories, backend="process", workers=1, seed=0) as pool:
        pool.reset()
        with pytest.raises(EnvError, match=r"slot 1.*info.*lock"):
            pool.step([0, 0])
        # The other slot goes on, and its infos are those of its own last step.
        step = pool.step([0], slots=[0])
        assert step.infos.of(0) == {"lock": "a lock"}
        assert pool.reset(slots=[1]).valid.all()


@pytest.mark.parametrize("backend", ["serial", "thread"])
def test_an_info_that_cannot_be_pickled_is_handed_over_in_one_process(
    make_pool: MakePool,
) -> None:
    lock = threading.Lock()
    pool = make_pool(lambda: Talker([{"lock": lock}]), 2)
    assert pool.reset().infos.of(1)["lock"] is lock
