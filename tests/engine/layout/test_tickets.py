"""Tickets, held against one counter per slot."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from corral.engine.layout.plan import WORD_MASK, Tickets

SLOTS = 3


@given(st.lists(st.integers(-1, SLOTS - 1)))
def test_every_slot_has_its_count_however_commands_were_mixed(commands):
    tickets, counts = Tickets(SLOTS), [0] * SLOTS
    for slot in commands:
        if slot < 0:  # to all of them, as far as they are on the same ticket
            if tickets.level():
                tickets.base += 1
                counts = [count + 1 for count in counts]
        else:
            counts[slot] += 1
            assert tickets.advance(slot) == counts[slot]
        assert [tickets.of(one) for one in range(SLOTS)] == counts
        assert (tickets.base + tickets.offsets).tolist() == counts
        assert tickets.level() == (len(set(counts)) == 1)


def test_the_blocks_word_has_32_bits():
    tickets = Tickets(1)
    tickets.base = WORD_MASK
    assert tickets.word(0) == WORD_MASK
    assert tickets.advance(0) == WORD_MASK + 1
    assert tickets.word(0) == 0


def test_one_that_takes_over_goes_on_from_the_words_of_the_block():
    tickets = Tickets(2)
    tickets.base, tickets.even = 7, True
    tickets.take_over([5, 5])
    assert [tickets.of(0), tickets.of(1)] == [5, 5]
    assert tickets.level() and tickets.base == 5
