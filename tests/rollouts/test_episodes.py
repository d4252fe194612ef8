"""Whole episodes: in the order asked for, each from its own seed and task alone."""

from __future__ import annotations

import functools
import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
from contracts.envs import Countdown, Mixed
from contracts.reference import part_of, same, stored
from gymnasium import spaces
from plain_loop import Thinker, think, zero_action, zeros

import corral
from corral import Decision, Episode, Pool, Step, evaluate, run_episodes
from corral.core import NO_TASK
from corral.engine.worker.seeds import episode_seed
from corral.errors import EnvError, OptionError
from corral.rollouts.policy_rng import SlotGenerators

ROOT = 4
ITEMS = 11
CASES: dict[str, Callable[[], Any]] = {
    "countdown": functools.partial(Countdown, float, 6),
    "mixed": Mixed,
    "cartpole": functools.partial(gymnasium.make, "CartPole-v1", max_episode_steps=30),
}
act_in_both = pytest.mark.parametrize("act_in", ["caller", "workers"])
PLACES = [("serial", 1, 1), ("serial", 4, 1), ("thread", 3, 2), ("process", 5, 2)]


# Against a plain loop -----------------------------------------------------------------


class Truth:
    """One item in a plain Gymnasium loop."""

    def __init__(self, make: Callable[[], Any], seed: int) -> None:
        env = make()
        self.obs: list[Any] = []
        self.actions: list[Any] = []
        self.rewards: list[float] = []
        self.drawn: list[float] = []
        generators = SlotGenerators(1)
        generators.start([0], [seed])
        space, carry = env.action_space, zeros()
        last, reward = zero_action(space), 0.0
        seen, _ = env.reset(seed=seed)
        ended = False
        while not ended:
            seen = stored(env.observation_space, seen)
            before = last, reward
            thought = think(space, seen, carry, generators.of(0), before)
            self.obs.append(seen)
            self.actions.append(stored(space, thought.action))
            self.drawn.append(thought.extras["drawn"])
            seen, given, terminated, truncated, self.info = env.step(thought.action)
            reward = float(np.asarray(given).reshape(()))
            self.rewards.append(reward)
            carry, last = thought.carry, self.actions[-1]
            ended = terminated or truncated
        self.final = stored(env.observation_space, seen)
        self.flags = bool(terminated), bool(truncated)
        env.close()


@functools.cache
def truth_of(name: str) -> list[Truth]:
    return [Truth(CASES[name], episode_seed(ROOT, item)) for item in range(ITEMS)]


def assert_same_episode(pool: Pool, got: Episode, truth: Truth) -> None:
    obs_space, action_space = pool.spec.observation_space, pool.spec.action_space
    assert got.length == len(got) == len(truth.rewards)
    for row, reward in enumerate(truth.rewards):
        assert same(part_of(obs_space, got.obs, row), truth.obs[row])
        assert same(part_of(action_space, got.action, row), truth.actions[row])
        assert got.reward is not None and got.reward[row] == reward
        assert got.extras["drawn"][row] == truth.drawn[row]
    assert same(part_of(obs_space, got.final_obs, 0), truth.final)
    assert (got.terminated, got.truncated) == truth.flags
    assert got.return_ == sum(truth.rewards)
    assert same(got.info, truth.info)
    assert got.task is NO_TASK and not got.faults and not got.failed


@pytest.mark.parametrize("place", PLACES, ids=lambda place: "-".join(map(str, place)))
@pytest.mark.parametrize("name", CASES)
def test_episodes_equal_a_plain_loop_bit_for_bit(
    name: str, place: tuple[str, int, int]
) -> None:
    backend, slots, workers = place
    with Pool(CASES[name], slots, backend=backend, workers=workers, seed=ROOT) as pool:
        for options in ({}, {"min_slots": 1}, {"act_in": "workers"}):
            got = run_episodes(pool, Thinker(pool), episodes=ITEMS, **options)
            assert [episode.item for episode in got] == list(range(ITEMS))
            for episode, truth in zip(got, truth_of(name), strict=True):
                assert_same_episode(pool, episode, truth)


def test_the_pools_own_autoreset_does_not_matter() -> None:
    got = []
    for autoreset in ("same_step", "next_step", "off"):
        with Pool(
            Countdown, 2, backend="serial", autoreset=autoreset, seed=ROOT
        ) as pool:
            pool.reset()
            pool.step([1, 1])
            got.append(repr(run_episodes(pool, Thinker(pool), episodes=5)))
    assert len(set(got)) == 1


class Endless(Countdown):
    """Counts up, as long as anybody steps it."""

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        self._at = 0
        return np.zeros(3, np.float32), {}

    def step(self, action: Any) -> Any:
        self._at += 1
        return np.full(3, self._at, np.float32), 1.0, False, False, {"at": self._at}


@pytest.mark.parametrize("backend", ["serial", "process"])
def test_an_episode_without_an_end_is_truncated_where_asked(backend: str) -> None:
    with Pool(Endless, 2, backend=backend, seed=1) as pool:
        got = run_episodes(pool, Ones(), episodes=5, max_length=3)
        scores = evaluate(Ones(), pool, episodes=3, max_length=7)
    for episode in got:
        assert (episode.length, episode.return_, episode.info) == (3, 3.0, {"at": 3})
        assert (episode.terminated, episode.truncated) == (False, True)
        assert episode.obs[:, 0].tolist() == [0, 1, 2]
        assert episode.final_obs.tolist() == [[3, 3, 3]]
    assert scores.lengths.tolist() == scores.returns.tolist() == [7, 7, 7]


@pytest.mark.parametrize("most", [2, 4])
def test_shorter_episodes_are_as_they_were(most: int) -> None:
    with Pool(Countdown, 2, backend="serial", seed=ROOT) as pool:
        whole = run_episodes(pool, Thinker(pool), episodes=8)
        cut = run_episodes(pool, Thinker(pool), episodes=8, max_length=most)
    for one, other in zip(whole, cut, strict=True):
        if len(one) <= most:
            assert repr(one) == repr(other)
        else:
            assert len(other) == most and other.truncated and not other.terminated
            assert same(other.final_obs[0], one.obs[most])
    assert max(map(len, cut)) == most


# Tasks and seeds ----------------------------------------------------------------------


class Goal(Countdown):
    """Observes its task."""

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        _, info = super().reset(seed=seed)
        self.task = (options or {}).get("task", -1)
        return np.full(3, self.task, np.float32), info


class Ones:
    def act(self, step: Step, carry: Any, rng: Any) -> Decision:
        return Decision(np.ones(len(step), int))


def draw_task(number: int, episode: int, rng: np.random.Generator) -> int:
    return number * 1000 + int(rng.integers(1000))


@act_in_both
def test_each_item_has_its_task(act_in: str) -> None:
    tasks = [9, 3, 5, 7, 1, 8, 2]
    with Pool(Goal, 3, backend="thread", workers=2, seed=0) as pool:
        got = run_episodes(pool, Ones(), tasks=tasks, act_in=act_in)
    assert [episode.task for episode in got] == tasks
    assert [episode.obs[0, 0] for episode in got] == tasks


def test_tasks_that_a_pool_draws_belong_to_items_not_to_slots() -> None:
    seen = []
    for slots in (1, 3):
        with Pool(Goal, slots, backend="serial", seed=2, sample_task=draw_task) as pool:
            got = run_episodes(pool, Ones(), episodes=6)
            assert [episode.obs[0, 0] for episode in got] == [e.task for e in got]
            seen.append([episode.task for episode in got])
    assert seen[0] == seen[1]
    assert [task // 1000 for task in seen[0]] == list(range(6))


def test_seeds_may_be_given_whatever_their_size() -> None:
    seeds = [7, 2**63 + 5, 7, 11]
    with Pool(Countdown, 2, backend="serial", seed=0) as pool:
        got = run_episodes(pool, Thinker(pool), seeds=seeds)
    assert [episode.seed for episode in got] == seeds
    assert same(got[0].obs, got[2].obs) and same(got[0].extras, got[2].extras)
    assert not same(got[0].obs[0], got[1].obs[0])


def test_rows_need_not_be_kept() -> None:
    with Pool(Countdown, 2, backend="serial", seed=0) as pool:
        kept = run_episodes(pool, Thinker(pool), episodes=4)
        bare = run_episodes(pool, Thinker(pool), episodes=4, rows=False)
    for one, other in zip(kept, bare, strict=True):
        assert other.obs is other.action is other.reward is None
        assert (one.return_, one.length, one.info) == (
            other.return_,
            other.length,
            other.info,
        )


def test_fewer_items_than_slots_and_none_at_all() -> None:
    with Pool(Countdown, 4, backend="serial", seed=0) as pool:
        assert len(run_episodes(pool, Ones(), episodes=2)) == 2
        assert run_episodes(pool, Ones(), episodes=0) == []
        assert run_episodes(pool, Ones(), tasks=[]) == []


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({}, "number of episodes is missing"),
        ({"episodes": -1}, "episodes is -1"),
        ({"episodes": 3, "seeds": [1, 2]}, "2 seeds, 3 episodes"),
        ({"episodes": 3, "max_restarts": -1}, "max_restarts is -1"),
    ],
)
def test_items_without_a_meaning_are_refused(options: Any, message: str) -> None:
    with (
        Pool(Countdown, 1, backend="serial") as pool,
        pytest.raises(OptionError, match=message),
    ):
        run_episodes(pool, Ones(), **options)


# Faults -------------------------------------------------------------------------------


class Unlucky(gymnasium.Env[Any, Any]):
    """Its task says how often it breaks, and how; a folder keeps count of it."""

    observation_space = spaces.Box(-np.inf, np.inf, (1,), np.float64)
    action_space = spaces.Discrete(2)

    def set_task(self, task: Any) -> None:
        self._folder, self._name, self._times, self._how = task

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        self._left = 4
        return self._observe(), {}

    def _observe(self) -> Any:
        return self.np_random.random(1)

    def step(self, action: Any) -> Any:
        self._left -= 1
        if self._left == 1:
            self._break()
        return self._observe(), 1.0, self._left == 0, False, {}

    def _break(self) -> None:
        notes = Path(self._folder) / self._name
        before = len(notes.read_text()) if notes.exists() else 0
        if before < self._times:
            notes.write_text("x" * (before + 1))
            if self._how == "raise":
                raise RuntimeError("unlucky")
            os.kill(os.getpid(), signal.SIGKILL)


def unlucky_tasks(
    folder: Path, how: str, times: dict[int, int], count: int
) -> list[Any]:
    return [(str(folder), f"{n}", times.get(n, 0), how) for n in range(count)]


@act_in_both
@pytest.mark.parametrize("how", ["raise", "kill"])
def test_a_faulted_item_is_run_again_with_its_seed_and_task(
    tmp_path: Path, how: str, act_in: str
) -> None:
    tasks = unlucky_tasks(tmp_path, how, {2: 1, 5: 2}, 8)
    with Pool(
        Unlucky, 3, backend="process", workers=2, seed=1, on_fault="restart"
    ) as pool:
        got = run_episodes(pool, Ones(), tasks=tasks, act_in=act_in)
        again = run_episodes(pool, Ones(), tasks=tasks)  # by now nothing breaks
    own = [[f for f in one.faults if f.kind != "shardmate"] for one in got]
    assert [len(faults) for faults in own] == [0, 0, 1, 0, 0, 2, 0, 0]
    assert not any(episode.failed for episode in got)
    for one, other in zip(got, again, strict=True):
        assert (one.length, one.return_, one.seed) == (4, 4.0, other.seed)
        assert same(one.obs, other.obs) and same(one.final_obs, other.final_obs)


@act_in_both
@pytest.mark.parametrize("how", ["raise", "kill"])
def test_an_item_that_keeps_failing_is_given_up_and_the_others_are_not(
    tmp_path: Path, how: str, act_in: str
) -> None:
    tasks = unlucky_tasks(tmp_path, how, {1: 99}, 4)
    with Pool(
        Unlucky, 2, backend="process", workers=2, seed=1, on_fault="restart"
    ) as pool:
        got = run_episodes(pool, Ones(), tasks=tasks, max_restarts=2, act_in=act_in)
    assert [episode.failed for episode in got] == [False, True, False, False]
    lost = got[1]
    assert len(lost.faults) == 3 and lost.fault is lost.faults[-1]
    assert lost.fault is not None
    assert lost.fault.error_text == ("unlucky" if how == "raise" else None)
    assert np.isnan(lost.return_) and lost.length == 0 and lost.obs is None


@act_in_both
def test_faults_of_others_in_the_same_worker_are_not_held_against_an_item(
    tmp_path: Path, act_in: str
) -> None:
    tasks = unlucky_tasks(tmp_path, "kill", {0: 1, 1: 1}, 3)
    with Pool(
        Unlucky, 3, backend="process", workers=1, seed=1, on_fault="restart"
    ) as pool:
        got = run_episodes(pool, Ones(), tasks=tasks, max_restarts=1, act_in=act_in)
    assert not any(episode.failed for episode in got)
    # Mostly two; one where the second came before what the first had cut was taken.
    assert {fault.kind for fault in got[2].faults} == {"shardmate"}


@act_in_both
@pytest.mark.parametrize("backend", ["thread", "process"])
def test_a_pool_that_raises_raises_and_can_be_used_again(
    tmp_path: Path, backend: str, act_in: str
) -> None:
    tasks = unlucky_tasks(tmp_path, "raise", {1: 1}, 4)
    with Pool(Unlucky, 3, backend=backend, workers=3, seed=1) as pool:
        with pytest.raises(EnvError, match="unlucky"):
            run_episodes(pool, Ones(), tasks=tasks, act_in=act_in)
        got = run_episodes(pool, Ones(), tasks=tasks, act_in=act_in)
    assert [episode.length for episode in got] == [4] * 4


@pytest.mark.parametrize(
    ("backend", "act_in"), [("serial", "caller"), ("process", "workers")]
)
def test_what_was_finished_before_something_broke_is_kept(
    tmp_path: Path, backend: str, act_in: str
) -> None:
    tasks = unlucky_tasks(tmp_path, "raise", {3: 1}, 5)
    with (
        Pool(Unlucky, 1, backend=backend, seed=1) as pool,
        pytest.raises(EnvError, match="unlucky") as caught,
    ):
        run_episodes(pool, Ones(), tasks=tasks, act_in=act_in)
    assert [episode.item for episode in caught.value.episodes] == [0, 1, 2]
    assert [episode.length for episode in caught.value.episodes] == [4] * 3


# Evaluation ---------------------------------------------------------------------------


class Lengthy(gymnasium.Env[Any, Any]):
    """Episodes of 1 to 40 steps, each worth its length: short ones finish first."""

    observation_space = spaces.Box(0, 1, (1,), np.float32)
    action_space = spaces.Discrete(2)

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        self._left = int(self.np_random.integers(1, 41))
        return np.zeros(1, np.float32), {}

    def step(self, action: Any) -> Any:
        self._left -= 1
        return np.zeros(1, np.float32), 1.0, self._left == 0, False, {"cost": 0.5}


def lengths_by_hand(count: int, seed: int) -> list[int]:
    lengths = []
    for item in range(count):
        rng, _ = gymnasium.utils.seeding.np_random(episode_seed(seed, item))
        lengths.append(int(rng.integers(1, 41)))
    return lengths


@pytest.mark.parametrize(
    ("slots", "options"),
    [
        *((slots, {"backend": "serial"}) for slots in (1, 7, 40)),
        (7, {"backend": "process", "workers": 3, "act_in": "workers"}),
    ],
)
def test_evaluation_runs_exactly_the_episodes_asked_for(
    slots: int, options: dict[str, Any]
) -> None:
    got = evaluate(Ones(), Lengthy, episodes=30, seed=3, num_envs=slots, **options)
    truth = lengths_by_hand(30, 3)
    assert len(got) == 30
    assert got.lengths.tolist() == truth and got.returns.tolist() == truth
    assert got.mean == np.mean(truth) and got.std == np.std(truth)
    assert all(info == {"cost": 0.5} for info in got.infos)
    assert got.failed == ()
    assert str(got) == f"{np.mean(truth):.1f} ± {np.std(truth):.1f} over 30 episodes"


def test_a_pool_can_be_evaluated_on_and_stays_open() -> None:
    with Pool(Lengthy, 3, backend="serial", seed=99) as pool:
        got = evaluate(Ones(), pool, episodes=8, seed=3)
        assert got.lengths.tolist() == lengths_by_hand(8, 3)
        assert not pool.closed and pool.seed == 99
        with pytest.raises(OptionError, match="workers cannot change a pool"):
            evaluate(Ones(), pool, episodes=8, workers=2)


def test_failed_episodes_are_told_apart(tmp_path: Path) -> None:
    tasks = unlucky_tasks(tmp_path, "raise", {0: 99}, 3)
    got = evaluate(
        Ones(),
        Unlucky,
        episodes=3,
        tasks=tasks,
        num_envs=2,
        backend="process",
        workers=2,
        on_fault="restart",
    )
    assert np.isnan(got.returns[0]) and got.returns[1:].tolist() == [4.0, 4.0]
    assert got.mean == 4.0 and len(got.failed) == 1
    assert str(got).endswith("over 3 episodes, 1 failed")


def test_a_registered_id_is_enough() -> None:
    got = corral.evaluate(Ones(), "CartPole-v1", episodes=3, backend="serial")
    assert len(got) == 3 and (got.lengths < 12).all()
