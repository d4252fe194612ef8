"""Envs whose state is their process's: drop-ins return what the replaced classes do.

The whole table, with AgileRL's class too, is in conformance/stateful.py.
"""

import functools
from multiprocessing import forkserver, resource_tracker

import gymnasium
import numpy as np
import pytest

from corral import dropin
from tests.stateful_envs import STATEFUL, ClassCounter, NativeDice

SLOTS = 3
CLEAN = "forkserver"
"""A fork of this process would find what a first env has left here."""


@pytest.fixture(scope="module", autouse=True)
def servers_end():
    """The peers' helper processes would outlive them, and be found by other tests."""
    # What each of the peers' workers imports, and no env.
    forkserver._forkserver._stop()
    peers = ["gymnasium.vector", "stable_baselines3.common.vec_env"]
    forkserver.set_forkserver_preload(peers)
    yield
    forkserver.set_forkserver_preload(["__main__"])
    forkserver._forkserver._stop()
    resource_tracker._resource_tracker._stop()


def rows_of(envs, steps=20):
    envs.action_space.seed(3)
    rows = [envs.reset(seed=5)[0]]
    for _ in range(steps):
        rows += envs.step(envs.action_space.sample())[:4]
    envs.close()
    return rows


@functools.cache
def gymnasiums(kind):
    return rows_of(gymnasium.vector.AsyncVectorEnv([kind] * SLOTS, context=CLEAN))


def sb3_rows_of(envs):
    envs.seed(5)
    rows = [envs.reset()]
    rows += [envs.step(np.ones(SLOTS, int))[0] for _ in range(20)]
    envs.close()
    return rows


@functools.cache
def stable_baselines3s(kind):
    vec_env = pytest.importorskip("stable_baselines3.common.vec_env")
    return sb3_rows_of(vec_env.SubprocVecEnv([kind] * SLOTS, start_method=CLEAN))


def assert_same(ours, theirs):
    assert len(ours) == len(theirs)
    for one, other in zip(ours, theirs, strict=True):
        np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize("kind", STATEFUL)
def test_as_gymnasiums_with_as_many_workers_as_cores(kind):
    assert_same(rows_of(dropin.AsyncVectorEnv([kind] * SLOTS)), gymnasiums(kind))


@pytest.mark.parametrize("workers", [1, 2, 8])
def test_as_gymnasiums_with_any_number_of_workers(workers):
    envs = dropin.AsyncVectorEnv([NativeDice] * SLOTS, max_concurrency=workers)
    assert_same(rows_of(envs), gymnasiums(NativeDice))


@pytest.mark.parametrize("workers", [1, 2, 8])
def test_as_stable_baselines3s_with_any_number_of_workers(workers):
    theirs = stable_baselines3s(ClassCounter)
    envs = dropin.SubprocVecEnv([ClassCounter] * SLOTS, workers=workers)
    assert_same(sb3_rows_of(envs), theirs)
