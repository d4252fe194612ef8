"""The ledger, held against a dict of counters that anybody can follow."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from corral.engine.layout.plan import TICKET_MASK
from corral.engine.pool.ledger import Ledger, chosen_slots
from corral.errors import OptionError, OrderError

SLOTS = 5


class Naive:
    """What a ledger knows, one slot after the other."""

    def __init__(self) -> None:
        self.tickets = [0] * SLOTS
        self.done = [0] * SLOTS
        self.under_way: set[int] = set()
        self.sent_at = [0] * SLOTS
        self.sends = 0

    def send(self, slots: list[int]) -> None:
        self.sends += 1
        for slot in slots:
            self.tickets[slot] += 1
            self.sent_at[slot] = self.sends
        self.under_way |= set(slots)

    def ready(self) -> list[int]:
        return [s for s in sorted(self.under_way) if self.done[s] == self.tickets[s]]


def done_words(naive: Naive) -> np.ndarray:
    return np.array([word & TICKET_MASK for word in naive.done], np.uint32)


def check(ledger: Ledger, naive: Naive) -> None:
    done = done_words(naive)
    ready = naive.ready()
    assert ledger.waiting == len(naive.under_way)
    assert ledger.tickets(ledger.all).tolist() == naive.tickets
    assert ledger.ready(done).tolist() == ready
    assert ledger.complete(done) == (len(ready) == len(naive.under_way))
    for slot in range(SLOTS):
        late = slot in naive.under_way and slot not in ready
        assert ledger.is_unfinished(slot, done) == late


subsets = st.sets(st.integers(0, SLOTS - 1), min_size=1).map(sorted)
moves = st.lists(st.tuples(st.sampled_from(["send", "finish", "take"]), subsets))


@given(moves)
def test_it_knows_what_is_under_way_and_what_is_there(moves):
    ledger, naive = Ledger(SLOTS), Naive()
    for move, slots in moves:
        if move == "send":
            idle = [slot for slot in slots if slot not in naive.under_way]
            if len(idle) == SLOTS:
                ledger.send_all()
            elif idle:
                ledger.send(np.array(idle))
            if idle:
                naive.send(idle)
        elif move == "finish":
            for slot in naive.under_way.intersection(slots):
                naive.done[slot] = naive.tickets[slot]
        else:
            taken = [slot for slot in naive.ready() if slot in slots]
            if len(taken) == SLOTS:
                ledger.take_all()
            elif taken:
                ledger.take(np.array(taken))
            naive.under_way -= set(taken)
        check(ledger, naive)


@given(moves, st.integers(1, SLOTS))
def test_of_too_many_that_are_ready_those_sent_to_longest_ago_come_first(moves, count):
    ledger, naive = Ledger(SLOTS), Naive()
    for _, slots in moves:
        idle = [slot for slot in slots if slot not in naive.under_way]
        if idle:
            ledger.send(np.array(idle))
            naive.send(idle)
    naive.done = list(naive.tickets)
    ready = ledger.ready(done_words(naive))
    chosen = ledger.oldest(ready, count).tolist()
    by_age = sorted(naive.under_way, key=lambda s: (naive.sent_at[s], naive.tickets[s]))
    assert chosen == sorted(by_age[:count])


def test_a_row_of_another_command_is_not_there():
    ledger = Ledger(2)
    ledger.send_all()
    ledger.take_all()
    ledger.send_all()
    assert not ledger.complete(np.array([2, 1], np.uint32))
    assert not ledger.complete(np.array([2, 3], np.uint32))
    assert ledger.complete(np.array([2, 2], np.uint32))


def test_tickets_go_on_after_the_last_32_bit_number():
    ledger = Ledger(2)
    ledger.base = TICKET_MASK
    ledger.send_all()
    assert ledger.complete(np.array([0, 0], np.uint32))
    assert not ledger.complete(np.array([TICKET_MASK] * 2, np.uint32))


def test_a_slot_takes_one_command_at_a_time():
    ledger = Ledger(3)
    ledger.send(np.array([1]))
    ledger.check_idle(np.array([0, 2]))
    with pytest.raises(OrderError, match=r"slots \[1\] have a command under way"):
        ledger.check_idle(np.array([0, 1]))


def test_a_slot_is_reset_before_its_first_step():
    ledger = Ledger(3)
    ledger.start(np.array([0, 2]))
    assert ledger.unstarted == 1
    with pytest.raises(OrderError, match=r"slots \[1\] have not been reset"):
        ledger.check_started(ledger.all)


@pytest.mark.parametrize(
    ("slots", "text"),
    [
        ([], "slots is empty"),
        ([0, 0], "named twice"),
        ([3], "there are slots 0 to 2"),
        ([-1], "there are slots 0 to 2"),
        ([[0]], "expected a list of integers"),
        ([0.5], "expected a list of integers"),
    ],
)
def test_slots_that_cannot_be_meant_are_refused(slots, text):
    with pytest.raises(OptionError, match=text):
        chosen_slots(slots, 3)
