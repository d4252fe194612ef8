"""Batches of the slots that are ready, in Gymnasium's words."""

from __future__ import annotations

import fcntl
import functools
from itertools import islice
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
from contracts.envs import Broken, Countdown, Echo, Gated
from contracts.reference import ReferenceSlot, Row, same
from gymnasium import spaces

import corral
from corral import Trajectories, make_async
from corral.errors import (
    ClosedError,
    EnvError,
    OptionError,
    OrderError,
    SpaceMismatch,
)

from .envs import Chatty
from .side_by_side import assert_same

SLOTS = 5
STEPS = 40
ROOT = 11
PLACES = [("serial", 1), ("thread", 2), ("process", 2), ("process", SLOTS)]


@pytest.fixture
def make(opened: Any) -> Any:
    """make_async on the caller's thread, closed whatever happens."""

    def make_one(*args: Any, **options: Any) -> Any:
        options.setdefault("backend", "serial")
        return opened(make_async(*args, **options))

    return make_one


# Exactness ----------------------------------------------------------------------------


def action_of(slot: int, step: int) -> int:
    return (7 * slot + 13 * step) % 100


@functools.cache
def truth_of(mode: str) -> list[list[Row]]:
    """Every slot's rows, in a plain loop."""
    trajectories = []
    for slot in range(SLOTS):
        reference = ReferenceSlot(functools.partial(Countdown, float, 6), slot, ROOT)
        rows = [reference.reset()]
        rows += [reference.step(action_of(slot, t), mode) for t in range(STEPS)]
        trajectories.append(rows)
    return trajectories


@pytest.mark.parametrize("place", PLACES, ids=lambda place: "-".join(map(str, place)))
def test_first_ready_batches_give_the_trajectories_of_a_plain_loop(
    make: Any, place: tuple[str, int]
) -> None:
    backend, workers = place
    mode = "next_step" if workers == SLOTS else "same_step"
    for size in (1, 2, 4, SLOTS):
        envs = make(
            functools.partial(Countdown, float, 6),
            SLOTS,
            size,
            backend=backend,
            workers=workers,
            autoreset=mode,
        )
        trajectories = Trajectories(envs.pool, length=STEPS)
        counts = np.zeros(SLOTS, int)
        firsts: dict[int, Any] = {}
        envs.async_reset(seed=ROOT)
        for obs, *_ in envs:
            assert len(obs) == size and len(set(envs.slots.tolist())) == size
            for fragment in trajectories.received(envs.last):
                firsts.setdefault(fragment.slot, fragment)
            if len(firsts) == SLOTS:
                break
            pairs = zip(envs.slots.tolist(), counts[envs.slots], strict=True)
            actions = np.array([action_of(*pair) for pair in pairs])
            envs.send(actions)
            trajectories.sent(actions, envs.slots)
            counts[envs.slots] += 1
        for slot, fragment in firsts.items():
            rows = truth_of(mode)[slot]
            assert same(fragment.obs, np.stack([row.obs for row in rows[:-1]]))
            assert same(fragment.next_obs[0], rows[-1].obs)
            for name in ("reward", "terminated", "truncated", "valid"):
                expected = np.array([getattr(row, name) for row in rows[1:]])
                assert same(getattr(fragment, name), expected), (size, slot, name)
            finals = [row.final_obs for row in rows[1:] if row.final_obs is not None]
            assert same(fragment.final_obs, np.stack(finals))
        envs.close()


def test_nobody_starves_when_everybody_is_always_ready(make: Any) -> None:
    envs = make(Echo, SLOTS, 2)
    taken = np.zeros(SLOTS, int)
    envs.async_reset()
    for _ in islice(envs, 50):
        taken[envs.slots] += 1
        envs.send(np.zeros(2, int))
        envs.pool.get_attr("gain")  # runs all that was sent
    assert taken.tolist() == [20] * SLOTS


def test_a_straggler_holds_nobody_up(make: Any, tmp_path: Path) -> None:
    gates = [tmp_path / f"gate-{slot}" for slot in range(3)]
    for gate in gates:
        gate.touch()
    factories = [functools.partial(Gated, str(gate)) for gate in gates]
    envs = make(factories, batch_size=2, backend="process", workers=3)
    envs.async_reset()
    envs.recv()
    with open(gates[1], "rb") as gate:
        fcntl.flock(gate, fcntl.LOCK_EX)
        while 1 not in envs.slots:  # its reset has not come back yet
            envs.step([1, 1])
        for _ in range(10):
            envs.step([2, 2])
            assert envs.slots.tolist() == [0, 2]
    assert envs.pool.recv(slots=[1]).valid.all()


def test_a_deadline_makes_batches_smaller_and_loses_no_slot(make: Any) -> None:
    envs = make(Echo, 4, 3)
    envs.async_reset()
    obs, *_ = envs.recv(within=3600)  # a whole batch is not waited for any longer
    assert len(obs) == len(envs.slots) == 3
    obs, *_ = envs.recv(within=3600)  # all that is pending
    assert len(obs) == 1 and envs.slots.tolist() == [3]
    envs.send([0], slots=[3])
    obs, *_ = envs.recv(within=0)
    assert len(obs) == 1


def test_the_fewest_slots_of_a_batch_need_a_deadline_and_pending_slots(
    make: Any,
) -> None:
    envs = make(Echo, 4, 3)
    envs.async_reset(slots=[0, 1])
    with pytest.raises(OptionError, match=r"min_slots=2\) needs within=seconds"):
        envs.recv(min_slots=2)
    with pytest.raises(OrderError, match="a batch has 3 slots, but only 2 have"):
        envs.recv(within=0.1, min_slots=3)
    assert len(envs.recv(within=0.0, min_slots=2)[0]) == 2


# What a batch is ----------------------------------------------------------------------


def test_a_batch_of_all_slots_is_what_the_vector_env_returns(
    make: Any, opened: Any
) -> None:
    options: dict[str, Any] = {"backend": "serial", "autoreset": "same_step"}
    theirs = opened(corral.make(Chatty, 4, **options))
    ours = make(Chatty, 4, **options)
    # The vector env gives slot i the seed s + i, and none to later episodes; one
    # episode is enough to compare, since its end shows the first of the next.
    theirs.reset(seed=[3, 4, 5, 6])
    ours.pool.send_reset(seeds=[3, 4, 5, 6])
    ours.recv()
    theirs.action_space.seed(1)
    for step in range(12):
        actions = theirs.action_space.sample()
        expected, got = theirs.step(actions), ours.step(actions)
        for one in (expected, got):
            one[4].pop("options", None)
        assert_same(got[1:4], expected[1:4], f"step {step}")
        if (expected[2] | expected[3]).any():
            assert_same(got[4]["final_obs"], expected[4]["final_obs"], "final_obs")
            assert_same(got[4]["final_info"], expected[4]["final_info"], "final_info")
            assert (got[4]["_final_obs"] == (expected[2] | expected[3])).all()
            return
        assert_same(got, expected, f"step {step}")
    raise AssertionError("no episode ended")


def test_spaces_and_attributes_are_those_of_one_batch(make: Any) -> None:
    envs = make(Chatty, 6, 4)
    assert (envs.num_envs, envs.batch_size) == (6, 4)
    assert envs.single_observation_space == Chatty.observation_space
    assert envs.single_action_space == Chatty.action_space
    envs.async_reset(seed=0)
    for _ in range(6):
        obs, rewards, terminations, truncations, _ = envs.recv()
        assert obs in envs.observation_space
        assert rewards.shape == terminations.shape == truncations.shape == (4,)
        envs.send(envs.action_space.sample())
    assert str(envs.layout).startswith("6 slots")
    assert not envs.closed and envs.render_mode is None
    assert envs.metadata == Chatty.metadata
    assert len(envs.stats().workers) == 1


def test_flags_and_final_observations_are_those_of_the_last_batch(make: Any) -> None:
    envs = make(functools.partial(Echo, end_after=1), 3, 2)
    envs.async_reset()
    envs.recv()
    assert envs.started.all() and envs.valid.all() and envs.slots.tolist() == [0, 1]
    envs.send([5, 6])
    *_, infos = envs.recv()  # slot 2's reset, and slot 0's first and last step
    assert envs.slots.tolist() == [0, 2] and envs.last.ended.tolist() == [True, False]
    assert envs.last.final_obs[0] == 5 and envs.started.all()
    assert infos["final_obs"].tolist() == [5, None]
    assert infos["_final_obs"].tolist() == [True, False]


def test_next_step_and_off_say_what_is_filler(make: Any) -> None:
    envs = make(functools.partial(Echo, end_after=1), 2, autoreset="next_step")
    envs.reset()
    *_, infos = envs.step([1, 2])
    assert envs.last.ended.all() and "final_obs" not in infos
    envs.step([1, 2])
    assert envs.started.all() and not envs.valid.any()
    envs = make(functools.partial(Echo, end_after=1), 2, autoreset="off")
    envs.reset()
    obs, _, terminations, _, _ = envs.step([1, 2])
    assert obs.tolist() == [1, 2] and terminations.all()
    envs.async_reset([1])
    envs.async_reset([0])
    envs.recv()
    assert envs.started.all() and envs.valid.all()


# EnvPool's and PufferLib's ways -------------------------------------------------------


def test_actions_go_to_the_slots_received_or_to_those_named(make: Any) -> None:
    envs = make(Echo, 4, 2)
    envs.async_reset()
    envs.recv()
    envs.send([30, 40])
    envs.recv()
    slots = envs.slots
    envs.recv()
    envs.send([71, 70], slots=envs.slots[::-1])
    envs.send([50, 60], slots)
    seen = {}
    for _ in range(2):
        obs, *_ = envs.recv()
        seen.update(zip(envs.slots.tolist(), obs.tolist(), strict=True))
    assert seen == {0: 70, 1: 71, 2: 50, 3: 60}


def test_reset_and_step_are_send_and_recv(make: Any) -> None:
    envs = make("CartPole-v1", 4, 2, seed=0)
    obs, infos = envs.reset(seed=3)
    assert obs.shape == (2, 4) and infos == {}
    obs, *_ = envs.step([0, 1])
    assert obs.shape == (2, 4) and envs.pool.waiting == 2


def test_a_reset_drops_what_is_under_way_and_starts_from_its_seed(make: Any) -> None:
    envs = make(Countdown, 4, 2)
    first, _ = envs.reset(seed=3)
    for _ in range(3):
        envs.step([1, 1])
    again, _ = envs.reset(seed=3)
    assert (again == first).all() and envs.started.all()


def test_the_context_manager_closes() -> None:
    with make_async(Echo, 2, backend="serial") as envs:
        envs.reset()
    assert envs.closed
    with pytest.raises(ClosedError):
        envs.recv()


# Bad input ----------------------------------------------------------------------------


@pytest.mark.parametrize("size", [0, -1, 5, 2.0, True, "2"])
def test_a_batch_size_without_a_meaning_is_refused(size: Any) -> None:
    with pytest.raises(OptionError, match=r"batch_size is .* from 1 to 4"):
        make_async(Echo, 4, size, backend="serial")


def test_recv_with_nothing_under_way_says_what_to_do(make: Any) -> None:
    envs = make(Echo, 3, 2)
    with pytest.raises(OrderError, match="0 have a pending command; call async_reset"):
        envs.recv()
    with pytest.raises(OrderError, match="no observation yet"):
        envs.send([1, 1])
    with pytest.raises(OrderError, match="no observation yet"):
        _ = envs.slots
    envs.async_reset()
    envs.recv()
    with pytest.raises(OrderError, match="2 slots, but only 1 have a pending command"):
        envs.recv()
    envs.send([1, 1])
    assert len(envs.recv()[0]) == 2


def test_actions_for_slots_that_were_not_received_are_refused(make: Any) -> None:
    envs = make(Echo, 4, 2)
    envs.async_reset()
    envs.recv()
    with pytest.raises(OrderError, match=r"slots \[2\] have a pending command"):
        envs.send([1, 1], slots=[0, 2])
    with pytest.raises(OptionError, match="slots 0 to 3"):
        envs.send([1, 1], slots=[0, 4])
    envs.send([1, 1])
    with pytest.raises(OrderError, match=r"slots \[0, 1\] have a pending command"):
        envs.send([1, 1])
    with pytest.raises(OrderError, match=r"slots \[0\] have a pending command"):
        envs.async_reset([0])


def test_a_wrong_batch_of_actions_is_refused_and_nothing_sent(make: Any) -> None:
    envs = make(Echo, 4, 2)
    envs.async_reset()
    envs.recv()
    for wrong in ([1, 1, 1], [0.5, 0.5], None, 1):
        with pytest.raises(SpaceMismatch, match="actions"):
            envs.send(wrong)
    envs.send([1, 2])
    assert envs.pool.waiting == 4


def test_an_env_that_raises_is_named_and_can_be_reset(make: Any) -> None:
    factories = [Broken, functools.partial(Broken, "step raises"), Broken]
    envs = make(factories, batch_size=2)
    envs.async_reset()
    envs.recv()
    envs.send([0, 0])
    envs.recv()
    with pytest.raises(EnvError, match=r"slot 1.*divided the sea"):
        while True:
            envs.send([0, 0])
            envs.recv()
    envs.async_reset()
    assert len(envs.recv()[0]) == 2


def test_a_space_of_no_fixed_size_comes_in_batches_too(make: Any) -> None:
    make_text = functools.partial(Echo, spaces.Text(5))
    envs = make(make_text, 3, 2)
    envs.async_reset()
    envs.recv()
    envs.send(("ab", "cde"))
    seen: list[str] = []
    for _ in range(2):
        obs, *_ = envs.recv()
        seen += obs
        envs.send(("x",) * 2)
    assert {"ab", "cde"} <= set(seen)


def test_registered_ids_and_options_reach_the_pool(make: Any) -> None:
    envs = make(
        "CartPole-v1",
        num_envs=2,
        batch_size=1,
        wrappers=[functools.partial(gymnasium.wrappers.TimeLimit, max_episode_steps=3)],
    )
    envs.async_reset(seed=0)
    lengths = []
    for _, _, _, truncations, _ in islice(envs, 12):
        envs.send([0])
        if truncations.any():
            lengths += envs.last.episode_length.tolist()
    assert lengths and set(lengths) == {3}
