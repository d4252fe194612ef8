"""What an episode's generator draws depends on the episode's seed alone."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from corral.rollouts.policy_rng import NUMBERS_AHEAD, RowGenerators, SlotGenerators

SLOTS = 4
KINDS = ("random", "normal")


def alone(seed: int, counts: list[int], kind: str) -> list[list[float]]:
    """What one slot draws by itself."""
    generators = SlotGenerators(1)
    generators.start([0], [seed])
    rows = RowGenerators(generators, np.array([0]))
    return [getattr(rows, kind)(count)[0].tolist() for count in counts]


@pytest.mark.parametrize("kind", KINDS)
@settings(deadline=None, database=None, max_examples=60)
@given(data=st.data())
def test_whatever_the_batches_each_episode_draws_its_own_numbers(
    kind: str, data: st.DataObject
) -> None:
    chance = data.draw(st.randoms(use_true_random=True), "chance")
    generators = SlotGenerators(SLOTS)
    seeds = {slot: slot for slot in range(SLOTS)}
    generators.start(range(SLOTS), seeds.values())
    counts: dict[int, list[int]] = {slot: [] for slot in seeds}
    drawn: dict[int, list[Any]] = {slot: [] for slot in seeds}
    for number in range(data.draw(st.integers(1, 80), "batches")):
        slots = sorted(chance.sample(range(SLOTS), chance.randint(1, SLOTS)))
        if chance.random() < 0.1:
            for slot in slots:
                assert drawn[slot] == alone(seeds[slot], counts[slot], kind)
                seeds[slot], counts[slot], drawn[slot] = 100 + number, [], []
            generators.start(slots, [seeds[slot] for slot in slots])
        count = chance.choice([1, 1, 1, 3, NUMBERS_AHEAD, NUMBERS_AHEAD + 1])
        rows = RowGenerators(generators, np.array(slots))
        numbers = getattr(rows, kind)(count)
        assert numbers.shape == (len(slots), count)
        for slot, row in zip(slots, numbers.tolist(), strict=True):
            counts[slot].append(count)
            drawn[slot].append(row)
    for slot in seeds:
        assert drawn[slot] == alone(seeds[slot], counts[slot], kind)


def test_an_episode_without_a_seed_goes_on_drawing() -> None:
    generators = SlotGenerators(2)
    rows = RowGenerators(generators, np.arange(2))
    first = rows.random(3)
    generators.start([0, 1], [-1, -1])
    assert len(np.unique([first, rows.random(3)])) == 12


def test_a_row_is_the_same_generator_until_its_episode_ends() -> None:
    generators = SlotGenerators(2)
    generators.start([0, 1], [7, 7])
    rows = RowGenerators(generators, np.array([1]))
    one, two = rows[0].random(), rows[0].random()
    assert len(rows) == 1 and one != two
    generators.start([1], [7])
    assert rows[0].random() == one
    assert generators.of(0).random() == one  # the seed decides, not the slot


def test_the_numbers_are_spread_as_they_should_be() -> None:
    generators = SlotGenerators(50)
    generators.start(range(50), range(50))
    rows = RowGenerators(generators, np.arange(50))
    uniform = np.concatenate([rows.random() for _ in range(400)])
    normal = np.concatenate([rows.normal() for _ in range(400)])
    assert abs(uniform.mean() - 0.5) < 0.01 and abs(uniform.var() - 1 / 12) < 0.01
    assert abs(normal.mean()) < 0.03 and abs(normal.std() - 1) < 0.03
