"""Replaces workers that end or hang.

    a worker is gone ── budget left? ── no ──► the error, as without restarts
                            │ yes
         read what it left · start another · continue with the survivors meanwhile
                            │ it has returned
         send it what the others know · send the pending commands again

The observations of its slots are still in the block, so each of their episodes is
truncated: one row, truncated and not valid, with the fault in its info. Results that
were finished before, and slots between two episodes, lose nothing.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable
from copy import deepcopy
from dataclasses import replace
from typing import Any

import numpy as np

from corral.engine.faults.report import error_for
from corral.engine.faults.restart_limits import RestartBudget
from corral.engine.layout.plan import (
    AFTER_SITE_CALL,
    AFTER_STEP,
    EPISODE_NUMBER,
    EPISODE_RESTARTS,
    RETIREMENT_STAGE,
    ROW_MASK,
)
from corral.engine.pool.fault_details import FaultDetails
from corral.engine.pool.inbox import Inbox
from corral.engine.pool.options import PoolOptions
from corral.engine.pool.state import Chosen, Command
from corral.engine.worker import commands
from corral.engine.worker.commands import ResumeState
from corral.engine.worker.record import (
    EPISODE_LOST,
    EPISODE_OVER,
    HAS_INFOS,
    NEXT_EPISODE_DUE,
)
from corral.errors import Fault, FaultError

# Faults that `Pool.faults` keeps, the latest.
MAX_REMEMBERED_FAULTS = 1000
# Those of them, the latest, that come with all their actions.
MAX_REPLAYABLE_FAULTS = 100


class Recovery:
    """Replaces workers, where the pool's options ask for that."""

    def __init__(
        self,
        options: PoolOptions,
        budget: RestartBudget,
        inbox: Inbox,
        fault_details: FaultDetails,
    ) -> None:
        self._options = options
        self._budget = budget
        self._inbox = inbox
        self._fault_details = fault_details
        self._executor = fault_details.executor
        self._state = fault_details.state
        self._record = fault_details.views.record
        # Whether workers are ever replaced.
        self.active = options.restarts_workers or bool(options.memory_limit)
        # By slot: the tickets after which an episode was lost, and the faults.
        self._lost_episodes: dict[int, list[tuple[int, Fault]]] = {}
        # The root seed is one of them: new workers start with it.
        self._shard_options = fault_details.assignment.options
        # By slot: the ticket after which the root seed was set.
        self._root_tickets = np.full(self._state.count, -1)
        # By worker: the root seed that its replacement was given.
        self._given_roots: dict[int, int] = {}
        # By worker: how often it was replaced.
        self.replaced = [0] * len(self._executor.shards)
        # Whether a worker was replaced; rings may be lost from then on.
        self.recovered = False
        self.faults: deque[Fault] = deque(maxlen=MAX_REMEMBERED_FAULTS)
        # Number of faults that ended in a restart, also those no longer kept.
        self.count = 0
        # Called in the caller's thread with each of them.
        self.on_restart: Callable[[Fault], None] | None = None
        self._executor.on_return = self._worker_returned

    # Called by the pool ---------------------------------------------------------------

    def set_root_seed(self, seed: int) -> None:
        """Episodes that begin from here on have their seeds from this one."""
        self._shard_options.root_seed = seed
        self._root_tickets = self._state.tickets_of(self._state.all)

    def before_results(self, slots: Chosen) -> None:
        """These slots' results are about to be received."""
        for slot in slots.tolist() if self._lost_episodes else ():
            lost = self._lost_episodes.get(slot)
            if lost and self._state.tickets.of(slot) > lost[0][0]:
                self._inbox.add_restart(slot, lost.pop(0)[1])
                if not lost:
                    del self._lost_episodes[slot]

    def lost_in(self, slots: range) -> dict[int, Fault]:
        """The lost episodes that the next rows of these slots tell of, by index."""
        lost = self._lost_episodes.keys() & slots if self._lost_episodes else ()
        return {slot - slots.start: self._lost_episodes[slot][0][1] for slot in lost}

    def tell_lost(self, faults: dict[int, Fault]) -> None:
        """Have the next rows of these slots tell of lost episodes."""
        for slot, fault in faults.items():
            self._lost_episodes[slot] = [(self._state.tickets.of(slot), fault)]
            self.active = True

    def forget_lost(self, told: range = range(0)) -> None:
        """Forget lost episodes that these slots, or rows since then, have told of."""
        for slot in [*self._lost_episodes]:
            ticket = self._state.tickets.of(slot)
            lost = [one for one in self._lost_episodes.pop(slot) if one[0] >= ticket]
            if lost and slot not in told:
                self._lost_episodes[slot] = lost

    # Replacing ------------------------------------------------------------------------

    def recover(self, error: FaultError) -> Fault:
        """Replace a worker, or raise the error if it may not be replaced."""
        worker = error.fault.worker
        if worker is None or not self.active:
            raise error
        stage = int(self._executor.control.vitals[worker, RETIREMENT_STAGE])
        if not (stage or self._options.restarts(error.fault.kind)):
            raise error
        # Keep what it posted about finished results; a worker that was retired after a
        # step has finished that step.
        self._inbox.add(self._executor.last_letters(worker))
        if stage != AFTER_STEP:
            for slot in self._state.unfinished(self._executor.shards[worker]):
                self._inbox.letters.pop(slot, None)
        fault = self._fault_details.of_dead_worker(error.fault)
        delay = 0.0 if stage else self._delay(fault, worker)
        fault = replace(fault, replaced=True)
        resume = self._resume(worker, fault, stage)
        self._given_roots[worker] = self._shard_options.root_seed
        self.recovered = True
        self.replaced[worker] += 1
        self._executor.replace(worker, resume, delay)
        self._state.questions.pop(worker, None)
        if not stage:
            self._remember(fault)
        return fault

    def _delay(self, fault: Fault, worker: int) -> float:
        spender = ("worker", worker) if fault.slot is None else fault.slot
        delay = self._budget.spend(spender, time.monotonic())
        if delay is None:
            restarts = self._budget.count(spender)
            raise error_for(replace(fault, restarts=restarts, gave_up=True))
        return delay

    def _resume(self, worker: int, fault: Fault, stage: int) -> ResumeState:
        """Where the new worker continues; unfinished episodes are lost."""
        shard = self._executor.shards[worker]
        done = self._executor.control.done[shard.start : shard.stop].tolist()
        care = bytearray()
        for slot, word in zip(shard, done, strict=True):
            ticket = self._state.tickets.whole(slot, word)
            if ticket <= self._root_tickets[slot]:  # no episode of this root seed yet
                words = self._executor.control.episode[slot]
                words[EPISODE_NUMBER], words[EPISODE_RESTARTS] = -1, 0
            found = self._progress(slot, ticket, stage)
            if not stage and (found == EPISODE_LOST or slot == fault.slot):
                self._lose_episode(slot, ticket, fault)
            care.append(HAS_INFOS | found)
        tasks = [self._fault_details.task_of(slot) for slot in shard]
        return ResumeState(done, bytes(care), [], tasks)

    def _progress(self, slot: int, ticket: int, stage: int) -> int:
        """How far the slot's episode was, as the new worker is told."""
        if stage == AFTER_STEP:
            return NEXT_EPISODE_DUE
        if self._fault_details.episode_is_over(slot):
            return EPISODE_OVER
        running = stage in (0, AFTER_SITE_CALL)
        lost = self._state.started[slot] and ticket and running
        return EPISODE_LOST if lost else 0

    def _lose_episode(self, slot: int, ticket: int, fault: Fault) -> None:
        """Report a fault with the slot's next row.

        The first fault counts: a replacement that cannot be started adds nothing. A
        replacement that ended does, if the row before was not received yet.
        """
        lost = self._lost_episodes.setdefault(slot, [])
        if not lost or lost[-1][0] != ticket:
            if slot != fault.slot:
                beside = fault.slot
                fault = replace(
                    fault, kind="shardmate", command="step", beside=beside, episode=None
                )
                fault = self._fault_details.of_lost_slot(fault, slot)
            lost.append((ticket, fault))

    def _worker_returned(self, worker: int) -> None:
        """Send a new worker what the others know, and the pending commands again."""
        executor, shard = self._executor, self._executor.shards[worker]
        messages: list[Any] = [commands.NewColumns(list(self._inbox.columns.defined))]
        root = self._shard_options.root_seed
        if self._given_roots[worker] != root:
            messages.append(commands.NewRootSeed(root))
        for slot in sorted(self._state.assigned.keys() & shard):
            after, task = self._state.assigned[slot]
            # An episode that began with it may not have been received yet.
            word = int(executor.control.done[slot])
            done = self._state.tickets.whole(slot, word)
            if done <= after or not self._record["started"][done & ROW_MASK, slot]:
                index = slot - shard.start
                messages.append(commands.NextEpisode(index, task=task))
        by_command: dict[Command, list[int]] = {}
        for slot in self._state.unfinished(shard):
            messages += self._state.messages.get(slot, ())
            by_command.setdefault(self._state.command(slot), []).append(slot)
        executor.post([(worker, message) for message in messages])
        for command, slots in by_command.items():
            executor.send(np.array(slots), *command)

    def env_rebuilt(self, fault: Fault) -> None:
        """Count the restart of an env that its worker has built again."""
        self._budget.note(fault.slot, time.monotonic())
        self._remember(fault)

    def take_faults(self) -> tuple[Fault, ...]:
        """The faults remembered so far, which are forgotten."""
        faults = tuple(self.faults)
        self.faults.clear()
        return faults

    def _remember(self, fault: Fault) -> None:
        self.count += 1
        self.faults.append(fault)
        if len(self.faults) > MAX_REPLAYABLE_FAULTS:
            old = self.faults[-1 - MAX_REPLAYABLE_FAULTS]
            shown = deepcopy(old.last_actions)  # these are views of all its actions
            old = replace(old, episode=None, last_actions=shown)
            self.faults[-1 - MAX_REPLAYABLE_FAULTS] = old
        if self.on_restart is not None:
            self.on_restart(fault)
