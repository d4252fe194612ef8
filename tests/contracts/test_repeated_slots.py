"""Groups of slots that play the same episodes (`repeat=n`), on every executor."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from gymnasium.vector import AutoresetMode, SyncVectorEnv

import corral
from corral import Pool
from corral.errors import OptionError

from .batched_envs import Flock
from .envs import Countdown, Tasked

MakePool = Callable[..., Pool]
EPISODES = 3


def drawn(slot: int, episode: int, rng: np.random.Generator) -> Any:
    """A task that shows all that it was drawn from."""
    return slot, episode, int(rng.integers(1000))


def played(pool: Pool) -> list[list[tuple[int, str]]]:
    """Seed and options of every slot's episodes; an episode has two steps."""
    seen: list[list[tuple[int, str]]] = [[] for _ in range(pool.num_envs)]
    step = pool.reset()
    for _ in range(2 * EPISODES):
        for slot in np.flatnonzero(step.started).tolist():
            options = step.infos.of(slot)["options"]
            seen[slot].append((int(step.seed[slot]), options))
        step = pool.step([0] * pool.num_envs)
    return seen


@pytest.mark.parametrize("more", [{}, {"autoreset": "next_step"}])
def test_groups_play_the_episodes_of_a_pool_with_a_slot_per_group(
    make_pool: MakePool, more: dict[str, Any]
) -> None:
    groups = played(make_pool(Tasked, 6, repeat=3, sample_task=drawn, seed=5, **more))
    with Pool(
        Tasked, 2, backend="serial", sample_task=drawn, seed=5, **more
    ) as one_per_group:
        single = played(one_per_group)
    assert len(single[0]) >= 2 and single[0] != single[1]
    assert groups == [single[slot // 3] for slot in range(6)]


def test_workers_may_divide_a_group(make_pool: MakePool, backend: str) -> None:
    if backend == "serial":
        pytest.skip("it has one worker")
    pool = make_pool(Tasked, 4, repeat=2, workers=3, sample_task=drawn)
    assert len({len(shard) for shard in pool.shards}) == 2
    episodes = played(pool)
    assert episodes[0] == episodes[1] != episodes[2] == episodes[3]


def test_what_is_given_to_a_slot_is_its_own(make_pool: MakePool) -> None:
    pool = make_pool(Tasked, 2, repeat=2, sample_task=drawn)
    step = pool.reset(seeds=[3, 4], tasks=["left", "right"])
    assert step.seed.tolist() == [3, 4]
    assert "left" in step.infos.of(0)["options"]
    assert "right" in step.infos.of(1)["options"]


def test_slots_that_fill_no_group_are_refused(make_pool: MakePool) -> None:
    with pytest.raises(OptionError, match=r"num_envs is 5 and repeat is 3.*=3 or 6"):
        make_pool(Tasked, 5, repeat=3)
    with pytest.raises(OptionError, match=r"num_envs is 2 and repeat is 3.*=3$"):
        make_pool(Tasked, 2, repeat=3)
    with pytest.raises(OptionError, match="repeat is 0; it must be an integer >= 1"):
        make_pool(Tasked, 2, repeat=0)


# The other APIs -----------------------------------------------------------------------


def test_an_api_that_resets_without_seeds_seeds_the_episodes_of_groups() -> None:
    """With the envs' own generators, the slots of a group would draw apart."""
    envs = corral.make(Countdown, 4, backend="serial", repeat=2)
    seen = [envs.reset(seed=7)[0]]
    for _ in range(20):
        seen.append(envs.step(np.zeros(4, np.int64))[0])
    envs.close()
    rows = np.stack(seen)
    np.testing.assert_array_equal(rows[:, 0], rows[:, 1])
    np.testing.assert_array_equal(rows[:, 2], rows[:, 3])
    assert not np.array_equal(rows[:, 0], rows[:, 2])


def test_stable_baselines_seeds_groups() -> None:
    pytest.importorskip("stable_baselines3")
    envs = corral.make_sb3(Countdown, 4, backend="serial", repeat=2, seed=7)
    rows = envs.reset()
    assert envs.last_step is not None
    assert envs.last_step.seed.tolist() == [7, 7, 8, 8]
    np.testing.assert_array_equal(rows[0], rows[1])
    envs.close()


def test_a_batched_env_whose_slots_are_reset_one_by_one_has_groups() -> None:
    make = functools.partial(Flock, Tasked)
    options = {"batched": True, "seed": 5, "sample_task": drawn}
    with Pool(make, 4, backend="serial", repeat=2, **options) as pool:
        episodes = played(pool)
    assert episodes[0] == episodes[1] != episodes[2] == episodes[3]


def test_a_batched_env_that_restarts_by_itself_has_no_groups() -> None:
    def make(num_envs: int) -> Any:
        mode = AutoresetMode.SAME_STEP
        return SyncVectorEnv([Countdown] * num_envs, autoreset_mode=mode)

    with pytest.raises(OptionError, match=r"repeat=2 gives.*restarts its episodes by"):
        Pool(make, 4, backend="serial", batched=True, repeat=2)
