"""Tasks that cannot be used are told; finished trials are kept, also after a kill."""

from __future__ import annotations

import os
import signal
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from gymnasium.wrappers import TimeLimit

import corral
from corral.errors import EnvError, OptionError
from corral.rollouts import episodic
from corral.rollouts.episode_run import EpisodeOptions, EpisodesRun, ItemQueue
from corral.zoo.meta import point_robot

GOAL = np.array([0.0, 1.0])
SLOTS = 2


def make() -> corral.Trials:
    return corral.Trials(point_robot.make(), episodes=2)


class Upwards:
    def act(self, step: Any, carry: Any, rng: Any) -> corral.Decision:
        return corral.Decision(np.tile([0.0, 0.1], (len(step), 1)))


def open_pool(backend: str, **options: Any) -> corral.Pool:
    workers = None if backend == "serial" else 2
    return corral.Pool(make, SLOTS, backend=backend, workers=workers, seed=0, **options)


def trials(pool: corral.Pool, *tasks: Any) -> list[corral.Episode]:
    return corral.run_episodes(pool, Upwards(), tasks=tasks)


@pytest.mark.parametrize("backend", ["serial", "process"])
def test_a_task_that_the_env_rejects_is_told_and_other_trials_are_kept(
    backend: str,
) -> None:
    with open_pool(backend) as pool:
        with pytest.raises(EnvError, match=r"too many values.*\n.*task array") as told:
            trials(pool, GOAL, GOAL, np.zeros(3), GOAL)
        # The third had to wait until the first or the second was finished.
        assert {one.item for one in told.value.episodes} & {0, 1}
        assert all(one.length == 120 for one in told.value.episodes)
        assert len(trials(pool, GOAL, GOAL, GOAL)) == 3  # the pool goes on


def test_a_task_that_cannot_be_sent_is_told_and_other_trials_are_kept() -> None:
    with open_pool("process") as pool:
        with pytest.raises(
            OptionError, match=r"\(task <unlocked _thread.lock.*cannot be sent"
        ) as told:
            trials(pool, GOAL, GOAL, GOAL, threading.Lock())
        assert {one.item for one in told.value.episodes} & {0, 1}
        assert len(trials(pool, GOAL)) == 1


def test_a_pool_that_restarts_gives_up_the_task_alone() -> None:
    with open_pool("process", on_fault="restart", max_restarts=2) as pool:
        with pytest.raises(EnvError, match="given up after 2 restarts") as told:
            trials(pool, GOAL, np.zeros(3), GOAL, GOAL)
        # How many were finished when it gave up is a matter of time.
        assert {one.item for one in told.value.episodes} <= {0, 2, 3}
        assert told.value.fault is not None and told.value.fault.restarts == 2


@pytest.mark.parametrize("backend", ["serial", "process"])
def test_a_rejected_task_does_not_stay(backend: str) -> None:
    with open_pool(backend) as pool:
        first = pool.reset(tasks=[GOAL, GOAL])
        with pytest.raises(EnvError, match="too many values"):
            pool.reset(slots=[0], tasks=[np.zeros(3)])
        again = pool.reset(slots=[0])
        assert again.obs.shape == first.obs[:1].shape


class FallsOver(point_robot.PointRobot):
    """Ends its process in the second episode of one trial, the first time."""

    def __init__(self, mark: Path) -> None:
        super().__init__()
        self._mark = mark
        self._steps = 0

    def step(self, action: Any) -> Any:
        self._steps += 1
        doomed = self.get_task()[0] == 1.0 and self._steps > 60
        if doomed and not self._mark.exists():
            self._mark.touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return super().step(action)


def test_a_killed_worker_loses_no_finished_trial_and_runs_its_own_again(
    tmp_path: Path,
) -> None:
    def falling() -> corral.Trials:
        env = TimeLimit(FallsOver(tmp_path / "mark"), point_robot.HORIZON)
        return corral.Trials(env, episodes=2)

    goals = [GOAL, np.array([1.0, 0.0]), -GOAL, GOAL]
    with corral.Pool(
        falling, SLOTS, backend="process", workers=2, seed=0, on_fault="restart"
    ) as pool:
        found = trials(pool, *goals)
    assert [fault.kind for one in found for fault in one.faults] == ["died"]
    assert len(found[1].faults) == 1 and found[1].faults[0].has_task
    with open_pool("serial") as alone:
        plain = trials(alone, *goals)
    for one, other in zip(found, plain, strict=True):
        assert not one.failed and np.array_equal(one.task, other.task)
        assert np.array_equal(one.obs, other.obs)


def test_the_fault_of_a_trial_is_replayed_with_its_task(tmp_path: Path) -> None:
    class Stumbles(point_robot.PointRobot):
        steps = 0

        def step(self, action: Any) -> Any:
            self.steps += 1
            if self.steps == 70 and self.get_task()[0] == 1.0:  # in the second episode
                raise LookupError("a stone")
            return super().step(action)

    def stumbling() -> corral.Trials:
        return corral.Trials(TimeLimit(Stumbles(), point_robot.HORIZON), episodes=2)

    with (
        corral.Pool(stumbling, SLOTS, backend="serial", seed=0) as pool,
        pytest.raises(EnvError, match="a stone") as told,
    ):
        trials(pool, GOAL, np.array([1.0, 0.0]))
    assert told.value.fault is not None and told.value.fault.step == 70
    told.value.fault.save(tmp_path / "fault")
    replayed = corral.replay(tmp_path / "fault")
    assert replayed.reproduced and "a stone" in str(replayed.error)


def test_no_slot_waits_while_a_trial_is_unassigned() -> None:
    with open_pool("process") as pool:
        items = episodic._items(pool, None, [GOAL] * 5, None, 0, 1)
        queue, options = ItemQueue(items), EpisodeOptions(False, 0, None)
        run = EpisodesRun(pool, Upwards(), queue, options, None)
        while pool.waiting:
            assert pool.waiting == SLOTS or not queue._items
            run.advance(None)
        assert len(run.done) == 5


def test_more_workers_than_trials_run_each_trial_once() -> None:
    with corral.Pool(make, 5, backend="process", workers=5, seed=0) as pool:
        found = trials(pool, GOAL, -GOAL)
        assert [(one.item, one.length) for one in found] == [(0, 120), (1, 120)]
    with open_pool("serial") as alone:
        same = trials(alone, GOAL, -GOAL)
    assert all(np.array_equal(a.obs, b.obs) for a, b in zip(found, same, strict=True))
