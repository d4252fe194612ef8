"""Replaces workers that end or hang.

    a worker is gone ── budget left? ── no ──► the error, as without restarts
                            │ yes
         read what it left · start another · go on with the survivors meanwhile
                            │ it has returned
         send it what the others know · send again what was under way

The observations of its slots are still in the block, so each of their episodes is
truncated: one row, truncated and not valid, with the fault in its info. Results that
were finished before, and slots between two episodes, lose nothing.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from corral.core import NO_TASK
from corral.engine.executors.contract import Executor
from corral.engine.faults.report import error_for
from corral.engine.layout.plan import (
    AFTER_STEP,
    EPISODE_NUMBER,
    EPISODE_RESTARTS,
    DataViews,
)
from corral.engine.pool.fault_details import FaultDetails
from corral.engine.pool.inbox import Inbox
from corral.engine.pool.options import FaultPolicy
from corral.engine.pool.state import Command, PoolState
from corral.engine.worker import commands
from corral.engine.worker.commands import ResumeState
from corral.engine.worker.record import (
    EPISODE_LOST,
    EPISODE_OVER,
    HAS_INFOS,
    NEXT_EPISODE_DUE,
)
from corral.errors import Fault, FaultError

HEALTH_CHECK_INTERVAL = 0.02
"""Seconds between looks at the workers while results keep coming."""
MAX_REMEMBERED_FAULTS = 1000
"""Faults that `Pool.faults` keeps, the latest."""
MAX_REPLAYABLE_FAULTS = 100
"""Those of them, the latest, that come with all their actions."""


class Recovery:
    """Replaces workers; a new one is sent again what was under way."""

    def __init__(
        self,
        policy: FaultPolicy,
        executor: Executor,
        state: PoolState,
        inbox: Inbox,
        views: DataViews,
        fault_details: FaultDetails,
    ) -> None:
        self._policy = policy
        self._executor = executor
        self._state = state
        self._inbox = inbox
        self._views = views
        self._fault_details = fault_details
        self._last_check = 0.0
        self._lost_episodes: dict[int, list[tuple[int, Fault]]] = {}
        """By slot: the tickets after which an episode was lost, and the faults."""
        self._root: int | None = None
        self._root_tickets = np.full(state.count, -1)
        """By slot: the ticket after which the root seed was set."""
        self._new_roots: dict[int, int | None] = {}
        """By worker: the root seed that its replacement was given."""
        self.recovered = False
        """Whether a worker was replaced; rings may be lost from then on."""
        self.faults: deque[Fault] = deque(maxlen=MAX_REMEMBERED_FAULTS)
        self.count = 0
        """Number of faults that ended in a restart, also those no longer kept."""
        self.on_restart: Callable[[Fault], None] | None = None
        """Called in the caller's thread with each of them."""
        executor.on_return = self._worker_returned

    # Called by the pool ---------------------------------------------------------------

    def root_seed_set(self, seed: int) -> None:
        """Remember a new root seed."""
        self._root = seed
        self._root_tickets = self._state.tickets_of(self._state.all)

    def before_results(self, slots: NDArray[np.intp]) -> None:
        """These slots' results are about to be received."""
        if not self._lost_episodes:
            return
        tickets = self._state.tickets_of(slots).tolist()
        for slot, ticket in zip(slots.tolist(), tickets, strict=True):
            lost = self._lost_episodes.get(slot)
            if lost and ticket > lost[0][0]:
                self._inbox.add_restart(slot, lost.pop(0)[1])
                if not lost:
                    del self._lost_episodes[slot]

    # Waiting --------------------------------------------------------------------------

    def check_workers(self, now: float) -> None:
        """Check all workers every 20 ms: quick ones must not hide one that died."""
        if now - self._last_check > HEALTH_CHECK_INTERVAL:
            self._last_check = now
            self._executor.check_workers()

    # Replacing ------------------------------------------------------------------------

    def recover(self, error: FaultError) -> None:
        """Replace a worker, or raise the error if it may not be replaced."""
        worker = error.fault.worker
        if worker is None:
            raise error
        stage = self._executor.retirement_stage(worker)
        if not self._policy.recovers(error.fault, stage > 0):
            raise error
        self._read_last_letters(worker, stage)
        fault = self._fault_details.of_dead_worker(error.fault, worker)
        delay = 0.0 if stage else self._delay(fault, worker)
        resume = self._resume(worker, fault, stage)
        self._new_roots[worker] = self._root
        self.recovered = True
        self._executor.replace(worker, resume, delay)
        if not stage:
            self._remember(fault)

    def _delay(self, fault: Fault, worker: int) -> float:
        budget = self._policy.budget
        assert budget is not None
        spender = ("worker", worker) if fault.slot is None else fault.slot
        delay = budget.spend(spender, time.monotonic())
        if delay is None:
            restarts = budget.count(spender)
            raise error_for(replace(fault, restarts=restarts, gave_up=True))
        return delay

    def _read_last_letters(self, worker: int, stage: int) -> None:
        """Keep what it posted about finished results, and drop the rest.

        A worker that was retired after a step has finished that step.
        """
        self._inbox.add(self._executor.last_letters(worker))
        if stage != AFTER_STEP:
            for slot in self._unfinished(worker):
                self._inbox.letters.pop(slot, None)

    def _unfinished(self, worker: int) -> list[int]:
        return self._state.unfinished(self._executor.shards[worker])

    def _resume(self, worker: int, fault: Fault, stage: int) -> ResumeState:
        """Where the new worker continues; episodes under way are lost."""
        shard = self._executor.shards[worker]
        tickets = self._executor.done[shard.start : shard.stop].tolist()
        care = bytearray(HAS_INFOS for _ in shard)
        record = self._views.record
        for index, (slot, ticket) in enumerate(zip(shard, tickets, strict=True)):
            self._restart_episode_count(slot, ticket)
            row = record[ticket & 1, slot]
            ended = bool(row["terminated"] or row["truncated"]) and not row["started"]
            if stage == AFTER_STEP:
                care[index] |= NEXT_EPISODE_DUE
            elif ended:
                care[index] |= EPISODE_OVER
            elif self._state.was_started(slot) and ticket and not stage:
                care[index] |= EPISODE_LOST
            if care[index] & EPISODE_LOST or (slot == fault.slot and not stage):
                self._lose_episode(slot, ticket, fault)
        tasks = [self._fault_details.task_of(slot) for slot in shard]
        return ResumeState(tickets, bytes(care), [], tasks)

    def _restart_episode_count(self, slot: int, ticket: int) -> None:
        """Reset the count of a slot that has no episode of the present root seed."""
        if ticket <= self._root_tickets[slot]:
            words = self._executor.episode[slot]
            words[EPISODE_NUMBER], words[EPISODE_RESTARTS] = -1, 0

    def _lose_episode(self, slot: int, ticket: int, fault: Fault) -> None:
        """Report a fault with the slot's next row.

        The first fault counts: a replacement that cannot be started adds nothing. A
        replacement that ended does, if the row before was not received yet.
        """
        lost = self._lost_episodes.setdefault(slot, [])
        if not lost or lost[-1][0] != ticket:
            lost.append((ticket, self._fault_of(slot, fault)))

    def _fault_of(self, slot: int, fault: Fault) -> Fault:
        """The fault as this slot's own: its own, or its shardmate's."""
        if slot == fault.slot:
            return fault
        beside = replace(fault, kind="shardmate", command="step", beside=fault.slot)
        return self._fault_details.of_lost_slot(replace(beside, episode=None), slot)

    def _worker_returned(self, worker: int) -> None:
        """Send a new worker what the others know, and again what is under way."""
        executor, first = self._executor, self._executor.shards[worker].start
        executor.post(worker, commands.NewColumns(self._inbox.columns))
        if self._root is not None and self._new_roots.get(worker) != self._root:
            executor.post(worker, commands.NewRootSeed(self._root))
        assigned = self._state.requests.assigned
        for slot in executor.shards[worker]:
            after, task = assigned.get(slot, (0, NO_TASK))
            if task is not NO_TASK and not self._has_begun(slot, after):
                executor.post(worker, commands.NextEpisode(slot - first, task=task))
        unfinished = self._unfinished(worker)
        for slot in unfinished:
            for message in self._state.messages.get(slot, ()):
                executor.post(worker, message)
        by_command: dict[Command, list[int]] = {}
        for slot in unfinished:
            by_command.setdefault(self._state.command(slot), []).append(slot)
        for command, slots in by_command.items():
            executor.send(np.array(slots), *command)

    def _has_begun(self, slot: int, after: int) -> bool:
        """Whether an episode began after that ticket and was not received yet."""
        done = int(self._executor.done[slot])
        return done > after and bool(self._views.record["started"][done & 1, slot])

    def env_rebuilt(self, fault: Fault) -> None:
        """Count the restart of an env that its worker has built again."""
        assert self._policy.budget is not None
        self._policy.budget.note(fault.slot, time.monotonic())
        self._remember(fault)

    def _remember(self, fault: Fault) -> None:
        self.count += 1
        self.faults.append(fault)
        if len(self.faults) > MAX_REPLAYABLE_FAULTS:
            old = self.faults[-1 - MAX_REPLAYABLE_FAULTS]
            self.faults[-1 - MAX_REPLAYABLE_FAULTS] = replace(old, episode=None)
        if self.on_restart is not None:
            self.on_restart(fault)
