"""Faults of envs and workers where the policy acts in the workers."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces

from corral import Collector, Decision, Pool, Rollout, Step, run_episodes
from corral.engine.pool.sites import Sites
from corral.errors import EnvError, WorkerDied, WorkerHung

FINE, RAISE, KILL, HANG = range(4)
SLOTS, ROWS, LENGTH = 4, 8, 5


class Fragile(gymnasium.Env[Any, Any]):
    """Does what its action says; observes a draw of its seed and its steps."""

    observation_space = spaces.Box(-np.inf, np.inf, (2,), np.float64)
    action_space = spaces.Discrete(4)

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        self._draw, self._steps = self.np_random.random(), 0
        return np.array([self._draw, 0.0]), {}

    def step(self, action: Any) -> Any:
        if action == RAISE:
            raise ValueError("out of luck")
        if action == KILL:
            os.kill(os.getpid(), signal.SIGKILL)
        if action == HANG:
            time.sleep(3600)
        self._steps += 1
        obs = np.array([self._draw, self._steps])
        return obs, 1.0, False, self._steps == LENGTH, {}


class Saboteur:
    """Breaks one episode, known by its seed, in its fourth step."""

    def __init__(self, how: int, seed: int) -> None:
        self.how, self.seed, self.weight = how, seed, np.zeros(1)

    def act(self, step: Step, carry: Any, rng: Any) -> Decision:
        now = (step.seed == self.seed) & (step.obs[:, -1] == 3)
        action = np.where(now, self.how, FINE)
        drawn = rng.random()[:, 0] + self.weight
        return Decision(action, extras={"drawn": drawn})

    def value(self, obs: Any, carry: Any) -> Any:
        return obs.sum(axis=1)

    def weights(self) -> dict[str, Any]:
        return {"weight": self.weight}

    def load_weights(self, weights: Any) -> None:
        self.weight = weights["weight"].copy()


def pool_of(backend: str = "process", **options: Any) -> Pool:
    workers = {} if backend == "serial" else {"workers": 2}
    return Pool(Fragile, SLOTS, backend=backend, seed=5, **workers, **options)


def first_seed(slot: int) -> int:
    """Of the episode that is broken."""
    with pool_of("serial") as pool:
        return int(pool.reset(seed=5).seed[slot])


def collected(pool: Pool, how: int, act_in: str, count: int = 3) -> list[Rollout]:
    """Rollouts of a policy whose weights change after each."""
    policy = Saboteur(how, first_seed(1))
    collector = Collector(pool, policy, act_in=act_in)
    rollouts = []
    for _ in range(count):
        rollouts.append(collector.collect(ROWS))
        policy.weight += 1.0
    return rollouts


class Stuck(Saboteur):
    """Takes for ever to decide the first episode's fourth step, or to be made."""

    def act(self, step: Step, carry: Any, rng: Any) -> Decision:
        if ((step.seed == self.seed) & (step.obs[:, -1] == 3)).any():
            time.sleep(3600)
        return super().act(step, carry, rng)


def never_made() -> Any:
    time.sleep(3600)


def test_a_policy_that_hangs_in_a_worker_is_ended_by_the_step_timeout() -> None:
    policy = Stuck(FINE, first_seed(1))
    with pool_of(step_timeout=2.0) as pool:
        collector = Collector(pool, policy, act_in="workers")
        with pytest.raises(WorkerHung, match="the policy took longer than 2 s") as hung:
            collector.collect(ROWS)
    lines = str(hung.value).splitlines()
    assert any("in act" in line for line in lines)
    assert not any("rollouts" in line for line in lines if "File" in line)
    assert "  if it is only slow, allow more time: step_timeout=" in lines


@pytest.mark.parametrize("runs", ["rollouts", "episodes"])
def test_a_worker_whose_policy_hangs_is_replaced(runs: str) -> None:
    policy = Stuck(FINE, first_seed(1))
    with pool_of(step_timeout=2.0, on_fault="restart") as pool:
        if runs == "rollouts":
            rollout = Collector(pool, policy, act_in="workers").collect(ROWS)
            assert rollout.valid.all(axis=0).tolist() == [False, False, True, True]
            faults = list(rollout.faults)
        else:
            seeds = [first_seed(1), *range(3)]
            options = {"max_restarts": 1, "act_in": "workers"}
            episodes = run_episodes(pool, policy, seeds=seeds, **options)
            assert episodes[0].failed
            faults = list(episodes[0].faults)
        assert {(fault.kind, fault.command) for fault in faults} <= {
            ("hung", "the policy"),
            ("shardmate", "the policy"),
        }
        assert pool.fault_count == (1 if runs == "rollouts" else 2)


def test_a_policy_that_is_never_made_is_ended_by_the_start_timeout() -> None:
    with pool_of(start_timeout=6.0, close_timeout=0.1) as pool:
        collector = Collector(
            pool, Saboteur(FINE, 0), act_in="workers", policy_factory=never_made
        )
        text = "making the policy took longer than 6 s(?s:.*)time: start_timeout="
        with pytest.raises(WorkerHung, match=text):
            collector.collect(ROWS)


class Endless(Fragile):
    def step(self, action: Any) -> Any:
        return np.zeros(2), 0.0, False, False, {}


@pytest.mark.parametrize("backend", ["thread", "process"])
def test_after_ctrl_c_episodes_are_not_run_to_their_ends(
    backend: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    policy, options = Saboteur(FINE, 0), {"episodes": 3, "act_in": "workers"}
    with Pool(Endless, 4, backend=backend, workers=2, isolation="shared") as pool:
        with monkeypatch.context() as patched, pytest.raises(KeyboardInterrupt):
            patched.setattr(Sites, "finish", interrupt)
            run_episodes(pool, policy, **options)
        episodes = run_episodes(pool, policy, max_length=5, **options)
        assert [episode.length for episode in episodes] == [5, 5, 5]


def interrupt(*_: Any) -> None:
    raise KeyboardInterrupt


ARRAYS = ("obs", "reward", "terminated", "truncated", "started", "valid", "bootstrap")


def assert_equal(one: Rollout, other: Rollout, slots: slice = slice(None)) -> None:
    for name in ARRAYS:
        ours, theirs = getattr(one, name)[:, slots], getattr(other, name)[:, slots]
        assert ours.tolist() == theirs.tolist(), name
    drawn = one.extras["drawn"][:, slots], other.extras["drawn"][:, slots]
    assert drawn[0].tolist() == drawn[1].tolist()


def test_an_env_that_raised_is_restarted_as_if_the_policy_were_in_the_caller() -> None:
    found = []
    for act_in in ("caller", "workers"):
        with pool_of(on_fault="restart") as pool:
            found.append(collected(pool, RAISE, act_in))
    for one, other in zip(*found, strict=True):
        assert_equal(one, other)
    faults = [[(f.kind, f.slot, f.seed) for f in one[0].faults] for one in found]
    assert faults[0] == faults[1] == [("raised", 1, first_seed(1))]
    assert not found[1][0].valid[3, 1] and found[1][1].valid.all()


@pytest.mark.parametrize("how", [KILL, HANG])
def test_a_worker_that_is_lost_costs_its_fragment_and_never_the_run(how: int) -> None:
    with pool_of("serial") as pool:
        truth = collected(pool, FINE, "caller")
    limits = {"step_timeout": 2.0} if how == HANG else {}
    with pool_of(on_fault="restart", **limits) as pool:
        rollouts = collected(pool, how, "workers")
        assert pool.fault_count == 1
    lost, *rest = rollouts
    ours, others = slice(0, 2), slice(2, 4)
    assert not lost.valid[:, ours].any() and lost.valid[:, others].all()
    (fault,) = lost.faults
    assert (fault.kind, fault.slot) == ("died" if how == KILL else "hung", 1)
    assert lost.truncated[:, ours].tolist() == [[False] * 2] * (ROWS - 1) + [[True] * 2]
    assert len(lost.final_obs) == np.count_nonzero(lost.ended)
    for rollout, true in zip(rollouts, truth, strict=True):
        assert_equal(rollout, true, others)  # the other worker lost nothing
    before = lost
    for number, rollout in enumerate(rest, 1):
        assert rollout.valid.all() and not rollout.faults
        # The new worker has the current weights, and its rows follow each other.
        assert (rollout.extras["drawn"] >= number).all()
        assert rollout.obs[0].tolist() == before.next_obs.tolist()
        assert rollout.started[0].tolist() == before.next_started.tolist()
        before = rollout
    assert lost.next_started[ours].all()


@pytest.mark.parametrize(
    ("how", "error"), [(RAISE, EnvError), (KILL, WorkerDied), (HANG, WorkerHung)]
)
def test_a_pool_that_raises_names_the_slot_and_the_episode(
    how: int, error: type[EnvError]
) -> None:
    limits = {"step_timeout": 2.0} if how == HANG else {}
    with (
        pool_of(**limits) as pool,
        pytest.raises(error, match=r"slot 1\b") as caught,
    ):
        collected(pool, how, "workers")
    assert caught.value.fault.seed == first_seed(1)


def test_after_an_error_of_an_env_new_episodes_are_collected() -> None:
    with pool_of() as pool:
        policy = Saboteur(RAISE, first_seed(1))
        collector = Collector(pool, policy, act_in="workers")
        with pytest.raises(EnvError):
            collector.collect(ROWS)
        rollout = collector.collect(ROWS)
        assert rollout.valid.all() and rollout.started[0].all()


class Deadly(Saboteur):
    """Kills the worker itself, between two steps of the envs."""

    def act(self, step: Step, carry: Any, rng: Any) -> Decision:
        if ((step.seed == self.seed) & (step.obs[:, 1] == 3)).any():
            os.kill(os.getpid(), signal.SIGKILL)
        return super().act(step, carry, rng)


def test_a_policy_that_ends_its_worker_costs_the_fragment_too() -> None:
    with pool_of(on_fault="restart") as pool:
        collector = Collector(pool, Deadly(FINE, first_seed(1)), act_in="workers")
        lost, following = collector.collect(ROWS), collector.collect(ROWS)
    assert lost.valid.tolist() == [[False, False, True, True]] * ROWS
    assert following.valid.all()
    assert [fault.kind for fault in lost.faults] == ["died"]


def test_a_worker_that_dies_between_two_rollouts_is_told_in_the_next() -> None:
    with pool_of(on_fault="restart") as pool:
        collector = Collector(pool, Saboteur(FINE, -1), act_in="workers")
        collector.collect(ROWS)
        os.kill(pool.apply(getpid, slots=[0])[0], signal.SIGKILL)
        rollout = collector.collect(ROWS)
    assert [fault.slot for fault in rollout.faults] == [0, 1]
    assert {fault.signal_name for fault in rollout.faults} == {"SIGKILL"}
    assert rollout.valid.all()
    assert rollout.started[0, :2].all()


def getpid(env: Any) -> int:
    return os.getpid()


def test_rows_are_filled_again_if_every_worker_was_lost() -> None:
    with Pool(
        Fragile, SLOTS, backend="process", workers=1, seed=5, on_fault="restart"
    ) as pool:
        first, second = collected(pool, KILL, "workers", count=2)
    assert [fault.kind for fault in first.faults] == ["died"]
    assert first.valid.all() and first.extras["drawn"].all()
    assert not second.faults and second.valid.all()


class Stumbling(gymnasium.Env[Any, Any]):
    """Its task: a folder, how it fails, and how often it does.

    "raise" fails early in its episode, "kill" late.
    """

    observation_space = spaces.Box(-np.inf, np.inf, (1,), np.float64)
    action_space = spaces.Discrete(4)

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        self._folder, self._how, self._often = options["task"]
        self._steps = 0
        return np.zeros(1), {}

    def step(self, action: Any) -> Any:
        self._steps += 1
        fails_at, length = (2, 3) if self._how == "raise" else (30, 31)
        begun = len(list(self._folder.glob(f"{self._how}*")))
        if self._steps == fails_at and begun < self._often:
            (self._folder / f"{self._how}{begun}").touch()
            if self._how == "kill":
                os.kill(os.getpid(), signal.SIGKILL)
            raise ValueError("out of luck")
        return np.zeros(1), 1.0, False, self._steps == length, {}


@pytest.mark.parametrize(("often", "failed"), [(1, False), (2, False), (9, True)])
def test_faults_of_an_item_count_although_its_worker_died_after_them(
    tmp_path: Path, often: int, failed: bool
) -> None:
    for act_in in ("caller", "workers"):
        folder = tmp_path / act_in
        folder.mkdir()
        with Pool(Stumbling, 2, workers=1, seed=0, on_fault="restart") as pool:
            raising, killing = run_episodes(
                pool,
                Saboteur(FINE, 0),
                tasks=[(folder, "raise", often), (folder, "kill", 1)],
                max_restarts=2,
                act_in=act_in,
            )
        faults = 3 if failed else often
        assert [fault.kind for fault in raising.faults] == ["raised"] * faults
        assert (raising.failed, raising.length) == (failed, 0 if failed else 3)
        assert len(list(folder.glob("raise*"))) == faults  # not once too often
        assert [fault.kind for fault in killing.faults] == ["died"]
        assert killing.length == 31
