"""Steps in any order become the rows that a plain loop over each slot would write."""

from __future__ import annotations

import copy
import functools
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pytest
from api.envs import Wordy
from contracts.envs import Countdown, Mixed, sampled
from contracts.reference import ReferenceSlot, Row, part_of, same, stored
from gymnasium import spaces
from hypothesis import given, settings
from hypothesis import strategies as st

from corral import Pool, Trajectories
from corral.errors import EnvError, OptionError, OrderError, SpaceMismatch
from corral.rollouts.trajectories import Trajectory

ROOT = 5
SLOTS = 3
MAKERS: dict[str, Callable[[], Any]] = {
    "countdown": functools.partial(Countdown, float, 5),
    "mixed": Mixed,
}


# The truth, written down by hand ------------------------------------------------------


@dataclass
class Transition:
    """What is known of one row, and what followed it."""

    number: int
    before: Row
    action: Any
    after: Row


@dataclass
class Diary:
    """One slot in a plain loop: the rows it would have written."""

    slot: int
    make: Callable[[], Any]
    rows: list[Transition] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.env = ReferenceSlot(self.make, self.slot, ROOT)
        self.current = self.env.reset()

    def reset(self) -> None:
        self.current = self.env.reset()

    def step(self, action: Any, mode: str) -> None:
        after = self.env.step(action, mode)
        self.rows.append(Transition(len(self.rows), self.current, action, after))
        self.current = after

    def fragments(self, length: int) -> Iterator[list[Transition]]:
        for first in range(0, len(self.rows), length):
            yield self.rows[first : first + length]

    def episodes(self) -> Iterator[list[Transition]]:
        rows: list[Transition] = []
        for row in self.rows:
            if row.before.started:
                rows = []
            if row.after.valid:
                rows.append(row)
            if row.after.final_obs is not None:
                yield rows


def assert_same_trajectory(
    pool: Pool, got: Trajectory, rows: list[Transition], following: Row, what: str
) -> None:
    """Bit for bit."""
    assert len(got) == len(rows), what
    assert same(got.extras["number"], np.array([r.number for r in rows], np.int32))
    obs_space, action_space = pool.spec.observation_space, pool.spec.action_space
    ends = 0
    for t, row in enumerate(rows):
        assert same(part_of(obs_space, got.obs, t), row.before.obs), f"{what} obs {t}"
        action = stored(action_space, row.action)
        assert same(part_of(action_space, got.action, t), action), f"{what} action {t}"
        assert got.started[t] == row.before.started, f"{what} started {t}"
        for name in ("reward", "terminated", "truncated", "valid"):
            pair = getattr(got, name)[t].item(), getattr(row.after, name)
            assert same(*pair), f"{what} {name} {t}: {pair}"
        if row.after.final_obs is not None:
            final = part_of(obs_space, got.final_obs, ends)
            assert same(final, row.after.final_obs), f"{what} final_obs {t}"
            ends += 1
    assert ends == got.ended.sum() == count_of(got.final_obs)
    assert same(part_of(obs_space, got.next_obs, 0), following.obs), what
    assert got.next_started == following.started, what


def count_of(batch: Any) -> int:
    while not isinstance(batch, np.ndarray):
        batch = next(iter(batch.values() if isinstance(batch, dict) else batch))
    return len(batch)


# Any order ----------------------------------------------------------------------------


@dataclass
class Driver:
    """Sends to and receives from slots as it is told, and keeps every diary."""

    pool: Pool
    make: Callable[[], Any]
    mode: str
    length: int | None

    def __post_init__(self) -> None:
        self.trajectories = Trajectories(self.pool, self.length)
        self.diaries = [Diary(slot, self.make) for slot in range(SLOTS)]
        self.got: list[list[Trajectory]] = [[] for _ in range(SLOTS)]
        self.under_way: set[int] = set(range(SLOTS))
        self.pool.send_reset(seed=ROOT)

    def send(self, slots: list[int]) -> None:
        """Step these, or reset them where nothing else has a meaning."""
        over = [slot for slot in slots if self.diaries[slot].env.over]
        if self.mode == "off" and over:
            self.reset(over)
            slots = [slot for slot in slots if slot not in over]
        if not slots:
            return
        space = self.pool.spec.action_space
        actions = [
            sampled(space, 31 * slot + len(self.diaries[slot].rows)) for slot in slots
        ]
        self.pool.send(actions, slots)
        numbers = [len(self.diaries[slot].rows) for slot in slots]
        self.trajectories.sent(actions, slots, number=np.array(numbers, np.int32))
        for slot, action in zip(slots, actions, strict=True):
            self.diaries[slot].step(action, self.mode)
        self.under_way.update(slots)

    def reset(self, slots: list[int]) -> None:
        self.pool.send_reset(slots)
        for slot in slots:
            self.diaries[slot].reset()
        self.under_way.update(slots)

    def receive(self, slots: list[int]) -> None:
        step = self.pool.recv(slots=slots)
        for trajectory in self.trajectories.received(step):
            self.got[trajectory.slot].append(trajectory)
        self.under_way.difference_update(slots)

    def check(self) -> None:
        if self.under_way:
            self.receive(sorted(self.under_way))
        rest = self.trajectories.rest() if self.length is not None else []
        for slot, diary in enumerate(self.diaries):
            if self.length is None:
                truth = list(diary.episodes())
            else:
                truth = list(diary.fragments(self.length))
            got = [*self.got[slot], *(one for one in rest if one.slot == slot)]
            assert len(got) == len(truth), f"slot {slot}"
            for number, rows in enumerate(truth):
                complete = number < len(self.got[slot])
                following = rows[-1].after if complete else diary.current
                what = f"slot {slot}, trajectory {number}"
                assert_same_trajectory(self.pool, got[number], rows, following, what)


@functools.cache
def pool_of(name: str, mode: str) -> Pool:
    return Pool(MAKERS[name], SLOTS, backend="serial", autoreset=mode, seed=ROOT)


@pytest.fixture(scope="module", autouse=True)
def close_pools() -> Iterator[None]:
    yield
    for name in MAKERS:
        for mode in ("same_step", "next_step", "off"):
            pool_of(name, mode).close()
    pool_of.cache_clear()


@pytest.mark.parametrize("name", MAKERS)
@pytest.mark.parametrize("mode", ["same_step", "next_step", "off"])
@settings(max_examples=20, deadline=None, database=None)
@given(data=st.data())
def test_any_order_of_results_gives_the_rows_of_a_plain_loop(
    name: str, mode: str, data: st.DataObject
) -> None:
    length = data.draw(st.sampled_from([None, 1, 2, 3, 7, 40]), "length")
    driver = Driver(pool_of(name, mode), MAKERS[name], mode, length)
    chance = data.draw(st.randoms(use_true_random=True), "chance")
    try:
        for _ in range(data.draw(st.integers(1, 60), "commands")):
            idle = [slot for slot in range(SLOTS) if slot not in driver.under_way]
            verbs = [driver.receive] * bool(driver.under_way)
            verbs += ([driver.send] * 9 + [driver.reset]) * bool(idle)
            verb = chance.choice(verbs)
            among = sorted(driver.under_way) if verb == driver.receive else idle
            verb(chance.sample(among, chance.randint(1, len(among))))
        driver.check()
    finally:
        if driver.pool.waiting:
            driver.pool.recv()


def test_actions_under_way_outlive_a_look_at_the_rest() -> None:
    pool = pool_of("countdown", "same_step")
    driver = Driver(pool, MAKERS["countdown"], "same_step", 9)
    everybody = list(range(SLOTS))
    driver.receive(everybody)
    for _ in range(4):
        driver.send(everybody)
        driver.receive(everybody)
    driver.send(everybody)
    rest = driver.trajectories.rest()
    assert [(one.slot, len(one)) for one in rest] == [(0, 4), (1, 4), (2, 4)]
    driver.receive(everybody)
    rest += driver.trajectories.rest()
    for trajectory in rest:
        first = trajectory.extras["number"][0]
        rows = driver.diaries[trajectory.slot].rows[first:][: len(trajectory)]
        assert_same_trajectory(pool, trajectory, rows, rows[-1].after, "the rest")
    assert sum(map(len, rest)) == 5 * SLOTS


# Spaces, dtypes, memory ---------------------------------------------------------------


def test_observations_of_no_fixed_size_are_kept() -> None:
    with Pool(Wordy, 2, backend="serial", seed=0) as pool:
        trajectories = Trajectories(pool, length=3)
        step = pool.reset()
        trajectories.received(step)
        seen = [step.obs]
        for _ in range(3):
            trajectories.sent([1, 0])
            step = pool.step([1, 0])
            seen.append(step.obs)
            fragments = trajectories.received(step)
    assert [fragment.slot for fragment in fragments] == [0, 1]
    for slot, fragment in enumerate(fragments):
        for key in ("text", "many", "one"):
            before = tuple(obs[key][slot] for obs in seen[:-1])
            assert same_words(fragment.obs[key], before)
            assert same_words(fragment.next_obs[key], (seen[-1][key][slot],))


def same_words(one: Any, other: Any) -> bool:
    return repr(one) == repr(other)


class Pusher(Countdown):
    """Takes an array for an action."""

    action_space = spaces.Box(-1, 1, (1,), np.float32)

    def step(self, action: Any) -> Any:
        return super().step(1)


def test_actions_are_kept_as_they_were_sent() -> None:
    batches = np.array([[0.1]], np.float32), np.array([[0.1]], np.float64)
    with Pool(Pusher, 1, backend="serial") as pool:
        trajectories = Trajectories(pool, length=2)
        trajectories.received(pool.reset())
        for actions in batches:
            trajectories.sent(actions)
            fragments = trajectories.received(pool.step(actions))
    assert fragments[0].action.dtype == np.float64
    assert fragments[0].action[:, 0].tolist() == [float(np.float32(0.1)), 0.1]


def test_a_trajectory_owns_its_memory() -> None:
    with Pool(Countdown, 2, backend="serial", copy=False, seed=0) as pool:
        trajectories = Trajectories(pool, length=2)
        trajectories.received(pool.reset())
        actions, values = np.array([1, 3]), np.array([0.5, 0.25])
        for _ in range(2):
            trajectories.sent(actions, value=values)
            fragments = trajectories.received(pool.step(actions))
        kept = copy.deepcopy(fragments)
        values[:] = actions[:] = 9
        for _ in range(5):
            trajectories.sent(actions, value=values)
            trajectories.received(pool.step(actions))
    for now, before in zip(fragments, kept, strict=True):
        for name in ("obs", "action", "final_obs", "next_obs", "extras"):
            assert same(getattr(now, name), getattr(before, name)), name


# Episodes that are not whole ----------------------------------------------------------


def test_an_episode_not_seen_from_its_start_is_left_out() -> None:
    make = functools.partial(Countdown, float, 4)
    with Pool(make, 1, backend="serial", seed=2) as pool:
        pool.reset()
        while pool.step([1]).ended.any():
            pass  # now in the middle of an episode
        trajectories = Trajectories(pool)
        episodes = []
        step = pool.step([1])
        while step.ended.any():
            step = pool.step([1])
        ended = 0
        while ended < 4:
            episodes += trajectories.received(step)
            trajectories.sent([1])
            step = pool.step([1])
            ended += int(step.ended.sum())
        episodes += trajectories.received(step)
    assert len(episodes) == 3
    for episode in episodes:
        assert episode.started.tolist() == [True] + [False] * (len(episode) - 1)
        assert episode.ended.tolist() == [False] * (len(episode) - 1) + [True]


class Fragile(Countdown):
    """Breaks when it is given 99."""

    def step(self, action: Any) -> Any:
        if int(action) == 99:
            raise RuntimeError("broke")
        return super().step(action)


@pytest.mark.parametrize("length", [4, None])
def test_an_action_whose_outcome_never_came_leaves_no_row(length: int | None) -> None:
    make = functools.partial(Fragile, float, 1)
    with Pool(make, 2, backend="serial", seed=1) as pool:
        trajectories = Trajectories(pool, length)
        got = trajectories.received(pool.reset())
        trajectories.sent([99, 7])
        with pytest.raises(EnvError, match="slot 0"):
            pool.step([99, 7])
        got += trajectories.received(pool.reset())
        for number in range(4):
            trajectories.sent([number, number])
            got += trajectories.received(pool.step([number, number]))
    assert sorted({one.slot for one in got}) == [0, 1]
    for slot in (0, 1):
        actions = np.concatenate([one.action for one in got if one.slot == slot])
        assert actions.tolist() == [0, 1, 2, 3]


def test_an_episode_cut_by_a_fault_is_not_a_whole_one() -> None:
    with Pool(functools.partial(Countdown, float, 9), 1, backend="serial") as pool:
        whole, pieces = Trajectories(pool), Trajectories(pool, length=1)
        for trajectories in (whole, pieces):
            trajectories.received(pool.reset())
            trajectories.sent([1])
        yes, no = np.array([True]), np.array([False])
        # What a slot says that was restarted after its env had failed.
        cut = replace(pool.reset(), truncated=yes, started=yes, valid=no)
        assert whole.received(cut) == []
        (piece,) = pieces.received(cut)
    assert piece.truncated.all() and not piece.valid.any() and piece.next_started


# Bad input ----------------------------------------------------------------------------


@pytest.fixture
def told() -> Iterator[Trajectories]:
    """Two slots, reset and received."""
    with Pool(Countdown, 2, backend="serial", seed=0) as pool:
        trajectories = Trajectories(pool, length=4)
        trajectories.received(pool.reset())
        yield trajectories


def test_actions_to_a_slot_that_was_not_received_are_refused() -> None:
    with Pool(Countdown, 2, backend="serial") as pool:
        trajectories = Trajectories(pool)
        trajectories.received(pool.reset(slots=[1]))
        with pytest.raises(OrderError, match=r"slots \[0\] before any step"):
            trajectories.sent([1, 1])


def test_actions_told_twice_are_refused(told: Trajectories) -> None:
    told.sent([1], slots=[1])
    with pytest.raises(OrderError, match=r"slots \[1\] twice"):
        told.sent([1, 1])


def test_a_batch_that_does_not_fit_is_refused_and_not_kept(told: Trajectories) -> None:
    with pytest.raises(SpaceMismatch, match="actions has shape"):
        told.sent([1, 2, 3])
    with pytest.raises(OptionError, match="slots 0 to 1"):
        told.sent([1], slots=[2])
    with pytest.raises(
        OptionError, match=r"\[.value.\] has shape \(3,\); expected \(2"
    ):
        told.sent([1, 1], value=np.zeros(3))
    told.sent([1, 1], value=np.zeros(2))


def test_extras_keep_their_names_and_shapes(told: Trajectories) -> None:
    told.sent([1], slots=[0], value=np.zeros((1, 2)))
    with pytest.raises(OptionError, match=r"extras are \['log_prob'\]; before"):
        told.sent([1], slots=[1], log_prob=np.zeros(1))
    with pytest.raises(
        OptionError, match=r"extras\['value'\] has shape \(3,\) per slot; before"
    ):
        told.sent([1], slots=[1], value=np.zeros((1, 3)))


@pytest.mark.parametrize("length", [0, -3, 2.5, True, "3"])
def test_a_length_without_a_meaning_is_refused(length: Any) -> None:
    with (
        Pool(Countdown, 1, backend="serial") as pool,
        pytest.raises(OptionError, match="length is"),
    ):
        Trajectories(pool, length=length)
