"""What happens at the end of an episode, in every mode and any mixture of them."""

from __future__ import annotations

import functools
import itertools
import random
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from corral import Pool
from corral.errors import OrderError

from .envs import REWARDS, Countdown
from .reference import ReferenceSlot, Row, assert_same_rows, drive, row_of

ROOT = 7
SLOTS = 3
MODES = ("next_step", "same_step", "off", "hold")
Command = tuple[str, int]
"""An autoreset mode or "reset", and the action."""


@pytest.fixture(scope="module")
def pools() -> Any:
    """One pool per backend and kind of reward; every test starts it from its root."""
    opened: dict[tuple[str, str], Pool] = {}

    def pool_for(backend: str, reward: str) -> Pool:
        key = backend, reward
        if key not in opened:
            workers = 1 if backend == "serial" else 2
            make = functools.partial(Countdown, REWARDS[reward])
            opened[key] = Pool(make, SLOTS, backend=backend, workers=workers, seed=ROOT)
        return opened[key]

    yield pool_for
    for pool in opened.values():
        pool.close()


PoolFor = Callable[[str, str], Pool]


def trim(row: Row) -> Row:
    """Without the env's own count of episodes, which a shared pool does not restart."""
    row.info = {key: value for key, value in row.info.items() if key != "episode"}
    return row


def script(slot: int, reward: str, steps: int, seed: int) -> tuple[list[Command], Any]:
    """Commands in any order that has a meaning, and the rows they should give."""
    chance = random.Random(f"{seed} {slot}")
    reference = ReferenceSlot(lambda: Countdown(REWARDS[reward]), slot, ROOT)
    commands: list[Command] = [("reset", 0)]
    rows = [reference.reset()]
    for _ in range(steps):
        kind = chance.choice(("reset", *MODES, *MODES))
        if reference.over and kind == "off":
            kind = "reset"
        action = chance.randrange(100)
        commands.append((kind, action))
        stepped = kind != "reset"
        rows.append(reference.step(action, kind) if stepped else reference.reset())
    return commands, rows


@pytest.mark.parametrize("reward", REWARDS)
def test_any_mixture_of_modes_and_resets_equals_a_plain_loop(
    backend: str, reward: str, pools: PoolFor
) -> None:
    pool = pools(backend, reward)
    scripts = [script(slot, reward, 60, seed=3) for slot in range(SLOTS)]
    rows: list[list[Row]] = [[] for _ in range(SLOTS)]
    root: int | None = ROOT
    for commands in zip(*(commands for commands, _ in scripts), strict=True):
        for kind in ("reset", *MODES):
            slots = [slot for slot in range(SLOTS) if commands[slot][0] == kind]
            if slots and kind == "reset":
                pool.send_reset(slots, seed=root)
                root = None
            elif slots:
                actions = [commands[slot][1] for slot in slots]
                pool.send(actions, slots, autoreset=kind)  # type: ignore[arg-type]
        step = pool.recv()
        assert step.slots.tolist() == list(range(SLOTS))
        for slot in range(SLOTS):
            rows[slot].append(row_of(pool.spec.observation_space, step, slot))
    for slot, (_, truth) in enumerate(scripts):
        assert_same_rows(
            [trim(row) for row in rows[slot]],
            [trim(row) for row in truth],
            f"{reward} slot {slot}",
        )


@pytest.mark.parametrize("reward", ["float", "shape (1,)"])
@pytest.mark.parametrize("mode", ["next_step", "same_step"])
def test_whole_batches_equal_a_plain_loop(
    backend: str, mode: str, reward: str, pools: PoolFor
) -> None:
    actions = [
        [(7 * slot + 13 * step) % 100 for step in range(40)] for slot in range(SLOTS)
    ]
    for min_slots in (None, 1):
        got = drive(pools(backend, reward), actions, min_slots, mode, seed=ROOT)
        for slot in range(SLOTS):
            reference = ReferenceSlot(lambda: Countdown(REWARDS[reward]), slot, ROOT)
            truth = [reference.reset()]
            truth += [reference.step(action, mode) for action in actions[slot]]
            assert_same_rows(
                [trim(row) for row in got[slot]],
                [trim(row) for row in truth],
                f"slot {slot}",
            )


def one_step_episodes(make_pool: Callable[..., Pool], **options: Any) -> Pool:
    return make_pool(functools.partial(Countdown, float, 1), 3, **options)


def test_same_step_gives_the_next_episode_and_keeps_the_last_observation(
    make_pool: Callable[..., Pool],
) -> None:
    pool = one_step_episodes(make_pool)
    first = pool.reset()
    step = pool.step([1, 2, 3])
    assert step.ended.all() and step.started.all() and step.valid.all()
    assert step.truncated.tolist() == [False, True, False]
    moved = np.arange(1, 4, dtype=np.float32)[:, None]
    assert (step.final_obs == first.obs + moved).all()
    assert (step.obs != step.final_obs).all()
    assert (step.seed != first.seed).all()
    assert [info["left"] for info in step.final_infos.values()] == [0, 0, 0]
    assert step.infos.of(0) == {"episode": 2}


def test_next_step_resets_in_a_filler_row(make_pool: Callable[..., Pool]) -> None:
    pool = one_step_episodes(make_pool, autoreset="next_step")
    first = pool.reset()
    end = pool.step([1, 2, 3])
    assert end.ended.all() and end.valid.all() and not end.started.any()
    assert (end.obs == end.final_obs).all() and (end.seed == first.seed).all()
    filler = pool.step([50, 50, 50])
    assert filler.started.all() and not filler.valid.any() and not filler.ended.any()
    assert not filler.reward.any() and not filler.episode_length.any()
    assert (filler.seed != first.seed).all()
    again = pool.step([1, 1, 1])
    assert again.valid.all() and (again.episode_length == 1).all()


def test_an_explicit_reset_right_after_an_end_is_the_only_reset(
    make_pool: Callable[..., Pool],
) -> None:
    pool = one_step_episodes(make_pool, autoreset="next_step")
    pool.reset()
    pool.step([1, 1, 1])
    reset = pool.reset(slots=[1])
    assert reset.slots.tolist() == [1]
    assert reset.started.all() and reset.valid.all() and not reset.ended.any()
    step = pool.step([5, 5, 5])
    assert step.valid.tolist() == [False, True, False]
    assert step.started.tolist() == [True, False, True]
    assert pool.get_attr("episodes") == (2, 2, 2)


def test_a_step_after_the_end_with_autoreset_off_names_the_slot(
    make_pool: Callable[..., Pool],
) -> None:
    lengths = [functools.partial(Countdown, float, longest) for longest in (9, 1, 9)]
    pool = make_pool(lengths, autoreset="off")
    pool.reset()
    end = pool.step([1, 1, 1])
    assert end.ended[1] and not end.started.any()
    with pytest.raises(OrderError, match=r"slot 1.*the episode has ended"):
        pool.step([1], slots=[1])
    assert pool.reset(slots=[1]).started.all()
    assert pool.step([1], slots=[1]).ended.all()


def test_an_episode_that_ended_under_off_is_restarted_by_the_other_modes(
    make_pool: Callable[..., Pool],
) -> None:
    pool = one_step_episodes(make_pool, autoreset="off")
    pool.reset()
    pool.step([1, 1, 1])
    pool.send([1, 1], slots=[0, 2], autoreset="same_step")
    pool.send([1], slots=[1], autoreset="next_step")
    step = pool.recv()
    assert step.started.all() and not step.valid.any()


def test_an_observation_buffer_that_is_reused_does_not_reach_into_the_past(
    make_pool: Callable[..., Pool],
) -> None:
    pool = make_pool(functools.partial(Countdown, float, 50), 2)
    kept = [pool.reset().obs] + [pool.step([1, 1]).obs for _ in range(3)]
    for before, after in itertools.pairwise(kept):
        assert (after == before + np.float32(1)).all()


def test_unknown_modes_are_refused(make_pool: Callable[..., Pool]) -> None:
    with pytest.raises(ValueError, match="autoreset is 'later'"):
        make_pool(Countdown, 1, autoreset="later")
    pool = make_pool(Countdown, 1)
    pool.reset()
    with pytest.raises(ValueError, match="autoreset is 'never'"):
        pool.send([1], autoreset="never")
    assert pool.step([1]).valid.all()
