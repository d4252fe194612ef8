"""What one fault leaves unfinished is right also after the next one."""

from __future__ import annotations

import functools
import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest
from running import wait_until

from corral import Pool, Step
from corral.engine.worker.seeds import episode_seed
from corral.tools.testing.answers import ACTIONS, KnownEpisode
from tests.soak.orders import BY_NAME, Obedient

ROOT = 3
RESTARTED = 3


@pytest.fixture
def make_pool(tmp_path: Path) -> Iterator[Callable[..., Pool]]:
    pools: list[Pool] = []

    def make(slots: int = 2, workers: int = 2, **options: Any) -> Pool:
        factories = [
            functools.partial(Obedient, str(tmp_path / f"{slot}"), mean_length=10**9)
            for slot in range(slots)
        ]
        asked = {"isolation": "shared", "on_fault": "restart", **options}
        pools.append(Pool(factories, workers=workers, seed=ROOT, **asked))
        return pools[-1]

    yield make
    for pool in pools:
        pool.close()


def order(name: str) -> int:
    return BY_NAME[name] * ACTIONS


def fault_of(step: Step, slot: int = 0) -> Any:
    position = step.slots.tolist().index(slot)
    return step.infos.of(position).get("fault")


def kill(pool: Pool, worker: int) -> int:
    """Kill a worker, and wait until anybody can see that it is gone."""
    pid = pool.stats().workers[worker].pid
    os.kill(pid, signal.SIGKILL)
    wait_until(lambda: psutil.Process(pid).status() == psutil.STATUS_ZOMBIE)
    return pid


def step_until(pool: Pool, slot: int, condition: Callable[[], object]) -> None:
    """Keep one slot going, while others come back."""

    def reached() -> object:
        pool.send([0], [slot])
        pool.recv(slots=[slot])
        return condition()

    wait_until(reached)


def is_done(pool: Pool, slot: int) -> Callable[[], bool]:
    """Whether the slot's result lies there, taken by nobody."""
    return lambda: slot in pool._state.ready()


def ended_now(make_pool: Callable[..., Pool], mode: str) -> tuple[Pool, Step]:
    """A pool of one slot, whose episode has just ended."""
    pool = make_pool(1, 1, env_kwargs={"mean_length": 4}, autoreset=mode)
    pool.reset()
    step = pool.step([1])
    while not step.ended[0]:
        step = pool.step([1])
    return pool, step


# Rows ---------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["exception", "SIGKILL"])
def test_an_episode_cut_before_its_first_step_has_earned_nothing(make_pool, name):
    pool, end = ended_now(make_pool, "same_step")
    assert end.episode_length[0] and end.episode_return[0]
    cut = pool.step([order(name)])
    assert cut.truncated[0] and not cut.valid[0]
    assert (cut.episode_length[0], cut.episode_return[0]) == (0, 0.0)
    np.testing.assert_array_equal(cut.final_obs, end.obs)


@pytest.mark.parametrize("name", ["exception in reset", "SIGKILL in reset"])
def test_an_episode_ends_once_also_if_the_next_cannot_begin(make_pool, name):
    pool = make_pool(1, 1, env_kwargs={"mean_length": 4}, autoreset="next_step")
    pool.reset()
    step = pool.step([order(name)])
    while not step.ended[0]:
        step = pool.step([1])
    filler = pool.step([1])
    assert filler.started[0] and not filler.ended[0] and not filler.valid[0]
    assert fault_of(filler).command == "reset"
    assert filler.episode_length[0] == 0
    again = pool.step([1])
    assert again.valid[0] and again.episode_length[0] == 1


def test_the_first_fault_is_told_where_its_replacement_could_not_be_built(make_pool):
    pool = make_pool(1, 1)
    pool.reset()
    step = pool.step([order("SIGKILL, not built once")])
    assert [fault.kind for fault in pool.faults] == ["died", "start"]
    assert fault_of(step).signal_name == "SIGKILL"


def test_each_row_tells_its_own_fault_also_if_two_came_before_any_was_taken(make_pool):
    pool = make_pool()
    pool.reset()
    pool.send([order("SIGSEGV"), 0])
    pool.recv(slots=[1])
    step_until(pool, 1, is_done(pool, 0))  # another worker has cut the episode short
    pid = kill(pool, 0)
    step_until(pool, 1, lambda: pool.stats().workers[0].pid != pid)
    first = pool.recv(slots=[0])
    assert not first.valid[0] and fault_of(first).signal_name == "SIGSEGV"
    second = pool.step([0], [0])
    assert not second.valid[0] and fault_of(second).signal_name == "SIGKILL"
    assert pool.step([0], [0]).valid.all()


# Seeds --------------------------------------------------------------------------------


def first_seeds(root: int, slots: int = 2) -> list[int]:
    return [episode_seed(root, slot, 0) for slot in range(slots)]


def test_a_new_root_counts_from_the_start_also_in_a_worker_that_was_dead(make_pool):
    pool = make_pool()
    pool.reset()
    pool.reset()
    kill(pool, 0)
    assert pool.reset(seed=9).seed.tolist() == first_seeds(9)


def test_a_new_root_counts_from_the_start_also_after_an_episode_that_broke(make_pool):
    pool = make_pool(autoreset="next_step")
    pool.reset()
    assert not pool.step([order("exception"), 0]).valid[0]
    assert pool.reset(seed=9).seed.tolist() == first_seeds(9)


def test_a_reset_after_an_episode_that_broke_is_another_episode(make_pool):
    pool = make_pool(autoreset="next_step")
    pool.reset()
    pool.step([order("exception"), 0])
    assert pool.reset().seed.tolist() == [
        episode_seed(ROOT, slot, 1) for slot in range(2)
    ]


# Tasks --------------------------------------------------------------------------------


def task_of(step: Step, slot: int = 0) -> Any:
    return step.infos.of(step.slots.tolist().index(slot)).get("task")


@pytest.mark.parametrize("name", ["exception", "SIGKILL"])
@pytest.mark.parametrize("mode", ["same_step", "next_step"])
def test_an_episode_begun_again_is_about_the_same_task(make_pool, name, mode):
    pool = make_pool(1, 1, autoreset=mode)
    pool.reset(tasks=["dig"])
    pool.step([order(name)])
    assert task_of(pool.step([0])) == "dig"
    pool.step([order("SIGKILL")])
    assert task_of(pool.step([0])) == "dig"


def test_a_task_is_kept_while_a_cut_episode_waits_to_begin_again(make_pool):
    pool = make_pool(autoreset="next_step")
    pool.reset(tasks=["dig", "rest"])
    pool.step([order("SIGKILL"), 0])
    kill(pool, 0)
    step = pool.step([0, 0])
    assert task_of(step) == "dig"
    assert step.seed[0] == episode_seed(ROOT, 0, 0, RESTARTED, 1)
    expected = KnownEpisode(int(step.seed[0]), "dig").first()
    np.testing.assert_array_equal(step.obs[0], expected.obs)


def test_a_task_that_an_episode_began_with_is_not_given_again(make_pool):
    pool = make_pool()
    pool.reset()
    pool.assign(0, "dig")
    pool.send_reset([0])
    pool.send([0], [1])
    pool.recv(slots=[1])
    step_until(pool, 1, is_done(pool, 0))  # begun, and taken by nobody
    pid = kill(pool, 0)
    step_until(pool, 1, lambda: pool.stats().workers[0].pid != pid)
    assert task_of(pool.recv(slots=[0])) == "dig"
    assert task_of(pool.reset([0])) is None
