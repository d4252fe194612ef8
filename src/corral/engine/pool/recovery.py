"""What a pool does about workers that end or hang: others take their place.

    a worker is gone ── budget left? ── no ──► the error, as if nothing could be mended
                            │ yes
         read what it left · start another · go on with the survivors meanwhile
                            │ it has returned
         tell it what it must know · send again what was under way

Its slots' observations are still in the block, so each of their episodes is cut short
where it stood: one row, truncated and not valid, with the fault in its info. Results
that were finished before, and slots between two episodes, lose nothing.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from corral.core import NO_TASK
from corral.engine.executors.contract import Executor
from corral.engine.faults.report import error_for
from corral.engine.faults.restart_limits import RestartBudget
from corral.engine.layout.plan import (
    AFTER_STEP,
    NUMBER,
    RESTARTS,
    TICKET_MASK,
    DataViews,
)
from corral.engine.pool.fault_details import Witness
from corral.engine.pool.inbox import Inbox
from corral.engine.pool.ledger import Ledger
from corral.engine.worker import commands
from corral.engine.worker.commands import Verb
from corral.engine.worker.record import LOST, NOISY, OVER, RESUMED
from corral.engine.worker.shard import Resume
from corral.errors import Fault, FaultError

LOOK = 0.02
"""Seconds between looks at the workers while results keep coming."""
REMEMBERED = 1000
"""Faults that a pool can tell of."""
REPLAYABLE = 100
"""Those of them, the latest, that come with all their actions."""


@dataclass(frozen=True, slots=True)
class Policy:
    """Which faults are mended, and how often."""

    deaths: bool = False
    hangs: bool = False
    budget: RestartBudget | None = None

    def mends(self, fault: Fault, retired: bool) -> bool:
        """Whether another worker takes the place of this one."""
        return retired or (self.hangs if fault.kind == "hung" else self.deaths)


class Mender:
    """Replaces workers, and remembers what they would have to be told again."""

    def __init__(
        self,
        policy: Policy,
        executor: Executor,
        ledger: Ledger,
        inbox: Inbox,
        views: DataViews,
        witness: Witness,
    ) -> None:
        self._policy = policy
        self._executor = executor
        self._ledger = ledger
        self._inbox = inbox
        self._views = views
        self._witness = witness
        self._looked = 0.0
        self._whole: tuple[Verb, int] = (Verb.STEP, 0)
        self._single: dict[int, tuple[Verb, int]] = {}
        """The commands under way, where they were sent slot by slot."""
        self._held: dict[int, list[Any]] = {}
        """What was told about the command under way, by slot."""
        self._assigned: dict[int, tuple[int, Any]] = {}
        """Tasks that no episode has begun with, and the ticket that each came after."""
        self._lost: dict[int, list[tuple[int, Fault]]] = {}
        """Slots whose episode ended with a worker: after which tickets, and why."""
        self._root: int | None = None
        self._rooted = np.full(ledger.count, -1)
        """By slot: the ticket after which the root seed was set."""
        self._new_roots: dict[int, int | None] = {}
        """The root seed that a worker on its way was given."""
        self.mended = False
        """Whether anything was; from then on rings may be off, and results decide."""
        self.faults: deque[Fault] = deque(maxlen=REMEMBERED)
        self.count = 0
        """All faults that were mended, also those that are forgotten."""
        self.on_restart: Callable[[Fault], None] | None = None
        """Called in the caller's thread with each of them, as soon as it is known."""
        executor.on_return = self._returned

    # What the pool tells --------------------------------------------------------------

    def sent(self, slots: NDArray[np.intp] | None, verb: Verb, mode: int) -> None:
        """Remember a command; None for all slots."""
        if slots is None:
            self._single.clear()
            self._whole = verb, mode
        else:
            self._single.update(dict.fromkeys(slots.tolist(), (verb, mode)))

    def told(self, slot: int, message: Any) -> None:
        """Remember what was said about the command under way."""
        self._held.setdefault(slot, []).append(message)

    def assigned(self, slot: int, task: Any) -> None:
        """Remember a task for an episode to come."""
        (ticket,) = self._ledger.tickets(np.array([slot])).tolist()
        self._assigned[slot] = ticket, task

    def rooted(self, seed: int) -> None:
        """Remember a new root seed."""
        self._root = seed
        self._rooted = self._ledger.tickets(self._ledger.all)

    def taking(self, slots: NDArray[np.intp]) -> None:
        """These slots' results are about to be received."""
        if not self._lost:
            return
        tickets = self._ledger.tickets(slots).tolist()
        for slot, ticket in zip(slots.tolist(), tickets, strict=True):
            lost = self._lost.get(slot)
            if lost and ticket > lost[0][0]:
                self._inbox.restarted(slot, lost.pop(0)[1])
                if not lost:
                    del self._lost[slot]

    def took(self, slots: NDArray[np.intp], started: NDArray[np.bool_]) -> None:
        """These slots' results were received."""
        if self._held:
            for slot in slots.tolist():
                self._held.pop(slot, None)
        if self._assigned:
            self._forget_tasks(slots, started)

    def _forget_tasks(
        self, slots: NDArray[np.intp], started: NDArray[np.bool_]
    ) -> None:
        tickets = self._ledger.tickets(slots)
        for slot, ticket in zip(slots[started].tolist(), tickets[started], strict=True):
            if slot in self._assigned and ticket > self._assigned[slot][0]:
                del self._assigned[slot]

    # Waiting --------------------------------------------------------------------------

    def look(self, now: float) -> None:
        """Every now and then: others that are quick must not hide one that is gone."""
        if now - self._looked > LOOK:
            self._looked = now
            self._executor.look()

    # Mending --------------------------------------------------------------------------

    def mend(self, error: FaultError) -> None:
        """Have a worker replaced, or raise what cannot be mended."""
        worker = error.fault.worker
        if worker is None:
            raise error
        stage = self._executor.retired(worker)
        if not self._policy.mends(error.fault, stage > 0):
            raise error
        self._read_last_letters(worker, stage)
        fault = self._witness.gone(error.fault, worker)
        delay = 0.0 if stage else self._delay(fault, worker)
        resume = self._resume(worker, fault, stage)
        self._new_roots[worker] = self._root
        self.mended = True
        self._executor.replace(worker, resume, delay)
        if not stage:
            self._remember(fault)

    def _delay(self, fault: Fault, worker: int) -> float:
        budget = self._policy.budget
        assert budget is not None
        who = ("worker", worker) if fault.slot is None else fault.slot
        delay = budget.spend(who, time.monotonic())
        if delay is None:
            count = budget.count(who)
            raise error_for(replace(fault, restarts=count, gave_up=True))
        return delay

    def _read_last_letters(self, worker: int, stage: int) -> None:
        """What it posted about results that it finished; the rest is void.

        But for who made room after a step: that stands, and what was told of its end.
        """
        self._inbox.add(self._executor.last_letters(worker))
        if stage != AFTER_STEP:
            for slot in self._unfinished(worker):
                self._inbox.letters.pop(slot, None)

    def _unfinished(self, worker: int) -> list[int]:
        slots = self._ledger.all[list(self._executor.shards[worker])]
        pending = self._ledger.pending()[slots]
        tickets = self._ledger.tickets(slots) & TICKET_MASK
        late = slots[pending & (self._executor.done[slots] != tickets)]
        return [int(slot) for slot in late]

    def _resume(self, worker: int, fault: Fault, stage: int) -> Resume:
        """Where the new one goes on; slots in the middle of an episode are lost."""
        shard = self._executor.shards[worker]
        tickets = self._executor.done[shard.start : shard.stop].tolist()
        care = bytearray(NOISY for _ in shard)
        record = self._views.record
        for index, (slot, ticket) in enumerate(zip(shard, tickets, strict=True)):
            self._count_from_the_root(slot, ticket)
            row = record[ticket & 1, slot]
            ended = bool(row["terminated"] or row["truncated"]) and not row["started"]
            if stage == AFTER_STEP:
                care[index] |= RESUMED
            elif ended:
                care[index] |= OVER
            elif self._ledger.was_started(slot) and ticket and not stage:
                care[index] |= LOST
            if care[index] & LOST or (slot == fault.slot and not stage):
                self._lose(slot, ticket, fault)
        tasks = [self._witness.task_of(slot) for slot in shard]
        return Resume(tickets, bytes(care), [], tasks)

    def _count_from_the_root(self, slot: int, ticket: int) -> None:
        """What the block says of a slot no episode of the present root was seen of."""
        if ticket <= self._rooted[slot]:
            words = self._executor.episode[slot]
            words[NUMBER], words[RESTARTS] = -1, 0

    def _lose(self, slot: int, ticket: int, fault: Fault) -> None:
        """Have a fault told with the slot's next row.

        The first one tells the story: a new worker that cannot be started adds nothing.
        One that ended in its turn does, if nobody has taken the row it left.
        """
        lost = self._lost.setdefault(slot, [])
        if not lost or lost[-1][0] != ticket:
            lost.append((ticket, self._fault_of(slot, fault)))

    def _fault_of(self, slot: int, fault: Fault) -> Fault:
        """The fault as a slot's own; one beside the slot that broke lost its worker."""
        if slot == fault.slot:
            return fault
        beside = replace(fault, kind="shardmate", command="step", beside=fault.slot)
        return self._witness.lost(replace(beside, episode=None), slot)

    def _returned(self, worker: int) -> None:
        """Tell a new worker what the others know, and send again what is under way."""
        executor, first = self._executor, self._executor.shards[worker].start
        executor.tell(worker, commands.Columns(self._inbox.columns))
        if self._root is not None and self._new_roots.get(worker) != self._root:
            executor.tell(worker, commands.Root(self._root))
        for slot in executor.shards[worker]:
            after, task = self._assigned.get(slot, (0, NO_TASK))
            if task is not NO_TASK and not self._has_begun(slot, after):
                executor.tell(worker, commands.Episode(slot - first, task=task))
        unfinished = self._unfinished(worker)
        for slot in unfinished:
            for message in self._held.get(slot, ()):
                executor.tell(worker, message)
        for command, slots in self._by_command(unfinished).items():
            executor.send(np.array(slots), *command)

    def _has_begun(self, slot: int, after: int) -> bool:
        """Whether an episode began after that ticket which nobody has taken yet."""
        done = int(self._executor.done[slot])
        return done > after and bool(self._views.record["started"][done & 1, slot])

    def _by_command(self, slots: Iterable[int]) -> dict[tuple[Verb, int], list[int]]:
        groups: dict[tuple[Verb, int], list[int]] = {}
        for slot in slots:
            groups.setdefault(self._single.get(slot, self._whole), []).append(slot)
        return groups

    def note(self, fault: Fault) -> None:
        """A worker has built an env again."""
        assert self._policy.budget is not None
        self._policy.budget.note(fault.slot, time.monotonic())
        self._remember(fault)

    def _remember(self, fault: Fault) -> None:
        self.count += 1
        self.faults.append(fault)
        if len(self.faults) > REPLAYABLE:
            old = self.faults[-1 - REPLAYABLE]
            self.faults[-1 - REPLAYABLE] = replace(old, episode=None)
        if self.on_restart is not None:
            self.on_restart(fault)
