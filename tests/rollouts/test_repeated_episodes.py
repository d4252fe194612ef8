"""`repeat=n`: n episodes of one seed and one task, which differ by the policy alone."""

from __future__ import annotations

import numpy as np
import pytest

import corral
from corral.errors import OptionError


class Drawing:
    """Draws its actions from the generators of the rows."""

    def act(self, step, carry, rng):
        return corral.Decision((rng.random(1)[:, 0] < 0.5).astype(np.int64))


def run(backend: str, slots: int, **options):
    with corral.Pool("CartPole-v1", slots, backend=backend, seed=3) as pool:
        return corral.run_episodes(pool, Drawing(), **options)


def test_copies_have_one_seed_and_start_but_their_own_draws():
    found = run("serial", 2, episodes=3, repeat=4)
    assert [one.item for one in found] == list(range(12))
    for first in range(0, 12, 4):
        group = found[first : first + 4]
        assert len({one.seed for one in group}) == 1
        assert all(np.array_equal(one.obs[0], group[0].obs[0]) for one in group)
        assert len({one.action.tobytes() for one in group}) == 4
    assert len({one.seed for one in found}) == 3


def test_the_first_copy_is_the_episode_without_repeats():
    alone, repeated = (
        run("serial", 2, episodes=3),
        run("serial", 2, episodes=3, repeat=2),
    )
    for one, other in zip(alone, repeated[::2], strict=True):
        assert np.array_equal(one.obs, other.obs)


@pytest.mark.parametrize("backend", ["thread", "process"])
def test_copies_are_the_same_wherever_they_run(backend):
    here, there = (
        run("serial", 1, seeds=[5, 6], repeat=3),
        run(backend, 4, seeds=[5, 6], repeat=3),
    )
    for one, other in zip(here, there, strict=True):
        assert one.seed == other.seed and np.array_equal(one.action, other.action)


def test_evaluations_repeat_too_and_odd_numbers_are_refused():
    found = corral.evaluate(
        Drawing(), "CartPole-v1", 2, repeat=3, num_envs=2, backend="serial"
    )
    assert len(found) == 6 and len(set(found.seeds)) == 2
    with pytest.raises(OptionError, match="repeat is 0; it must be an integer >= 1"):
        run("serial", 1, episodes=1, repeat=0)


# Slots of a pool ----------------------------------------------------------------------


def rows(slots: int, act_in: str = "caller", **options):
    with corral.Pool("CartPole-v1", slots, seed=3, **options) as pool:
        return corral.Collector(pool, Drawing(), act_in=act_in).collect(40)


def test_slots_of_a_group_play_one_episode_with_their_own_draws():
    found = rows(6, repeat=3, backend="serial")
    assert (found.obs[0, :3] == found.obs[0, 0]).all()
    assert (found.obs[0, 3:] == found.obs[0, 3]).all()
    actions = {found.action[:, slot].tobytes() for slot in range(6)}
    assert len(actions) == 6
    alone = rows(2, backend="serial")
    assert np.array_equal(found.obs[:, ::3], alone.obs)  # the first of each group


@pytest.mark.parametrize("act_in", ["caller", "workers"])
def test_slots_of_a_group_act_alike_wherever_they_run(act_in):
    here = rows(6, repeat=3, backend="serial")
    there = rows(6, act_in, repeat=3, backend="process", workers=4)
    assert np.array_equal(here.action, there.action)
    assert np.array_equal(here.obs, there.obs)
