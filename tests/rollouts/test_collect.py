"""Rollouts are what a plain loop over each slot would write, in every mode."""

from __future__ import annotations

import copy
import functools
import gc
import itertools
import os
import sys
import weakref
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Any

import gymnasium
import numpy as np
import pytest
from contracts.envs import Countdown, Mixed
from contracts.reference import same
from gymnasium import spaces
from hypothesis import given, settings
from hypothesis import strategies as st
from plain_loop import PlainLoop, Thinker, TrueRow, assert_same_rollout

import corral
from corral import Collector, Decision, Pool, Rollout, Step, rollouts
from corral.errors import EnvError, OptionError, OrderError, SpaceMismatch

ROOT = 3
SLOTS = 5
ROWS = (7, 1, 12)
CASES: dict[str, Callable[[], Any]] = {
    "countdown": functools.partial(Countdown, float, 5),
    "mixed": Mixed,
    "cartpole": functools.partial(gymnasium.make, "CartPole-v1", max_episode_steps=9),
}
PLACES = [("serial", 1), ("thread", 2), ("process", 1), ("process", 3)]
MODES: dict[str, dict[str, Any]] = {
    "sync": {},
    "two_groups": {"mode": "two_groups"},
    "first": {"mode": "first_ready", "min_slots": 1},
    "half": {"mode": "first_ready"},
    "all": {"mode": "first_ready", "min_slots": SLOTS},
}


# Against a plain loop -----------------------------------------------------------------


@functools.cache
def truth_of(
    name: str, autoreset: str
) -> list[tuple[list[list[TrueRow]], list[PlainLoop]]]:
    """What three rollouts are, and where the loops were after each."""
    loops = [PlainLoop(CASES[name], slot, ROOT, autoreset) for slot in range(SLOTS)]
    truth = []
    for rows in ROWS:
        taken = [[loop.row() for _ in range(rows)] for loop in loops]
        truth.append((taken, [copy.copy(loop) for loop in loops]))
    ends = [row for taken, _ in truth for rows in taken for row in rows]
    assert any(row.bootstrap for row in ends)
    assert any(row.after.terminated for row in ends) or name == "cartpole"
    return truth


@pytest.mark.parametrize("autoreset", ["same_step", "next_step"])
@pytest.mark.parametrize("place", PLACES, ids=lambda place: "-".join(map(str, place)))
@pytest.mark.parametrize("name", CASES)
def test_rollouts_equal_a_plain_loop_bit_for_bit(
    name: str, place: tuple[str, int], autoreset: Any
) -> None:
    backend, workers = place
    with Pool(
        CASES[name],
        SLOTS,
        backend=backend,
        workers=workers,
        autoreset=autoreset,
        seed=ROOT,
    ) as pool:
        for options in (*MODES.values(), {"act_in": "workers"}):
            collector = Collector(pool, Thinker(pool), **options)
            for rows, (taken, loops) in zip(
                ROWS, truth_of(name, autoreset), strict=True
            ):
                assert_same_rollout(pool, collector.collect(rows), taken, loops)


@settings(max_examples=30, deadline=None, database=None)
@given(data=st.data())
def test_any_cut_into_rollouts_and_any_modes_give_the_same_rows(
    data: st.DataObject,
) -> None:
    lengths = data.draw(st.lists(st.integers(1, 6), min_size=1, max_size=5), "lengths")
    autoreset = data.draw(st.sampled_from(["same_step", "next_step"]), "autoreset")
    pool = serial_pool(autoreset)
    whole = Collector(pool, Thinker(pool)).collect(sum(lengths))
    collector = Collector(pool, Thinker(pool))
    parts = []
    for length in lengths:
        mode = data.draw(st.sampled_from(list(MODES.values())), "mode")
        collector.choose(mode.get("mode", "sync"), mode.get("min_slots"))
        parts.append(collector.collect(length))
    for name in ("obs", "action", "reward", "started", "valid", "bootstrap"):
        pieces = np.concatenate([getattr(part, name) for part in parts])
        assert same(pieces, getattr(whole, name)), name
    assert same(np.concatenate([part.final_obs for part in parts]), whole.final_obs)
    assert same(parts[-1].next_carry, whole.next_carry)
    assert sum(len(part.episodes) for part in parts) == len(whole.episodes)
    for part, following in itertools.pairwise(parts):
        assert same(part.next_obs, following.obs[0])
        assert same(part.next_carry, following.first_carry)


@functools.cache
def serial_pool(autoreset: Any) -> Pool:
    make = functools.partial(Countdown, float, 5)
    return Pool(make, SLOTS, backend="serial", autoreset=autoreset, seed=ROOT)


@pytest.fixture(scope="module", autouse=True)
def close_pools() -> Iterator[None]:
    yield
    for autoreset in ("same_step", "next_step"):
        serial_pool(autoreset).close()
    serial_pool.cache_clear()


# Who is asked about -------------------------------------------------------------------


def batches_of(mode: str, **options: Any) -> list[list[int]]:
    with Pool(Countdown, 6, backend="thread", workers=2, seed=0) as pool:
        policy = Thinker(pool)
        Collector(pool, policy, mode=mode, **options).collect(4)
    return policy.batches


def test_sync_asks_about_all_slots_at_once() -> None:
    assert batches_of("sync") == [list(range(6))] * 4


def test_two_groups_take_turns() -> None:
    one, other = [0, 1, 3], [2, 4, 5]
    assert batches_of("two_groups") == [one, other] * 4


def test_first_ready_asks_about_as_many_as_it_waited_for() -> None:
    batches = batches_of("first_ready", min_slots=2)
    assert batches[0] == list(range(6))
    asked = [slot for batch in batches for slot in batch]
    assert sorted(asked) == sorted(list(range(6)) * 4)


# What a policy is given ---------------------------------------------------------------


class Copycat:
    """Keeps what it was shown of the step before; acts on a slot's own numbers."""

    def act(self, step: Step, carry: Any, rng: Any) -> Decision:
        action = (rng.random()[:, 0] * 100).astype(np.int64)
        return Decision(action, extras={"last": np.array(step.previous_action)})


@pytest.mark.parametrize("mode", MODES)
def test_the_action_before_is_known_and_zero_where_an_episode_starts(mode: str) -> None:
    pool = serial_pool("same_step")
    collector = Collector(pool, Copycat(), **MODES[mode])
    rollouts = [collector.collect(4), collector.collect(5)]
    action = np.concatenate([rollout.action for rollout in rollouts])
    started = np.concatenate([rollout.started for rollout in rollouts])
    last = np.concatenate([rollout.extras["last"] for rollout in rollouts])
    expected = np.where(started[1:], 0, action[:-1])
    assert (last[0] == 0).all() and started[1:].any() and expected.any()
    assert (last[1:] == expected).all()


@pytest.mark.parametrize("kind", ["random", "normal"])
def test_what_a_row_draws_does_not_depend_on_the_batch(kind: str) -> None:
    class Drawer:
        def act(self, step: Step, carry: Any, rng: Any) -> Decision:
            many, one = getattr(rng, kind)(3), getattr(rng, kind)()
            huge = getattr(rng, kind)(100)[:, :2]
            own = np.array([rng[row].integers(1000) for row in range(len(rng))])
            extras = {"many": many, "one": one, "huge": huge, "own": own}
            return Decision(own % 2, extras=extras)

    drawn = [
        Collector(serial_pool("same_step"), Drawer(), **options).collect(60).extras
        for options in MODES.values()
    ]
    for other in drawn[1:]:
        assert same(other, drawn[0])
    assert len(np.unique(drawn[0]["many"])) == drawn[0]["many"].size


def test_infos_are_there_in_every_row() -> None:
    class Reader:
        def act(self, step: Step, carry: Any, rng: Any) -> Decision:
            infos = step.infos.to_list(len(step))
            keys = [sorted(info) for info in infos]
            told = np.array(["left" in key or "episode" in key for key in keys])
            return Decision(np.ones(len(step), int), extras={"told": told})

    for options in MODES.values():
        collector = Collector(serial_pool("same_step"), Reader(), **options)
        for rows in (2, 3):
            assert collector.collect(rows).extras["told"].all()


class Quiet:
    """Does the same whatever it sees."""

    def act(self, step: Step, carry: Any, rng: Any) -> Decision:
        return Decision(np.ones(len(step), np.int64))


def test_observations_of_no_fixed_size_are_collected() -> None:
    from api.envs import Wordy

    rollouts = []
    with Pool(Wordy, 3, backend="serial", seed=0) as pool:
        for options in MODES.values():
            options = {**options, "min_slots": None}
            rollouts.append(Collector(pool, Quiet(), **options).collect(6))
    assert rollouts[0].obs["text"].shape == (6, 3)
    assert rollouts[0].obs["text"].dtype == object
    assert len({repr(rollout.obs) for rollout in rollouts}) == 1


def test_wide_actions_are_kept_as_they_were_sent() -> None:
    class Pusher(Countdown):
        action_space = spaces.Box(-1, 1, (1,), np.float32)

        def step(self, action: Any) -> Any:
            return super().step(1)

    class Widening:
        calls = 0

        def act(self, step: Step, carry: Any, rng: Any) -> Decision:
            self.calls += 1
            dtype = np.float32 if self.calls < 3 else np.float64
            return Decision(np.full((len(step), 1), 0.1, dtype))

    with Pool(Pusher, 2, backend="serial", seed=0) as pool:
        rollout = Collector(pool, Widening()).collect(4)
    assert rollout.action.dtype == np.float64
    narrow = float(np.float32(0.1))
    assert rollout.action[:, 0, 0].tolist() == [narrow, narrow, 0.1, 0.1]


def test_extras_lose_nothing_to_the_first_of_their_kind() -> None:
    tenth = np.full(2, 0.1)
    says = (tenth.astype(np.float32), tenth, np.ones(2, int), [0.5, 0.5])
    policy = Says(*(Decision(ACTION, extras={"value": value}) for value in says))
    with Pool(Countdown, 2, backend="serial", seed=0) as pool:
        value = Collector(pool, policy).collect(4).extras["value"]
    assert value[:, 0].tolist() == [float(np.float32(0.1)), 0.1, 1.0, 0.5]


# Carries ------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", ["sync", "two_groups", "first_ready"])
def test_a_carry_of_torch_tensors_made_in_inference_mode_works(mode: str) -> None:
    torch = pytest.importorskip("torch")

    class Counter:
        def initial_carry(self, rows: int) -> Any:
            return (torch.zeros(rows, 2), [torch.zeros(rows, dtype=torch.int64)])

        def act(self, step: Step, carry: Any, rng: Any) -> Decision:
            with torch.inference_mode():
                steps, (count,) = carry
                after = (steps + 1, [count + 1])
                age = count.numpy().copy()
            return Decision(np.full(len(step), 2), after, {"age": age})

        def value(self, obs: Any, carry: Any) -> Any:
            return carry[0][:, 0].numpy()

    rollout = Collector(serial_pool("same_step"), Counter(), mode=mode).collect(20)
    age = np.zeros(SLOTS)
    for row in range(20):
        age = np.where(rollout.started[row], 0, age)
        assert (rollout.extras["age"][row] == age).all()
        age += 1
        cut = rollout.truncated[row]
        assert (rollout.bootstrap[row][cut] == age[cut]).all()
    assert rollout.truncated.any()
    assert (rollout.next_carry[1][0].numpy() == rollout.next_value).all()


def test_an_episode_starts_with_what_the_policy_says() -> None:
    class Learned:
        begin = 5.0

        def initial_carry(self, rows: int) -> Any:
            return np.full(rows, self.begin)

        def act(self, step: Step, carry: Any, rng: Any) -> Decision:
            return Decision(np.ones(len(step), int), carry + 1, {"carry": carry})

    policy = Learned()
    collector = Collector(serial_pool("same_step"), policy)
    assert (collector.collect(5).extras["carry"] >= 5).all()
    policy.begin = 50.0
    rollout = collector.collect(9)
    assert (rollout.extras["carry"][rollout.started] == 50).all()
    assert (rollout.extras["carry"][0][~rollout.started[0]] < 50).all()


# What it costs ------------------------------------------------------------------------


def test_a_row_of_all_slots_takes_few_calls_of_its_own() -> None:
    """Counted rather than timed; those of the pool are not among them."""
    room = os.path.dirname(rollouts.__file__)
    calls = []

    def count(frame: FrameType, event: str, _: Any) -> None:
        code = frame.f_code
        own = event == "call" and code.co_filename.startswith(room)
        if own and not code.co_name.startswith("<"):
            calls.append((code.co_filename, code.co_name))

    long = functools.partial(Countdown, float, 10_000)
    with Pool(long, SLOTS, backend="serial", seed=ROOT) as pool:
        collector = Collector(pool, Quiet())
        collector.collect(1)  # the first begins the episodes
        counts = []
        for rows in (1, 2):
            calls.clear()
            sys.setprofile(count)
            try:
                collector.collect(rows)
            finally:
                sys.setprofile(None)
            counts.append(len(calls))
    assert len({file for file, _ in calls}) <= 7
    assert counts[0] <= 35
    assert counts[1] - counts[0] <= 7


# Memory -------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", MODES)
def test_a_rollout_owns_its_memory(mode: str) -> None:
    pool = serial_pool("same_step")
    collector = Collector(pool, Thinker(pool), **MODES[mode])
    rollout = collector.collect(6)
    kept = copy.deepcopy(rollout)
    following = collector.collect(6)
    assert_equal(rollout, kept)
    again = Collector(pool, Thinker(pool), **MODES[mode])
    spoiled = again.collect(6)
    for array in (spoiled.obs, spoiled.action, spoiled.next_obs, spoiled.started):
        array[:] = 0
    spoiled.next_carry["trace"][:] = 0
    assert_equal(again.collect(6), following)


def test_views_are_not_kept_longer_than_they_live() -> None:
    with Pool(Countdown, 4, backend="serial", seed=ROOT, debug=True) as pool:
        for options in ({}, {"mode": "two_groups"}, {"mode": "first_ready"}):
            collector = Collector(pool, Thinker(pool), **options)
            for _ in range(3):
                collector.collect(5)


class Growing(gymnasium.Env[Any, Any]):
    """Observes more and more arrays, which do not lie in the block."""

    observation_space = spaces.Sequence(spaces.Box(0, 1, (2,), np.float32))
    action_space = spaces.Discrete(2)

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        self._seen = (np.ones(2, np.float32),)
        return self._seen, {}

    def step(self, action: Any) -> Any:
        self._seen += (np.ones(2, np.float32),)
        return self._seen, 1.0, False, False, {}


def test_arrays_of_no_fixed_size_are_no_views_and_may_be_kept() -> None:
    with Pool(Growing, 2, backend="serial", debug=True) as pool:
        for mode in ("sync", "two_groups", "first_ready"):
            rollout = Collector(pool, Quiet(), mode=mode).collect(4)
            assert (rollout.obs[-1, 0][-1] == 1.0).all()


def test_a_pool_that_is_dropped_is_not_kept_by_collect() -> None:
    pool = Pool(Countdown, 2, backend="serial", seed=0)
    corral.collect(pool, Copycat(), 3)
    gone = weakref.ref(pool)
    del pool
    gc.collect()
    assert gone() is None


def assert_equal(one: Rollout, other: Rollout) -> None:
    for name in Rollout.__slots__:
        pair = getattr(one, name), getattr(other, name)
        if name == "episodes":
            assert repr(pair[0]) == repr(pair[1])
        else:
            assert same(*pair), name


# Going on, and beginning anew ---------------------------------------------------------


def test_collect_goes_on_where_it_stopped() -> None:
    with Pool(Countdown, SLOTS, backend="serial", seed=ROOT) as pool:
        policy = Thinker(pool)
        parts = [corral.collect(pool, policy, steps) for steps in (4, 5)]
        parts.append(corral.collect(pool, policy, 3, mode="two_groups"))
    with Pool(Countdown, SLOTS, backend="serial", seed=ROOT) as pool:
        whole = corral.collect(pool, Thinker(pool), 12)
    assert same(np.concatenate([part.obs for part in parts]), whole.obs)


def test_another_policy_starts_without_memory() -> None:
    pool = serial_pool("same_step")
    collector = Collector(pool, Thinker(pool))
    collector.collect(3)
    collector.policy = Thinker(pool)
    assert not collector.collect(1).first_carry["trace"].any()


@pytest.mark.parametrize("autoreset", ["same_step", "next_step"])
@pytest.mark.parametrize("mode", MODES)
def test_a_resumed_run_goes_on_as_one_that_was_not_interrupted(
    mode: str, autoreset: Any
) -> None:
    make, options = functools.partial(Countdown, float, 5), MODES[mode]
    rollouts = []
    for interrupted in (False, True):
        with Pool(make, SLOTS, backend="serial", autoreset=autoreset, seed=8) as pool:
            collector = Collector(pool, Thinker(pool), **options)
            if not interrupted:
                collector.collect(7)
            collector.end_episodes(4)
            rollouts.append([collector.collect(11), collector.collect(5)])
    for one, other in zip(*rollouts, strict=True):
        assert_equal(one, other)
    assert rollouts[0][0].started[0].all()


def test_other_numbers_and_slots_have_other_episodes() -> None:
    seen = []
    with Pool(Countdown, SLOTS, backend="serial", seed=8) as pool:
        collector = Collector(pool, Thinker(pool))
        for number in range(4):
            collector.end_episodes(number)
            seen.append(collector.collect(2).obs[0])
    assert len(np.unique(np.concatenate(seen), axis=0)) == 4 * SLOTS


@pytest.mark.parametrize(("autoreset", "rows"), [("same_step", 5), ("next_step", 6)])
def test_episodes_that_are_ended_are_truncated_and_bootstrapped(
    autoreset: Any, rows: int
) -> None:
    rollouts = []
    make = functools.partial(Countdown, float, 5)
    with Pool(make, SLOTS, backend="serial", autoreset=autoreset, seed=ROOT) as pool:
        for number in (None, 9):
            collector = Collector(pool, Thinker(pool))
            rollouts.append(collector.collect(rows, end_episodes=number))
    plain, ended = rollouts
    running = plain.valid[-1] & ~plain.ended[-1]
    assert running.any() and not running.all()
    assert (ended.truncated[-1] == (plain.truncated[-1] | running)).all()
    assert (ended.bootstrap[-1][running] == plain.next_value[running]).all()
    assert ended.next_started.all() and not ended.next_carry["trace"].any()
    assert len(ended.final_obs) == ended.ended.sum()
    finals = ended.final_obs[-int(ended.ended[-1].sum()) :]
    assert same(finals[running[ended.ended[-1]]], plain.next_obs[running])
    assert repr(ended.episodes) == repr(plain.episodes)  # those were not done
    assert same(ended.obs, plain.obs)


def test_a_pool_that_was_stepped_outside_the_collector_is_refused() -> None:
    with Pool(Countdown, 2, backend="serial", seed=0) as pool:
        collector = Collector(pool, Copycat())
        collector.collect(3)
        pool.step([1, 1])
        with pytest.raises(OrderError, match="stepped or reset outside this collector"):
            collector.collect(3)
        collector.end_episodes(1)
        assert collector.collect(3).started[0].all()


class Fragile(Countdown):
    """Breaks when it is given 99."""

    def step(self, action: Any) -> Any:
        if int(action) == 99:
            raise RuntimeError("broke")
        return super().step(action)


@pytest.mark.parametrize("mode", MODES)
def test_after_an_error_new_episodes_are_begun(mode: str) -> None:
    class Clumsy:
        calls = 0

        def act(self, step: Step, carry: Any, rng: Any) -> Decision:
            self.calls += 1
            return Decision(np.full(len(step), 99 if self.calls == 3 else 1))

    with Pool(Fragile, SLOTS, backend="serial", seed=0) as pool:
        collector = Collector(pool, Clumsy(), **MODES[mode])
        first = collector.collect(1).obs[0]
        with pytest.raises(EnvError, match="broke"):
            collector.collect(20)
        rollout = collector.collect(5)
    assert rollout.started[0].all() and not (rollout.obs[0] == first).any()


# Bad input ----------------------------------------------------------------------------


class Says:
    """Decides as it was told, about two slots."""

    def __init__(self, *decisions: Decision, **more: Any) -> None:
        self._decisions = iter(decisions)
        for name, value in more.items():
            setattr(self, name, value)

    def act(self, step: Step, carry: Any, rng: Any) -> Decision:
        return next(self._decisions)


ACTION = np.ones(2, int)
TWO, THREE = np.zeros(2), np.zeros(3)
BAD: dict[str, tuple[Any, str]] = {
    "an action too many": (
        Says(Decision(np.ones(3, int))),
        r"actions has shape \(3,\)",
    ),
    "an extra too long": (
        Says(Decision(ACTION, extras={"value": THREE})),
        r"extras\['value'\] has shape \(3,\); expected \(2, \.\.\.\)",
    ),
    "an extra of another shape": (
        Says(
            Decision(ACTION, extras={"value": TWO}),
            Decision(ACTION, extras={"value": np.zeros((2, 3))}),
        ),
        r"extras\['value'\] has shape \(2, 3\); expected \(2\)",
    ),
    "an extra of one row": (
        Says(
            Decision(ACTION, extras={"value": TWO}),
            Decision(ACTION, extras={"value": TWO[:1]}),
        ),
        r"extras\['value'\] has shape \(1,\); expected \(2\)",
    ),
    "an extra that is new": (
        Says(
            Decision(ACTION, extras={"value": TWO}),
            Decision(ACTION, extras={"log_prob": TWO}),
        ),
        r"extras are \['log_prob'\]; before they were \['value'\]",
    ),
    "an extra that is missing": (
        Says(Decision(ACTION, extras={"value": TWO}), Decision(ACTION)),
        r"extras are \[\]; before they were \['value'\]",
    ),
    "a carry from nowhere": (
        Says(Decision(ACTION, carry=TWO)),
        r"no initial_carry\(rows\)",
    ),
    "a carry that is gone": (
        Says(Decision(ACTION), initial_carry=np.zeros),
        "received a carry but its Decision has none",
    ),
    "a carry of three rows": (
        Says(Decision(ACTION, carry=THREE), initial_carry=np.zeros),
        r"leaf of shape \(3,\); expected \(2, \.\.\.\)",
    ),
    "a value of another shape": (
        Says(
            *[Decision(ACTION)] * 3,
            value=lambda obs, carry: np.zeros((len(obs), 1)),
        ),
        r"policy.value returned shape \(\d, 1\)",
    ),
}


@pytest.mark.parametrize("name", BAD)
def test_a_decision_that_does_not_fit_is_refused(name: str) -> None:
    policy, message = BAD[name]
    with (
        Pool(Countdown, 2, backend="serial", seed=0) as pool,
        pytest.raises((OptionError, SpaceMismatch), match=message),
    ):
        Collector(pool, policy).collect(3)


def test_options_without_a_meaning_are_refused() -> None:
    with Pool(Countdown, 2, backend="serial", seed=0) as pool:
        with pytest.raises(OptionError, match="mode is 'async'; choose one of sync"):
            Collector(pool, Copycat(), mode="async")
        with pytest.raises(OptionError, match="min_slots is 3; it must be from 1 to 2"):
            Collector(pool, Copycat(), mode="first_ready", min_slots=3)
        with pytest.raises(OptionError, match="min_slots is for"):
            Collector(pool, Copycat(), min_slots=1)
        for steps in (0, 1.5, "a", None, float("inf"), float("nan")):
            with pytest.raises(OptionError, match=f"steps is {steps!r}; it must be"):
                corral.collect(pool, Copycat(), steps)  # type: ignore[arg-type]
    with (
        Pool(Countdown, 2, backend="serial", autoreset="off") as pool,
        pytest.raises(OptionError, match="no episode follows"),
    ):
        corral.collect(pool, Copycat(), 4)


def test_two_groups_of_one_slot_are_refused() -> None:
    with (
        Pool(Countdown, 1, backend="serial") as pool,
        pytest.raises(OptionError, match="two groups need at least two slots"),
    ):
        corral.collect(pool, Copycat(), 4, mode="two_groups")
