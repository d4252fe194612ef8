"""The episode plan: which number, seed, options and task a slot's next episode has."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from corral.core import NO_TASK
from corral.engine.layout.plan import (
    BEGIN_TICKET,
    EPISODE_NUMBER,
    EPISODE_RESTARTS,
    EPISODE_SEED,
    FIRST_BEGIN_TICKET,
)
from corral.engine.worker.commands import ShardOptions
from corral.engine.worker.episode_plan import EpisodePlan
from corral.engine.worker.seeds import episode_seed
from corral.errors import OptionError

SLOTS = range(4, 6)
ROOT = 9


def plan_of(**options: Any) -> tuple[EpisodePlan, Any]:
    """A plan of two slots, and its words in the block."""
    words = np.full((len(SLOTS), 8), 77, np.int64)
    plan = EpisodePlan(SLOTS, ShardOptions(ROOT, **options))
    plan.bind(words)
    return plan, words


def test_episodes_are_numbered_by_slot_and_seeded_from_root_slot_and_number() -> None:
    plan, _ = plan_of()
    seeds = [plan.begin(index, 3).seed for index in (0, 0, 1)]
    assert seeds == [episode_seed(ROOT, *of) for of in ((4, 0), (4, 1), (5, 0))]
    assert [episode.number for episode in plan.episodes] == [1, 0]


def test_the_block_is_told_before_a_task_is_drawn() -> None:
    seen: list[list[int]] = []
    plan, words = plan_of(sample_task=lambda *_: seen.append(words[1].tolist()))
    plan.begin(1, 12)
    (told,) = seen
    assert told[EPISODE_NUMBER] == 0 and told[EPISODE_SEED] == episode_seed(ROOT, 5, 0)
    assert told[BEGIN_TICKET] == told[FIRST_BEGIN_TICKET] == 12
    assert words[0].tolist() == [77] * 8  # of the other slot nothing is said


def test_what_was_asked_holds_for_one_episode() -> None:
    plan, _ = plan_of(sample_task=lambda slot, number, rng: (slot, number))
    plan.request(0, seed=8, options={"hard": True}, task="given")
    plan.request(0, task="another")  # the rest of the request stays
    asked = plan.begin(0, 1)
    assert (asked.seed, asked.options, asked.task) == (8, {"hard": True}, "another")
    after = plan.begin(0, 2)
    assert (after.seed, after.options) == (episode_seed(ROOT, 4, 1), None)
    assert after.task == (4, 1)


def test_a_slot_without_seeds_begins_bare_and_says_so() -> None:
    plan, words = plan_of(seeded=False)
    assert plan.begin(0, 1).seed is None
    assert words[0][EPISODE_SEED] == plan.episodes[0].seed_word == -1
    plan.request(0, seed=2**63 + 1)  # too big for a word of the block
    assert plan.begin(0, 2).seed == 2**63 + 1 and words[0][EPISODE_SEED] == -1


def test_an_episode_that_broke_off_keeps_number_and_task_and_gets_another_seed() -> (
    None
):
    plan, words = plan_of(seeded=False, sample_task=lambda _, number, rng: number)
    plan.begin(0, 5)
    for restarts in (1, 2):
        plan.break_off(0)
        again = plan.begin(0, 6 + restarts)
        assert (again.number, again.restarts, again.task) == (0, restarts, 0)
        assert again.seed == episode_seed(ROOT, 4, 0, 3, restarts)
    told = words[0]
    assert (told[EPISODE_RESTARTS], told[BEGIN_TICKET]) == (2, 8)
    assert told[FIRST_BEGIN_TICKET] == 5
    following = plan.begin(0, 9)
    assert (following.number, following.restarts, following.task) == (1, 0, 1)


def test_a_reset_that_failed_is_repeated_as_it_was_asked() -> None:
    plan, _ = plan_of()
    plan.request(0, seed=8, options={"hard": True}, task="given")
    plan.begin(0, 1)
    plan.break_off(0, repeated=True)
    again = plan.begin(0, 1)
    assert (again.seed, again.options, again.task) == (8, {"hard": True}, "given")
    assert (again.number, again.restarts) == (0, 1)


def test_a_reset_by_the_caller_begins_another_episode_after_one_that_broke_off() -> (
    None
):
    plan, _ = plan_of()
    plan.begin(0, 1)
    plan.break_off(0)
    plan.reset(0, None)
    assert plan.begin(0, 2).seed == episode_seed(ROOT, 4, 1)
    plan.reset(0, 33)
    assert plan.begin(0, 3).seed == 33


def test_a_new_root_counts_from_the_start() -> None:
    plan, _ = plan_of()
    plan.begin(0, 1)
    plan.break_off(0)
    plan.restart_count(21)
    assert plan.begin(0, 2).seed == episode_seed(21, 4, 0)


def test_a_worker_that_takes_over_goes_on_from_the_words_of_the_one_before() -> None:
    plan, words = plan_of()
    plan.begin(0, 1)
    plan.begin(1, 1)
    plan.begin(1, 7)
    heir = EpisodePlan(SLOTS, ShardOptions(ROOT))
    heir.bind(words)
    assert not heir.has_begun
    heir.take_over(["maze", NO_TASK], [True, False])
    again, next_one = heir.begin(0, 20), heir.begin(1, 21)
    assert (again.number, again.restarts, again.task) == (0, 1, "maze")
    assert again.first_began == 1
    assert (next_one.number, next_one.seed) == (2, episode_seed(ROOT, 5, 2))
    assert heir.has_begun


def test_an_env_that_resets_itself_is_given_one_seed_and_no_task() -> None:
    plan = EpisodePlan(SLOTS, ShardOptions(ROOT), "Swarm")
    plan.bind(np.zeros((2, 8), np.int64))
    plan.resets_all = True
    assert plan.begin(0, 1).seed == episode_seed(ROOT, 4, 0)
    assert plan.begin(1, 1).seed is None
    plan.resets_all = False
    assert plan.begin(0, 2).seed is None
    plan.request(0, task="maze")
    with pytest.raises(OptionError, match="Swarm restarts its episodes by itself"):
        plan.begin(0, 3)


def test_slots_of_a_group_have_one_seed_and_one_task_also_when_begun_again() -> None:
    plan, _ = plan_of(repeat=2, sample_task=lambda place, number, rng: (place, number))
    for number in (0, 1):
        episodes = [plan.begin(index, 3 + number) for index in (0, 1)]
        assert {one.seed for one in episodes} == {episode_seed(ROOT, 2, number)}
        assert {one.task for one in episodes} == {(2, number)}
    plan.break_off(1)
    again = plan.begin(1, 6)
    assert (again.number, again.restarts) == (1, 1)
    assert (again.seed, again.task) == (episode_seed(ROOT, 2, 1), (2, 1))


def test_a_seed_that_the_caller_gave_a_slot_of_a_group_is_kept_for_a_restart() -> None:
    plan, words = plan_of(repeat=2)
    plan.request(0, seed=8)
    plan.begin(0, 1)
    heir = EpisodePlan(SLOTS, ShardOptions(ROOT, repeat=2))
    heir.bind(words)
    heir.take_over([NO_TASK] * 2, [True, False])
    assert heir.begin(0, 2).seed == 8
