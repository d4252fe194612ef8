"""With act_in="workers" rollouts are those of a policy in the caller, bit for bit."""

from __future__ import annotations

import copy
import functools
import gc
import hashlib
import os
import weakref
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
from api.matching_env import Matching
from contracts.batched_envs import Flock
from contracts.envs import Countdown, MetaTasked, Mixed
from contracts.reference import same
from gymnasium import spaces
from plain_loop import Thinker

import corral
from corral import Collector, Decision, ObsNorm, Pool, RewardNorm, Rollout, Step
from corral.engine.pool.sites import Sites
from corral.engine.tree import mapped
from corral.errors import (
    ClosedError,
    FactoryError,
    OptionError,
    OrderError,
    PolicyError,
    SpaceMismatch,
)

PLACES = [("serial", 1), ("thread", 2), ("process", 2)]
SLOTS = 5
cartpole = functools.partial(gymnasium.make, "CartPole-v1", max_episode_steps=5)


class Drift:
    """Acts by its weights; exact, since it decides row by row."""

    def __init__(self, weight: float = 0.0) -> None:
        self.weight = np.array([weight])

    def act(self, step: Step, carry: Any, rng: Any) -> Decision:
        seen = step.obs.reshape(len(step), -1).sum(axis=1) + self.weight
        chosen = (rng.random()[:, 0] + seen > 0.5).astype(np.int64)
        return Decision(chosen, extras={"seen": seen})

    def value(self, obs: Any, carry: Any) -> Any:
        return obs.reshape(len(obs), -1).sum(axis=1) * 1.0

    def weights(self) -> dict[str, Any]:
        return {"weight": self.weight}

    def load_weights(self, weights: Any) -> None:
        self.weight = weights["weight"].copy()


def interrupt(*_: Any) -> None:
    raise KeyboardInterrupt


def drawn_task(slot: int, episode: int, rng: np.random.Generator) -> Any:
    return slot, episode, int(rng.integers(1000))


def trials() -> Any:
    return corral.Trials(Countdown(float, 3), episodes=2)


def with_norms(pool: Pool) -> dict[str, Any]:
    space = pool.spec.observation_space
    return {"obs_norm": ObsNorm(space), "reward_norm": RewardNorm(0.9)}


class Quiet:
    def __init__(self, _: Any = None) -> None:
        pass

    def act(self, step: Step, carry: Any, rng: Any) -> Decision:
        return Decision(np.ones(len(step), np.int64))


class BySlot(Quiet):
    """Explores more in later slots, and names them."""

    def act(self, step: Step, carry: Any, rng: Any) -> Decision:
        explores = rng.random()[:, 0] < step.slots / SLOTS
        names = np.array([f"slot {slot}" for slot in step.slots], object)
        return Decision(explores.astype(np.int64), extras={"name": names})


class Lottery(Quiet):
    """Draws, and keeps what it drew."""

    def act(self, step: Step, carry: Any, rng: Any) -> Decision:
        drawn = rng.random()[:, 0]
        return Decision((drawn > 0.5).astype(np.int64), extras={"drawn": drawn})


def restarting(num_envs: int) -> Any:
    """A batch that restarts its episodes itself, and whose later slots have no seed."""
    again = gymnasium.vector.AutoresetMode.SAME_STEP
    return gymnasium.vector.SyncVectorEnv([cartpole] * num_envs, autoreset_mode=again)


CASES: dict[str, dict[str, Any]] = {
    "slots": {"env": cartpole, "policy": BySlot},
    "tasks": {"env": MetaTasked, "sample_task": drawn_task},
    "trials": {"env": trials, "sample_task": drawn_task},
    "batched": {"env": functools.partial(Flock, Mixed), "batched": True},
    "words": {"env": "api.envs:Wordy", "policy": Quiet},
    "repeated": {"env": cartpole, "num_envs": 6, "repeat": 2},
}


def rollouts_of(
    act_in: str,
    place: tuple[str, int],
    policy: Callable[[Pool], Any] = Thinker,
    options: Callable[[Pool], dict[str, Any]] = lambda _: {},
    **pool_options: Any,
) -> list[Rollout]:
    """Three rollouts, the second of which ends all episodes."""
    backend, workers = place
    given = {"num_envs": SLOTS, "seed": 3, **pool_options}
    with Pool(backend=backend, workers=workers, **given) as pool:
        collector = Collector(pool, policy(pool), act_in=act_in, **options(pool))
        ends = (None, 8, None)
        return [collector.collect(7, end_episodes=number) for number in ends]


def assert_same(ours: list[Rollout], truth: list[Rollout]) -> None:
    for number, (one, other) in enumerate(zip(ours, truth, strict=True)):
        for name in Rollout.__slots__:
            pair = getattr(one, name), getattr(other, name)
            if name == "episodes":
                pair = tuple(map(told, pair[0])), tuple(map(told, pair[1]))
            assert same(*(mapped(comparable, one) for one in pair)), (number, name)


def comparable(value: Any) -> Any:
    """Objects in arrays as text: their bytes are addresses."""
    objects = isinstance(value, np.ndarray) and value.dtype == object
    return repr(value.tolist()) if objects else value


def told(episode: Any) -> dict[str, Any]:
    """All that is known of an episode; the keys of an info have no order."""
    return {name: getattr(episode, name) for name in episode.__slots__}


@pytest.mark.parametrize("autoreset", ["same_step", "next_step"])
@pytest.mark.parametrize("place", PLACES, ids=lambda place: place[0])
@pytest.mark.parametrize("name", CASES)
def test_every_kind_of_env_is_collected_as_in_the_caller(
    name: str, place: tuple[str, int], autoreset: str
) -> None:
    options = CASES[name] | {"autoreset": autoreset}
    truth = rollouts_of("caller", ("serial", 1), **options)
    assert any(len(rollout.episodes) for rollout in truth)
    assert_same(rollouts_of("workers", place, **options), truth)


@pytest.mark.parametrize("place", PLACES, ids=lambda place: place[0])
def test_slots_whose_episodes_have_no_seed_draw_as_in_the_caller(
    place: tuple[str, int],
) -> None:
    options = {"env": restarting, "batched": True, "policy": Lottery}
    found = {
        (act_in, seed): rollouts_of(act_in, place, **options, seed=seed)
        for act_in in ("caller", "workers")
        for seed in (3, 4)
    }
    assert_same(found["workers", 3], found["caller", 3])
    columns = [
        rollout.extras["drawn"][:, slot].tolist()
        for seed in (3, 4)
        for rollout in found["workers", seed]
        for slot in range(SLOTS)
    ]
    assert len({*map(tuple, columns)}) == len(columns)  # no two slots draw the same


@pytest.mark.parametrize("place", PLACES, ids=lambda place: place[0])
def test_normalisers_learn_in_the_caller_alone(place: tuple[str, int]) -> None:
    given: dict[str, Any] = {"env": cartpole, "options": with_norms}
    policy = lambda _: Drift()  # noqa: E731
    truth = rollouts_of("caller", ("serial", 1), policy, **given)
    assert truth[0].obs.dtype == np.float32 and truth[0].truncated.any()
    assert_same(rollouts_of("workers", place, policy, **given), truth)


@pytest.mark.parametrize("place", PLACES, ids=lambda place: place[0])
def test_agents_that_share_a_policy_are_collected_as_in_the_caller(
    place: tuple[str, int],
) -> None:
    rollouts = []
    for act_in, (backend, workers) in (("caller", PLACES[0]), ("workers", place)):
        envs = corral.make_shared_policy(
            Matching, 4, backend=backend, workers=workers, seed=0
        )
        with envs.pool as pool:
            collector = Collector(pool, Naming(), act_in=act_in)
            rollouts.append([collector.collect(rows) for rows in (12, 13)])
    assert_same(*reversed(rollouts))


class Naming:
    def act(self, step: Step, carry: Any, rng: Any) -> Decision:
        return Decision((step.obs.argmax(axis=1) + (rng.random()[:, 0] < 0.5)) % 3)


# Weights ------------------------------------------------------------------------------


def hashed(weights: dict[str, Any]) -> str:
    named = sorted(weights.items())
    parts = [name.encode() + array.tobytes() for name, array in named]
    return hashlib.sha256(b"".join(parts)).hexdigest()


@pytest.mark.parametrize("place", PLACES, ids=lambda place: place[0])
def test_after_updates_the_workers_have_the_learners_weights(
    place: tuple[str, int],
) -> None:
    ppo = pytest.importorskip("corral.learners.ppo")
    backend, workers = place
    with Pool(cartpole, 4, backend=backend, workers=workers, seed=0) as pool:
        spaces = pool.spec.observation_space, pool.spec.action_space
        config = ppo.PPOConfig(hidden=(8,), n_steps=8, batch_size=32, n_epochs=1)
        learner = ppo.PPO(*spaces, config)
        collector = Collector(pool, learner.policy, act_in="workers")
        before = hashed(learner.policy.weights())
        for update in range(4):
            rollout = collector.collect(8)
            assert (rollout.version == update + 1).all()
            if update < 3:
                learner.update(rollout)
        sites = collector._filler._sites  # type: ignore[union-attr]
        theirs = [hashed(weights) for weights in sites.call("weights")]
        assert theirs == [hashed(learner.policy.weights())] * len(pool.shards)
        assert before not in theirs


@pytest.mark.parametrize("act_in", ["caller", "workers"])
def test_the_version_of_a_row_counts_changes_of_the_weights(act_in: str) -> None:
    with Pool(cartpole, 2, backend="serial", seed=0) as pool:
        policy = Drift(1.0)
        collector = Collector(pool, policy, act_in=act_in)
        versions = []
        for weight in (1.0, 1.0, 2.0, 2.0, 1.0):
            policy.weight[:] = weight
            versions.append(np.unique(collector.collect(3).version).tolist())
        assert versions == [[1], [1], [2], [2], [3]]
        collector.policy = Drift(1.0)
        assert collector.collect(3).version.tolist() == [[4, 4]] * 3
        collector.policy.weight[:] = 2.0  # type: ignore[attr-defined]
        collector.end_episodes(1)
        collector.policy.weight[:] = 3.0  # type: ignore[attr-defined]
        assert collector.collect(1).version.tolist() == [[6, 6]]
        collector.policy = Fixed()
        assert not collector.collect(1).version.any()


def test_weights_of_another_shape_are_refused() -> None:
    with Pool(cartpole, 2, backend="serial", seed=0) as pool:
        policy = Drift()
        collector = Collector(pool, policy, act_in="workers")
        collector.collect(2)
        policy.weight = np.zeros(3)
        with pytest.raises(OptionError, match=r"'weight'.* shape \(3,\).* \(1,\)"):
            collector.collect(2)


class Listed(Drift):
    def weights(self) -> Any:
        return [self.weight]


class Numbered(Drift):
    def weights(self) -> Any:
        return {0: self.weight}


class NoArray:
    def __array__(self, *_: Any, **__: Any) -> Any:
        raise TypeError("got bfloat16")


class Odd(Drift):
    def weights(self) -> Any:
        return {"layer": NoArray()}


class Unread(Drift):
    weights: Any = None


@pytest.mark.parametrize("act_in", ["caller", "workers"])
@pytest.mark.parametrize(
    ("policy", "text"),
    [
        (Listed(), r"Listed.weights\(\) returned a value of type list; return a dict"),
        (
            Unread(),
            r"Unread has load_weights, but no method weights\(\); return a dict",
        ),
        (Numbered(), r"weights\(\) has the name 0; names must be text"),
        (Odd(), r"weights\(\)\['layer'\] is no array \(got bfloat16\); return arrays"),
    ],
)
def test_weights_that_are_no_named_arrays_are_refused(
    act_in: str, policy: Any, text: str
) -> None:
    with (
        Pool(cartpole, 2, backend="serial", seed=0) as pool,
        pytest.raises(OptionError, match=text),
    ):
        Collector(pool, policy, act_in=act_in).collect(2)


@pytest.mark.parametrize("place", PLACES, ids=lambda place: place[0])
def test_another_policy_acts_from_the_next_rollout_on(place: tuple[str, int]) -> None:
    found = []
    for act_in, (backend, workers) in (("caller", PLACES[0]), ("workers", place)):
        with Pool(cartpole, 4, backend=backend, workers=workers, seed=0) as pool:
            collector = Collector(pool, Drift(), act_in=act_in)
            rollouts = [collector.collect(5)]
            collector.policy = Remembering()
            rollouts += [collector.collect(5), collector.collect(5)]
            collector.policy = Drift(4.0)
            found.append([*rollouts, collector.collect(5)])
    assert_same(*found)
    assert [sorted(one.extras) for one in found[1]] == [
        *(["seen"], ["age"], ["age"], ["seen"]),
    ]


@pytest.mark.parametrize("place", PLACES, ids=lambda place: place[0])
def test_collect_acts_where_it_is_asked_to(place: tuple[str, int]) -> None:
    found, policy = [], Drift()
    for act_in, (backend, workers) in (("caller", PLACES[0]), ("workers", place)):
        with Pool(cartpole, 4, backend=backend, workers=workers, seed=0) as pool:
            found.append(
                [corral.collect(pool, policy, 5, act_in=act_in) for _ in range(3)]
            )
            elsewhere = "workers" if act_in == "caller" else "caller"
            found[-1].append(corral.collect(pool, policy, 5, act_in=elsewhere))
            with pytest.raises(OptionError, match="act_in is 'nowhere'"):
                corral.collect(pool, policy, 5, act_in="nowhere")
    assert_same(*found)
    first, *_, last = found[0]
    assert last.started[0].all()
    assert not np.array_equal(first.obs[0], last.obs[0])


class Remembering:
    def initial_carry(self, rows: int) -> Any:
        return np.zeros(rows)

    def act(self, step: Step, carry: Any, rng: Any) -> Decision:
        action = (rng.random()[:, 0] > 0.5).astype(np.int64)
        return Decision(action, carry + 1, {"age": carry})


class Fixed:
    """Without weights that can be loaded."""

    action, weights = 0, np.zeros(3)

    def act(self, step: Step, carry: Any, rng: Any) -> Decision:
        return Decision(np.full(len(step), self.action))


@pytest.mark.parametrize("place", PLACES, ids=lambda place: place[0])
def test_episodes_are_run_with_the_policy_as_it_is_now(place: tuple[str, int]) -> None:
    backend, workers = place
    with Pool(cartpole, 4, backend=backend, workers=workers, seed=0) as pool:
        run = functools.partial(corral.run_episodes, pool, episodes=6, act_in="workers")
        fixed, drift = Fixed(), Drift(-99.0)
        for action in (0, 1, 0):
            fixed.action, drift.weight[:] = action, 99.0 * (2 * action - 1)
            for policy in (fixed, drift, fixed):
                actions = [episode.action for episode in run(policy)]
                assert (np.concatenate(actions) == action).all()


class Equal(Fixed):
    """Equal to every other, and to be told from it all the same."""

    def __eq__(self, other: object) -> bool:
        return True

    __hash__ = Fixed.__hash__


def test_policies_that_compare_equal_are_two(two_workers: Pool) -> None:
    for action in (0, 1):
        policy = Equal()
        policy.action = action
        for one in corral.run_episodes(
            two_workers, policy, episodes=2, act_in="workers"
        ):
            assert (one.action == action).all()


def test_a_free_slot_takes_the_next_item_in_whichever_worker_it_is(
    tmp_path: Path,
) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    tasks = [(str(pipe), 7), *[(str(pipe), 0)] * 7]
    with Pool(Waiting, 2, backend="process", workers=2, seed=0) as pool:
        got = corral.run_episodes(pool, Quiet(), tasks=tasks, act_in="workers")
    assert [episode.return_ for episode in got] == [7, *[0] * 7]


def test_an_error_before_the_first_item_has_no_episodes_of_the_run_before(
    two_workers: Pool,
) -> None:
    run = functools.partial(corral.run_episodes, two_workers, Quiet(), act_in="workers")
    assert len(run(episodes=3)) == 3
    with pytest.raises(FactoryError, match="task of item 1 cannot be sent") as raised:
        run(tasks=[0, __import__("threading").Lock()])
    assert raised.value.episodes == ()
    run(episodes=3)
    two_workers.close()
    with pytest.raises(ClosedError) as closed:
        run(episodes=3)
    assert closed.value.episodes == ()


class Waiting(gymnasium.Env[Any, Any]):
    """Waits until as many others as its task says have been stepped."""

    observation_space = spaces.Box(0, 1, (1,), np.float32)
    action_space = spaces.Discrete(2)

    def set_task(self, task: tuple[str, int]) -> None:
        self._pipe, self._others = task

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        return np.zeros(1, np.float32), {}

    def step(self, action: Any) -> Any:
        pipe = os.open(self._pipe, os.O_RDWR)
        seen = [os.read(pipe, 1) for _ in range(self._others)]
        if not seen:
            os.write(pipe, b"x")
        # It stays open, since a pipe that is open nowhere forgets what was written.
        return np.zeros(1, np.float32), float(len(seen)), True, False, {}


@pytest.mark.parametrize("place", PLACES, ids=lambda place: place[0])
def test_a_policy_without_weights_is_sent_again_when_it_has_changed(
    place: tuple[str, int],
) -> None:
    found = []
    for act_in, (backend, workers) in (("caller", PLACES[0]), ("workers", place)):
        with Pool(cartpole, 4, backend=backend, workers=workers, seed=0) as pool:
            policy = Counter()
            collector = Collector(pool, policy, act_in=act_in)
            rollouts = [collector.collect(3)]
            policy.step = 10.0
            found.append([*rollouts, collector.collect(3), collector.collect(3)])
    assert_same(*found)
    assert found[1][1].extras["sum"].max() == 13  # it continued


class Learned(Drift):
    """Starts its episodes with what it has learned."""

    def initial_carry(self, rows: int) -> Any:
        return np.repeat(self.weight, rows)

    def act(self, step: Step, carry: Any, rng: Any) -> Decision:
        return Decision(np.ones(len(step), np.int64), carry + 1, {"carry": carry})


@pytest.mark.parametrize("place", PLACES, ids=lambda place: place[0])
def test_another_policy_starts_with_what_it_has_learned_by_then(
    place: tuple[str, int],
) -> None:
    for act_in, (backend, workers) in (("caller", PLACES[0]), ("workers", place)):
        with Pool(cartpole, 4, backend=backend, workers=workers, seed=0) as pool:
            collector = Collector(pool, Learned(), act_in=act_in)
            collector.collect(2)
            collector.policy = policy = Learned()
            policy.weight += 7.0
            carries = collector.collect(2).extras["carry"]
            assert carries.tolist() == [[7.0] * 4, [8.0] * 4]


class Counter:
    """Remembers a sum of its steps."""

    step = 1.0

    def initial_carry(self, rows: int) -> Any:
        return np.zeros(rows)

    def act(self, step: Step, carry: Any, rng: Any) -> Decision:
        action = (rng.random()[:, 0] > 0.5).astype(np.int64)
        return Decision(action, carry + self.step, {"sum": carry})


# Memory -------------------------------------------------------------------------------


@pytest.fixture
def two_workers() -> Iterator[Pool]:
    with Pool(cartpole, 4, backend="process", workers=2, seed=0) as pool:
        yield pool


def test_a_rollout_that_is_kept_is_not_overwritten(two_workers: Pool) -> None:
    collector = Collector(two_workers, Drift(), act_in="workers")
    kept = [collector.collect(6) for _ in range(5)]
    copies = [copy.deepcopy(rollout) for rollout in kept]
    collector.collect(6)
    assert_same(kept, copies)
    assert not same(kept[0].obs, kept[1].obs)


def test_the_memory_of_dropped_rollouts_is_used_again(two_workers: Pool) -> None:
    collector = Collector(two_workers, Drift(), act_in="workers")
    collector.collect(6)  # extras are not in shared memory yet
    places = set()
    for _ in range(6):
        rollout = collector.collect(6)
        places.add(rollout.obs.ctypes.data)
        del rollout
        gc.collect()
    assert len(places) <= 2


def test_rollouts_that_are_kept_hold_few_open_files(two_workers: Pool) -> None:
    collector = Collector(two_workers, Drift(), act_in="workers")
    kept = [collector.collect(2) for _ in range(4)]
    before = len(os.listdir("/proc/self/fd"))
    kept += [collector.collect(2) for _ in range(20)]
    assert len(os.listdir("/proc/self/fd")) == before
    assert len({rollout.obs.ctypes.data for rollout in kept}) == len(kept)


class Unlike:
    """Extras of worker 0 are whole numbers or fractions; the others' the opposite."""

    def __init__(self) -> None:
        self.calls = 0

    def act(self, step: Step, carry: Any, rng: Any) -> Decision:
        self.calls += 1
        context = corral.this_worker()
        first = context is not None and context.index == 0
        fraction = (self.calls > 3) == first
        value = np.full(len(step), 0.5) if fraction else np.full(len(step), 7)
        return Decision(np.zeros(len(step), np.int64), extras={"value": value})


def test_extras_of_other_dtypes_in_other_workers_are_kept(two_workers: Pool) -> None:
    collector = Collector(two_workers, Unlike(), act_in="workers")
    first, second = collector.collect(3), collector.collect(3)
    assert first.extras["value"].tolist() == [[7, 7, 0.5, 0.5]] * 3
    assert second.extras["value"].tolist() == [[0.5, 0.5, 7, 7]] * 3


class Lamp(Drift):
    """Has an attribute with the name of a method that policies may have."""

    on = True


def test_a_policy_may_have_an_attribute_named_on(two_workers: Pool) -> None:
    collector = Collector(two_workers, Lamp(), act_in="workers")
    assert collector.collect(2).valid.all()


def test_rollouts_of_other_lengths_follow_each_other(two_workers: Pool) -> None:
    collector = Collector(two_workers, Drift(), act_in="workers")
    ours = [collector.collect(rows) for rows in (3, 5, 1, 5)]
    with Pool(cartpole, 4, backend="serial", seed=0) as pool:
        other = Collector(pool, Drift())
        assert_same(ours, [other.collect(rows) for rows in (3, 5, 1, 5)])


def test_wide_actions_are_kept_as_they_were_sent() -> None:
    for place in PLACES:
        truth = rollouts_of("caller", ("serial", 1), Widening, env=Pusher)
        assert truth[0].action.dtype == np.float64
        assert_same(rollouts_of("workers", place, Widening, env=Pusher), truth)


class Pusher(Countdown):
    action_space = spaces.Box(-1, 1, (1,), np.float32)

    def step(self, action: Any) -> Any:
        return super().step(1)


class Widening:
    """Returns wide actions and extras after the first call."""

    def __init__(self, _: Any = None) -> None:
        self.calls = 0

    def act(self, step: Step, carry: Any, rng: Any) -> Decision:
        self.calls += 1
        dtype = np.float32 if self.calls == 1 else np.float64
        action = np.full((len(step), 1), 0.1, dtype)
        return Decision(action, extras={"same": action[:, 0]})


# Bad input ----------------------------------------------------------------------------


def test_other_modes_are_refused() -> None:
    with Pool(cartpole, 2, backend="serial", seed=0) as pool:
        with pytest.raises(OptionError, match='leave mode="sync"'):
            Collector(pool, Drift(), act_in="workers", mode="two_groups")
        with pytest.raises(OptionError, match="act_in is 'worker'"):
            Collector(pool, Drift(), act_in="worker")


@pytest.mark.parametrize("backend", ["serial", "thread", "process"])
def test_a_policy_that_cannot_be_sent_is_named(backend: str) -> None:
    policy = Drift()
    policy.lock = __import__("threading").Lock()  # type: ignore[attr-defined]
    with Pool(cartpole, 2, backend=backend, seed=0) as pool:
        collector = Collector(pool, policy, act_in="workers")
        with pytest.raises(FactoryError, match="policy cannot be sent") as raised:
            collector.collect(2)
    assert "its attribute 'lock'" in str(raised.value)
    assert "policy_factory=make_policy, a function that makes" in str(raised.value)
    assert 'act_in="caller"' in str(raised.value)
    assert "backend=" not in str(raised.value)


@pytest.mark.parametrize("backend", ["thread", "process"])
def test_a_policy_factory_that_cannot_be_sent_is_named(backend: str) -> None:
    lock = __import__("threading").Lock()

    def make_policy() -> Drift:
        lock.acquire()
        return Drift()

    with Pool(cartpole, 2, backend=backend, seed=0) as pool:
        collector = Collector(
            pool, Drift(), act_in="workers", policy_factory=make_policy
        )
        with pytest.raises(FactoryError, match="policy_factory cannot be sent to") as e:
            collector.collect(2)
    assert "its variable 'lock'" in str(e.value)
    assert "Pass a function of a module" in str(e.value)
    assert "backend=" not in str(e.value)


class Raising(Drift):
    def act(self, step: Step, carry: Any, rng: Any) -> Decision:
        raise ValueError("no idea")


@pytest.mark.parametrize("place", PLACES, ids=lambda place: place[0])
def test_a_policy_that_raises_is_an_error_and_the_pool_goes_on(
    place: tuple[str, int],
) -> None:
    backend, workers = place
    with Pool(cartpole, 4, backend=backend, workers=workers, seed=0) as pool:
        collector = Collector(pool, Raising(), act_in="workers")
        with pytest.raises(PolicyError, match="ValueError in the policy: no idea"):
            collector.collect(2)
        collector.policy = Drift()
        assert collector.collect(2).valid.all()


class Astray(Quiet):
    """Takes an action that there is not, in one slot."""

    def act(self, step: Step, carry: Any, rng: Any) -> Decision:
        return Decision(np.where(step.slots == 3, 9, 0))


@pytest.mark.parametrize("place", PLACES, ids=lambda place: place[0])
def test_an_action_that_is_refused_has_the_slot_of_the_whole_pool(
    place: tuple[str, int],
) -> None:
    backend, workers = place
    options = {"workers": workers, "seed": 0, "check_actions": True}
    with Pool(cartpole, 4, backend=backend, **options) as pool:
        collector = Collector(pool, Astray(), act_in="workers")
        with pytest.raises(SpaceMismatch, match="the action of slot 3 is not in"):
            collector.collect(1)


class Spoiled(Drift):
    """Cannot be unpickled."""

    def __setstate__(self, state: Any) -> None:
        raise ValueError("not here")


def test_a_policy_that_cannot_be_built_in_the_worker_is_an_error(
    two_workers: Pool,
) -> None:
    collector = Collector(two_workers, Spoiled(), act_in="workers")
    with pytest.raises(PolicyError, match=r"worker [01].*ValueError.*not here"):
        collector.collect(2)
    collector.policy = Drift()
    assert collector.collect(2).valid.all()


class Unsendable(Drift):
    """Holds what cannot be pickled, as a session of ONNX Runtime does."""

    def __init__(self, weight: float = 0.0) -> None:
        super().__init__(weight)
        self.session = open(os.devnull)  # noqa: SIM115
        weakref.finalize(self, self.session.close)


@pytest.mark.parametrize("place", PLACES)
def test_a_factory_makes_the_copies_of_a_policy_and_weights_follow(
    place: tuple[str, int],
) -> None:
    def rollouts(act_in: str, **factory: Any) -> list[Rollout]:
        backend, workers = place
        with Pool(cartpole, 4, backend=backend, workers=workers, seed=0) as pool:
            policy = Unsendable()
            collector = Collector(pool, policy, act_in=act_in, **factory)
            first = collector.collect(5)
            policy.weight += 0.4
            return [first, collector.collect(5)]

    made = rollouts("workers", policy_factory=Unsendable)
    assert_same(made, rollouts("caller"))
    assert [rollout.version[0, 0] for rollout in made] == [1, 2]


def test_episodes_are_run_by_policies_that_a_factory_made(two_workers: Pool) -> None:
    policy, seeds = Unsendable(0.2), range(5)
    there = corral.run_episodes(
        two_workers,
        policy,
        seeds=seeds,
        act_in="workers",
        policy_factory=Unsendable,
    )
    here = corral.run_episodes(two_workers, policy, seeds=seeds)
    assert [one.action.tolist() for one in there] == [
        one.action.tolist() for one in here
    ]
    score = corral.evaluate(
        policy, two_workers, 5, act_in="workers", policy_factory=Unsendable
    )
    assert score.mean == corral.evaluate(policy, two_workers, 5).mean


def no_policy() -> Any:
    raise FileNotFoundError("weights.pth")


@pytest.mark.parametrize(
    ("factory", "text"),
    [
        (no_policy, "FileNotFoundError in making the policy: weights.pth"),
        (dict, "policy_factory returned {}, which has no method act"),
        (lambda: Quiet, r"returned the class Quiet; return an object: Quiet\(\)"),
        (Quiet, "policy_factory returned a policy of type Quiet, .* no method load_w"),
    ],
)
def test_a_factory_that_makes_no_policy_is_an_error_of_its_worker(
    two_workers: Pool, factory: Any, text: str
) -> None:
    collector = Collector(
        two_workers, Unsendable(), act_in="workers", policy_factory=factory
    )
    with pytest.raises((PolicyError, OptionError), match=rf"worker [01](?s:.*){text}"):
        collector.collect(2)
    assert two_workers.reset() is not None


@pytest.mark.parametrize(
    ("policy", "text"),
    [
        (None, r"policy is None; pass an object with a method act\(step"),
        (Drift, r"policy is the class Drift; pass an object: Drift\(\)"),
        (interrupt, r"policy is <function interrupt .*; pass an object"),
    ],
)
@pytest.mark.parametrize("act_in", ["caller", "workers"])
def test_what_is_no_policy_is_refused_at_once(
    two_workers: Pool, act_in: str, policy: Any, text: str
) -> None:
    collector = Collector(two_workers, Drift(), act_in=act_in)
    for use in (
        lambda: Collector(two_workers, policy, act_in=act_in),
        lambda: setattr(collector, "policy", policy),
        lambda: corral.run_episodes(two_workers, policy, episodes=1, act_in=act_in),
    ):
        with pytest.raises(OptionError, match=text):
            use()
    assert collector.collect(2).valid.all()


class Pairs(gymnasium.Env[Any, Any]):
    observation_space = spaces.Box(-9, 9, (2,), np.float64)
    action_space = spaces.Tuple((spaces.Discrete(5), spaces.Discrete(5)))

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        return np.zeros(2), {}

    def step(self, action: Any) -> Any:
        return np.array(action, np.float64), 0.0, False, False, {}


class Pairing(Quiet):
    def __init__(self, form: Any) -> None:
        self.form = form

    def act(self, step: Step, carry: Any, rng: Any) -> Decision:
        return Decision(self.form((1, 2) for _ in range(len(step))))


@pytest.mark.parametrize("act_in", ["caller", "workers"])
def test_actions_of_a_tuple_space_are_read_alike_for_any_number_of_rows(
    act_in: str,
) -> None:
    with Pool(Pairs, 5, backend="process", workers=2, seed=0) as pool:
        rollout = Collector(pool, Pairing(list), act_in=act_in).collect(1)
        assert rollout.next_obs.tolist() == [[1, 2]] * 5
        with pytest.raises(OptionError, match=r"a tuple of [35] was given for a space"):
            Collector(pool, Pairing(tuple), act_in=act_in).collect(1)


class Located(Quiet):
    """Says where it acts."""

    def act(self, step: Step, carry: Any, rng: Any) -> Decision:
        here = corral.this_worker()
        where = np.full(len(step), here.index), np.full(len(step), here.device)
        return Decision(
            np.zeros(len(step), int), extras={"index": where[0], "device": where[1]}
        )


@pytest.mark.parametrize("place", PLACES, ids=lambda place: place[0])
def test_a_policy_beside_the_envs_finds_its_worker(place: tuple[str, int]) -> None:
    backend, workers = place
    with Pool(cartpole, 4, backend=backend, workers=workers, devices=["cpu:0"]) as pool:
        extras = Collector(pool, Located(), act_in="workers").collect(1).extras
        assert extras["index"].tolist() == [
            np.repeat(range(workers), 4 // workers).tolist()
        ]
        assert extras["device"].tolist() == [["cpu:0"] * 4]


def test_a_factory_without_workers_to_act_in_is_refused(two_workers: Pool) -> None:
    with pytest.raises(OptionError, match=r'act_in is .caller.; add act_in="workers"'):
        Collector(two_workers, Drift(), policy_factory=Drift)
    with pytest.raises(OptionError, match="policy_factory is 3; it"):
        Collector(two_workers, Drift(), act_in="workers", policy_factory=3)


def test_after_ctrl_c_new_episodes_are_collected(
    two_workers: Pool, monkeypatch: pytest.MonkeyPatch
) -> None:
    pool, constant = two_workers, Fixed()
    collector = Collector(pool, Drift(), act_in="workers")
    for run in (
        lambda: collector.collect(3),
        lambda: corral.run_episodes(pool, constant, episodes=3, act_in="workers"),
    ):
        for then in (run, pool.drain):
            collector.end_episodes(0)
            run()
            with monkeypatch.context() as patched, pytest.raises(KeyboardInterrupt):
                patched.setattr(Sites, "finish", interrupt)
                run()
            for refused in (pool.reset, lambda: pool.step_all([0] * 4)):
                with pytest.raises(OrderError, match=r"call .*again, or pool.drain"):
                    refused()
            then()
            pool.reset()


@pytest.mark.parametrize("act_in", ["caller", "workers"])
def test_after_ctrl_c_a_dropped_collector_leaves_its_pool_usable(
    two_workers: Pool, monkeypatch: pytest.MonkeyPatch, act_in: str
) -> None:
    collector = Collector(two_workers, Drift(), act_in="workers")
    collector.collect(2)
    with monkeypatch.context() as patched, pytest.raises(KeyboardInterrupt):
        patched.setattr(Sites, "finish", interrupt)
        collector.collect(2)
    del collector
    gc.collect()
    assert len(corral.collect(two_workers, Drift(), 3, act_in=act_in)) == 3


def test_a_pool_that_was_stepped_meanwhile_is_refused(two_workers: Pool) -> None:
    one = Collector(two_workers, Drift(), act_in="workers")
    one.collect(2)
    Collector(two_workers, Drift(), act_in="workers").collect(2)
    with pytest.raises(OrderError, match="outside this collector"):
        one.collect(2)


def test_a_device_that_does_not_exist_is_named() -> None:
    ppo = pytest.importorskip("corral.learners.ppo")
    with Pool(
        cartpole, 2, backend="process", workers=1, seed=0, devices=["cuda:77"]
    ) as pool:
        spaces = pool.spec.observation_space, pool.spec.action_space
        policy = ppo.PPO(*spaces, ppo.PPOConfig(hidden=(8,))).policy
        collector = Collector(pool, policy, act_in="workers")
        with pytest.raises(
            OptionError, match="cannot act on this worker's device 'cuda"
        ):
            collector.collect(2)
