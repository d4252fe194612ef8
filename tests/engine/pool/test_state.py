"""A pool's state, held against a dict of counters that anybody can follow."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from corral.engine.layout.plan import WORD_MASK, Tickets
from corral.engine.pool.state import PoolState, chosen_slots
from corral.engine.worker.autoreset import HOLD, OFF
from corral.engine.worker.commands import WIDE_ACTIONS, Verb
from corral.errors import OptionError, OrderError

SLOTS = 5


class Naive:
    """What a state knows, one slot after the other."""

    def __init__(self) -> None:
        self.tickets = [0] * SLOTS
        self.done = [0] * SLOTS
        self.under_way: set[int] = set()
        self.sent_at = [0] * SLOTS
        self.sends = 0
        self.commands: dict[int, tuple[Verb, int]] = {}

    def send(self, slots: list[int], command: tuple[Verb, int]) -> None:
        self.sends += 1
        for slot in slots:
            self.tickets[slot] += 1
            self.sent_at[slot] = self.sends
            self.commands[slot] = command
        self.under_way |= set(slots)

    def ready(self) -> list[int]:
        return [s for s in sorted(self.under_way) if self.done[s] == self.tickets[s]]


def new_state(slots: int = SLOTS) -> PoolState:
    return PoolState(slots, np.zeros(slots, np.uint32))


def check(state: PoolState, naive: Naive) -> None:
    state.done[:] = [word & WORD_MASK for word in naive.done]
    ready = naive.ready()
    late = sorted(naive.under_way.difference(ready))
    assert state.waiting == len(naive.under_way)
    assert state.tickets_of(state.all).tolist() == naive.tickets
    assert state.ready().tolist() == ready
    assert state.complete() == (len(ready) == len(naive.under_way))
    assert state.pending().tolist() == sorted(naive.under_way)
    assert state.unfinished(range(SLOTS)) == late
    missing = sum(naive.done[slot] != naive.tickets[slot] for slot in range(SLOTS))
    assert state.missing(state.all) == missing
    for slot, command in naive.commands.items():
        assert state.command(slot) == command


subsets = st.sets(st.integers(0, SLOTS - 1), min_size=1).map(sorted)
moves = st.lists(
    st.tuples(st.sampled_from(["send", "finish", "take"]), subsets, st.integers(0, 6))
)


@settings(suppress_health_check=[HealthCheck.too_slow], deadline=None)
@given(moves)
def test_it_knows_what_is_under_way_and_what_is_there(moves):
    state, naive = new_state(), Naive()
    for move, slots, mode in moves:
        if move == "send":
            idle = [slot for slot in slots if slot not in naive.under_way]
            verb = Verb.RESET if mode % 2 else Verb.STEP
            if len(idle) == SLOTS:
                verb = Verb.STEP
                state.send_all(mode)
            elif idle:
                state.send(np.array(idle), verb, mode)
            if idle:
                naive.send(idle, (verb, mode))
        elif move == "finish":
            for slot in naive.under_way.intersection(slots):
                naive.done[slot] = naive.tickets[slot]
        else:
            taken = [slot for slot in naive.ready() if slot in slots]
            if len(taken) == SLOTS:
                state.take_all()
            elif taken:
                state.take(np.array(taken))
            naive.under_way -= set(taken)
        check(state, naive)


def test_a_command_that_was_withdrawn_was_never_sent():
    state = new_state(3)
    state.send_all(0)
    state.done[:] = 1
    state.take_all()
    state.send(np.array([1, 2]), Verb.STEP)
    state.withdraw(np.array([2]))
    assert state.tickets_of(state.all).tolist() == [1, 2, 1]
    assert (state.waiting, state.pending().tolist()) == (1, [1])
    state.done[1] = 2
    assert state.complete()


@pytest.mark.parametrize("base", [0, WORD_MASK - 1, 5 * 2**32])
def test_what_another_sender_sent_is_counted_and_received(base):
    """Tickets come as words of the block, and may have begun anew meanwhile."""
    state = new_state(4)
    state.tickets.base = base
    words = np.array([base + 3, base + 2]) & WORD_MASK
    state.catch_up(words, np.array([True, False]), first=1)
    assert state.tickets_of(state.all).tolist() == [base, base + 3, base + 2, base]
    assert (state.send_count, state.waiting, state.unstarted) == (1, 0, 3)
    state.catch_up(words, np.array([True, True]), first=1)  # nothing new
    assert state.tickets_of(state.all).tolist() == [base, base + 3, base + 2, base]
    assert (state.send_count, state.unstarted) == (1, 2)
    state.send_all(0)
    state.done[:] = state.tickets_of(state.all) & WORD_MASK
    assert state.complete()


def test_a_task_is_forgotten_once_an_episode_began_with_it_elsewhere():
    state = new_state(3)
    state.assigned = {0: (5, "a"), 1: (5, "b"), 2: (WORD_MASK, "c")}
    state.forget_assigned(np.array([5, 6, 0]))  # begun before, after, and after
    assert state.assigned == {0: (5, "a")}


@settings(suppress_health_check=[HealthCheck.too_slow], deadline=None)
@given(moves, st.integers(1, SLOTS))
def test_of_too_many_that_are_ready_those_sent_to_longest_ago_come_first(moves, count):
    state, naive = new_state(), Naive()
    for _, slots, _ in moves:
        idle = [slot for slot in slots if slot not in naive.under_way]
        if idle:
            state.send(np.array(idle), Verb.STEP)
            naive.send(idle, (Verb.STEP, 0))
    state.done[:] = naive.done = list(naive.tickets)
    chosen = state.oldest(state.ready(), count).tolist()
    by_age = sorted(naive.under_way, key=lambda s: (naive.sent_at[s], naive.tickets[s]))
    assert chosen == sorted(by_age[:count])


def test_a_row_of_another_command_is_not_there():
    state = new_state(2)
    state.send_all(0)
    state.take_all()
    state.send_all(0)
    for words, complete in (([2, 1], False), ([2, 3], False), ([2, 2], True)):
        state.done[:] = words
        assert state.complete() == complete


def test_tickets_go_on_after_the_last_32_bit_number():
    state = new_state(2)
    state.tickets.base = WORD_MASK
    state.send_all(0)
    assert state.complete()
    state.done[:] = WORD_MASK
    assert not state.complete()


@pytest.mark.parametrize("last", [5, WORD_MASK, WORD_MASK + 1, 5 * 2**32])
def test_a_word_of_the_block_is_the_ticket_nearest_to_the_last_one(last):
    tickets = Tickets(2)
    tickets.base, tickets.offsets[1] = 3, last - 3
    for ticket in (last - 3, last, last + 1, last + 2**31 - 1):
        assert tickets.whole(1, ticket & WORD_MASK) == ticket


def test_a_slot_takes_one_command_at_a_time():
    state = new_state(3)
    state.send(np.array([1]), Verb.STEP)
    state.check_sendable(np.array([0, 2]), started=False)
    with pytest.raises(OrderError, match=r"slots \[1\] have a pending command"):
        state.check_sendable(np.array([0, 1]), started=False)
    with pytest.raises(OrderError, match=r"slots \[0, 2\] have no pending command"):
        state.check_pending(state.all)


def test_a_slot_is_reset_before_its_first_step_and_after_a_fault():
    state = new_state(3)
    reset = np.array([0, 2])
    state.start(reset, np.array([1, 1]), {})
    assert state.unstarted == 1
    with pytest.raises(OrderError, match=r"slots \[1\] have not been reset"):
        state.check_sendable(state.all, started=True)
    state.check_sendable(state.all, started=False)
    state.stop(np.array([2]))
    with pytest.raises(OrderError, match=r"slots \[1, 2\] have not been reset"):
        state.check_sendable(state.all, started=True)


def test_a_slot_whose_failure_was_noted_in_part_needs_a_reset_too():
    class Interrupting(np.ndarray):
        """Ctrl-C comes after it was written to."""

        def __setitem__(self, at, value):
            super().__setitem__(at, value)
            raise KeyboardInterrupt

    state = new_state(3)
    state.start(state.all, np.array([1, 1, 1]), {})
    state.started = state.started.view(Interrupting)
    with pytest.raises(KeyboardInterrupt):
        state.stop(np.array([2]))
    with pytest.raises(OrderError, match=r"slots \[2\] have not been reset"):
        state.check_sendable(state.all, started=True)


def test_a_slot_was_stepped_if_that_was_its_last_command_and_in_this_mode():
    state = new_state(3)
    assert not any(state.is_stepped(slot, 0) for slot in range(3))  # as by a site
    state.send_all(HOLD | WIDE_ACTIONS)
    state.take_all()
    assert state.is_stepped(0, HOLD) and not state.is_stepped(0, OFF)
    state.send(np.array([1]), Verb.STEP, OFF)
    state.send(np.array([2]), Verb.RESET, HOLD)
    stepped = [state.is_stepped(slot, mode) for slot in (1, 2) for mode in (OFF, HOLD)]
    assert stepped == [True, False, False, False]


def test_only_a_reset_that_was_the_last_command_counts_as_one():
    state = new_state(2)
    state.send(state.all, Verb.RESET)
    state.start(state.all, state.tickets_of(state.all), {})
    assert state.is_reset(0) and state.is_reset(1)
    state.take(state.all)
    state.send(np.array([1]), Verb.STEP)
    assert state.is_reset(0) and not state.is_reset(1)


def test_messages_are_kept_until_the_result_of_their_command_is_taken():
    state = new_state(3)
    state.messages = {0: ["a"], 2: ["b", "c"]}
    state.results_taken(np.array([0, 1]), np.array([False, False]))
    assert state.messages == {2: ["b", "c"]}


def test_a_task_assigned_ahead_belongs_to_the_first_episode_that_begins_after_it():
    state, slots = new_state(2), np.array([0, 1])
    state.send_all(0)
    ahead = state.tickets.of(1)
    state.assigned[1] = ahead, "push"
    told = [state.request_of(1, began) for began in (ahead - 1, ahead, ahead + 1)]
    assert told == [{}, {}, {"task": "push"}]
    state.results_taken(slots, np.array([True, True]))  # it was under way before
    assert state.assigned.keys() == {1}
    state.send_all(0)
    state.results_taken(slots, np.array([True, False]))
    assert state.assigned.keys() == {1}
    state.send_all(0)
    state.results_taken(slots, np.array([False, True]))
    assert not state.assigned
    assert state.request_of(1, state.tickets.of(1)) == {"task": "push"}


def test_every_second_is_the_policys_or_waiting_or_copying(monkeypatch):
    now = iter([0.0, 3.0, 4.0, 10.0, 11.0, 20.0])
    monkeypatch.setattr("corral.engine.pool.state.perf_counter", lambda: next(now))
    state = new_state()  # opened at 0
    state.enter()  # 3: a policy thought since
    state.send_all(0)
    state.leave()  # 4: sending took one
    state.waited_since(4.5)  # 10
    state.take_all()
    state.leave()  # 11
    state.enter()  # 20
    assert state.policy_seconds == 3.0 + 9.0
    assert state.waiting_seconds == 5.5
    assert state.copying_seconds == 2.0


@pytest.mark.parametrize(
    ("slots", "text"),
    [
        ([], "at least one integer"),
        ([0, 0], "only once"),
        ([3], "this pool has slots 0 to 2"),
        ([-1], "this pool has slots 0 to 2"),
        ([[0]], "give a list of at least one integer"),
        ([0.5], "give a list of at least one integer"),
    ],
)
def test_slots_that_cannot_be_meant_are_refused(slots, text):
    with pytest.raises(OptionError, match=text):
        chosen_slots(slots, 3)
