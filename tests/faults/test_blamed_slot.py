"""A shard is walked to and fro; whichever way it was walked, the right slot is blamed.

One worker runs four slots. Even commands are walked upwards, odd ones downwards, so the
slots that were done before a death lie on different sides of the one that died.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from marked_env import FINE, HANG, KILL, LEAVE, RAISE, Marked

import corral
from corral import Pool
from corral.errors import EnvError, WorkerDied

BEFORE = {"upwards": 1, "downwards": 2}
"""Commands before the one that fails; the reset is one of them."""


def make(**options: Any) -> Pool:
    settings = {"num_envs": 4, "workers": 1, "backend": "process", "seed": 3}
    return Pool(Marked, **settings, **options)


def batch(number: int, **what: int) -> Any:
    """Actions that tell slots and steps apart: slot 2's fifth is 520 + what."""
    chosen = [what.get(f"s{slot}", FINE) for slot in range(4)]
    return np.array([10 * (10 * number + slot) + chosen[slot] for slot in range(4)])


def warm(pool: Pool, way: str) -> int:
    """Reset, and step until the next command goes that way; returns its number."""
    pool.reset()
    for number in range(1, BEFORE[way]):
        pool.step(batch(number))
    return BEFORE[way]


def earlier(way: str, slot: int) -> list[int]:
    """The slots walked before this one."""
    return list(range(slot)) if way == "upwards" else list(range(slot + 1, 4))


@pytest.mark.parametrize("way", BEFORE)
@pytest.mark.parametrize(("deed", "slot"), [(KILL, 0), (KILL, 1), (KILL, 3), (HANG, 1)])
def test_a_death_is_blamed_on_the_slot_it_came_from(way: str, slot: int, deed: int):
    limits = {"step_timeout": 0.3} if deed == HANG else {}
    with make(on_fault="restart", **limits) as pool:
        number = warm(pool, way)
        step = pool.step(batch(number, **{f"s{slot}": deed}))
        (fault,) = pool.faults
        assert (fault.slot, fault.step) == (slot, number)
        assert fault.last_actions[-1] == batch(number, **{f"s{slot}": deed})[slot]
        kept = earlier(way, slot)
        assert step.slots[step.valid].tolist() == kept
        assert step.obs[kept, 0].tolist() == [10 * number + one for one in kept]
        for mate in {0, 1, 2, 3} - {slot, *kept}:
            told = step.infos.of(mate)["fault"]
            assert (told.kind, told.slot, told.beside) == ("shardmate", mate, slot)
        # Those that were done are cut short one step later, with their own last action.
        step = pool.step(batch(number + 1))
        assert step.slots[~step.valid].tolist() == kept
        for mate in kept:
            told = step.infos.of(mate)["fault"]
            assert (told.kind, told.slot, told.beside) == ("shardmate", mate, slot)


@pytest.mark.parametrize("way", BEFORE)
@pytest.mark.parametrize("deed", [RAISE, LEAVE])
@pytest.mark.parametrize("backend", ["thread", "process"])
def test_several_that_raise_are_told_in_the_order_of_slots(way, deed, backend):
    settings = {"num_envs": 4, "workers": 1, "seed": 3}
    with Pool(Marked, backend=backend, **settings) as pool:
        number = warm(pool, way)
        with pytest.raises(EnvError) as caught:
            pool.step(batch(number, s1=deed, s3=deed))
        faults = caught.value.faults
        assert [fault.slot for fault in faults] == [1, 3]
        assert caught.value.fault.slot == 1
        for fault in faults:
            assert fault.step == number
            assert fault.last_actions[-1] == 10 * (10 * number + fault.slot) + deed
        step = caught.value.step
        assert step.slots.tolist() == [0, 2]
        assert step.obs[:, 0].tolist() == [10 * number, 10 * number + 2]


@pytest.mark.parametrize("way", BEFORE)
def test_envs_that_raise_are_restarted_and_the_rest_goes_on(way: str) -> None:
    with make(on_fault="restart") as pool:
        number = warm(pool, way)
        step = pool.step(batch(number, s0=RAISE, s2=LEAVE))
        assert step.valid.tolist() == [False, True, False, True]
        assert step.obs[[1, 3], 0].tolist() == [10 * number + 1, 10 * number + 3]
        assert sorted(fault.slot for fault in pool.faults) == [0, 2]
        step = pool.step(batch(number + 1))
        assert step.valid.all()
        assert step.obs[:, 1].tolist() == [1, number + 1, 1, number + 1]


@pytest.mark.parametrize("way", BEFORE)
@pytest.mark.parametrize("slot", [0, 3])
@pytest.mark.parametrize(("deed", "kind"), [(RAISE, EnvError), (KILL, WorkerDied)])
def test_a_replay_is_of_the_slot_that_failed(
    way: str, slot: int, deed: int, kind: type, tmp_path: Path
) -> None:
    with make() as pool:
        number = warm(pool, way)
        with pytest.raises(kind) as caught:
            pool.step(batch(number, **{f"s{slot}": deed}))
    fault = caught.value.fault
    assert (fault.slot, fault.step) == (slot, number)
    fault.save(tmp_path / "fault.zip")
    with corral.replay(tmp_path / "fault.zip", up_to="before") as replayed:
        assert replayed.action == batch(number, **{f"s{slot}": deed})[slot]
        assert replayed.env.unwrapped._steps == number - 1
