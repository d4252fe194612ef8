"""Races take turns, and ratios are taken within a round."""

import pytest

from corral.errors import CorralError
from corral.tools.bench.measure import Rates, batches_for, take_turns


class FakeRunner:
    """A runner whose batches take as long as it is told."""

    slots = 4

    def __init__(
        self, name="fake", seconds_per_batch=0.01, journal=None, breaks_at=None
    ):
        self.name = name
        self.seconds_per_batch = seconds_per_batch
        self.journal = [] if journal is None else journal
        self.breaks_at = breaks_at
        self.runs = 0

    def run(self, batches):
        self.runs += 1
        if self.runs == self.breaks_at:
            raise CorralError(f"{self.name} broke")
        self.journal.append(self.name)
        return batches * self.seconds_per_batch

    def close(self):
        pass


def stop(name, error):
    raise error


def race(runners, rounds, turn_seconds, on_turn=lambda name: None, on_fault=stop):
    """The rates of each runner, in the order of its turns."""
    rates = {name: [] for name in runners}

    def note(name, rate):
        rates[name].append(rate)
        on_turn(name)

    take_turns(
        runners,
        rounds=rounds,
        turn_seconds=turn_seconds,
        on_turn=note,
        on_fault=on_fault,
    )
    return rates


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
    assert rates["only"] == pytest.approx([400.0] * 3)


def test_a_turn_gets_the_batches_that_fill_it():
    assert batches_for(FakeRunner(seconds_per_batch=0.001), 0.5) == 500


def test_a_turn_has_at_least_one_batch():
    assert batches_for(FakeRunner(seconds_per_batch=10.0), 0.1) == 1


class SlowToStart(FakeRunner):
    """Its first run compiles, or loses its core."""

    def run(self, batches):
        return super().run(batches) + (5.0 if self.runs == 1 else 0.0)


def test_a_slow_first_step_makes_no_short_turns():
    assert batches_for(SlowToStart(seconds_per_batch=0.001), 0.5) == 500


def test_ratio_is_the_median_of_the_rounds_own_ratios():
    ours, theirs = Rates((10.0, 100.0, 30.0)), Rates((5.0, 10.0, 30.0))
    assert ours.over(theirs) == 2.0


def test_spread_of_equal_rounds_is_zero():
    assert Rates((5.0, 5.0, 5.0)).spread == 0.0


def test_one_that_fails_takes_no_more_turns_and_the_others_go_on():
    runners = {"sound": FakeRunner(), "broken": FakeRunner("broken", breaks_at=4)}
    faults = []
    rates = race(runners, 3, 0.01, on_fault=lambda name, error: faults.append(name))
    assert faults == ["broken"]
    assert [len(rates[name]) for name in ("sound", "broken")] == [3, 1]


def test_an_error_can_end_the_race():
    with pytest.raises(CorralError, match="fake broke"):
        race({"broken": FakeRunner(breaks_at=2)}, rounds=3, turn_seconds=0.01)
