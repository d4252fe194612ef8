"""Races take turns, and ratios are taken within a round."""

import pytest

from corral.bench.measure import Rates, batches_for, race


class FakeRunner:
    """A runner whose batches take as long as it is told."""

    slots = 4

    def __init__(self, name="fake", seconds_per_batch=0.01, journal=None):
        self.name = name
        self.seconds_per_batch = seconds_per_batch
        self.journal = [] if journal is None else journal

    def run(self, batches):
        self.journal.append(self.name)
        return batches * self.seconds_per_batch

    def close(self):
        pass


def test_rounds_alternate_forth_and_back():
    journal = []
    runners = {
        name: FakeRunner(name, journal=journal) for name in ("first", "second", "third")
    }
    turns = []
    race(runners, rounds=2, turn_seconds=0.01, on_turn=turns.append)
    forth = ["first", "second", "third"]
    assert turns == forth + forth[::-1]
    assert journal[-6:] == turns


def test_rate_counts_environment_steps():
    rates = race({"only": FakeRunner()}, rounds=3, turn_seconds=0.1)
    assert rates["only"].rounds == pytest.approx((400.0,) * 3)


def test_a_turn_gets_the_batches_that_fill_it():
    assert batches_for(FakeRunner(seconds_per_batch=0.001), 0.5) == 500


def test_a_turn_has_at_least_one_batch():
    assert batches_for(FakeRunner(seconds_per_batch=10.0), 0.1) == 1


def test_ratio_is_the_median_of_the_rounds_own_ratios():
    ours, theirs = Rates((10.0, 100.0, 30.0)), Rates((5.0, 10.0, 30.0))
    assert ours.over(theirs) == 2.0


def test_spread_of_equal_rounds_is_zero():
    assert Rates((5.0, 5.0, 5.0)).spread == 0.0
