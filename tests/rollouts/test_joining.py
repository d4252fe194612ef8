"""Rollouts of different slots are joined into one."""

import sys
from pathlib import Path

import pytest

import corral
from corral.errors import OptionError

sys.path.append(str(Path(__file__).parent.parent / "cluster"))
from scenes import PARTS, Rooms, Walker, assert_equal, draw_task


def rollout_of(slots, first=0, steps=20):
    options = dict(seed=0, backend="serial", isolation="shared", infos="final")

    def task(slot, episode, rng):
        return draw_task(slot + first, episode, rng)

    with corral.Pool(Rooms, slots, sample_task=task, **options) as pool:
        return corral.Collector(pool, Walker()).collect(steps)


def test_a_rollout_that_is_joined_from_parts_is_the_whole():
    parts = [rollout_of(3), rollout_of(2)]
    whole = corral.Rollout.join(parts)
    assert whole.slots == 5 and len(whole) == 20
    assert_equal(whole.reward[:, :3], parts[0].reward)
    assert_equal(whole.obs["place"][:, 3:], parts[1].obs["place"])
    assert len(whole.final_obs["place"]) == whole.ended.sum()
    assert [(one.row, one.slot) for one in whole.episodes] == sorted(
        (one.row, one.slot) for one in whole.episodes
    )
    second = [one for one in whole.episodes if one.slot >= 3]
    assert [one.seed for one in second] == [one.seed for one in parts[1].episodes]


def test_final_observations_follow_their_ends_row_by_row():
    parts = [rollout_of(3), rollout_of(2)]
    whole, at = corral.Rollout.join(parts), 0
    taken = [iter(part.final_obs["place"]) for part in parts]
    for row in range(len(whole)):
        for slot in range(whole.slots):
            if whole.ended[row, slot]:
                expected = next(taken[slot >= 3])
                assert_equal(whole.final_obs["place"][at], expected)
                at += 1


def test_one_rollout_is_itself():
    one = rollout_of(2)
    for name in PARTS:
        assert_equal(getattr(corral.Rollout.join([one]), name), getattr(one, name))


def test_rollouts_that_do_not_fit_are_refused():
    with pytest.raises(OptionError, match=r"\[20, 5\] rows"):
        corral.Rollout.join([rollout_of(2), rollout_of(2, steps=5)])
    with pytest.raises(OptionError, match="no rollouts"):
        corral.Rollout.join([])
