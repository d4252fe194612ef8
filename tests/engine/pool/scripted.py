"""An executor whose workers are lines of a script, and a pool's parts over it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from gymnasium import spaces

from corral.engine.executors.contract import Assignment
from corral.engine.faults.report import error_for
from corral.engine.faults.restart_limits import RestartBudget
from corral.engine.layout.codec import codec_for
from corral.engine.layout.columns import Columns
from corral.engine.layout.plan import (
    WORD_MASK,
    ControlViews,
    DataViews,
    plan_control,
    plan_data,
)
from corral.engine.pool.actions import Actions
from corral.engine.pool.dispatch import Dispatcher
from corral.engine.pool.fault_details import FaultDetails
from corral.engine.pool.inbox import Inbox
from corral.engine.pool.options import PoolOptions
from corral.engine.pool.questions import Questions
from corral.engine.pool.receive import Receiver, StaleViews
from corral.engine.pool.recovery import Recovery
from corral.engine.pool.state import Lifecycle, PoolState
from corral.engine.worker.commands import ResumeState
from corral.engine.worker.letters import Letter, Reply
from corral.errors import Fault

SLOTS = 4
SHARDS = [range(0, 2), range(2, 4)]


@dataclass
class ScriptedExecutor:
    """Two workers of two slots, which do what the test says."""

    survives_deaths = True
    said: list[Any] = field(default_factory=list)
    """What the pool told it, in order."""
    deaths: list[int | None] = field(default_factory=list)
    """Workers that die, each at the next call that can notice it; None: not at this."""
    inbox: list[Letter] = field(default_factory=list)
    informed: bool = False
    waits: list[tuple[int, float | None]] = field(default_factory=list)
    """Each wait's target and timeout."""
    replies: dict[int, Reply] = field(default_factory=dict)
    """What each worker answers to its next question."""
    ended: list[Fault] = field(default_factory=list)
    """The faults of workers that have ended."""
    resumed: dict[int, ResumeState] = field(default_factory=dict)
    """Where the latest replacement of each worker continues."""

    def __post_init__(self) -> None:
        self.shards = SHARDS
        plan = plan_control(SLOTS, len(SHARDS), SLOTS)
        self.control = ControlViews(plan, memoryview(bytearray(plan.size)))
        self.on_return: Any = None
        self._asked: dict[int, int] = {}

    def _die(self) -> None:
        if self.deaths:
            worker = self.deaths.pop(0)
            if worker is None:
                return
            raise error_for(
                Fault(kind="died", command="step", worker=worker, slot=None, pid=1)
            )

    def send_all(self, mode: int) -> None:
        self.said.append(("all", mode))

    def send(self, slots: Any, verb: Any, mode: int) -> None:
        self.said.append((slots.tolist(), verb.name, mode))

    def post(self, messages: Any) -> None:
        self._die()
        self.said.extend(messages)

    def each_asked(self, questions: Any) -> Iterator[int]:
        for worker, question in questions.items():
            self._die()
            self.said.append((worker, question))
            self._asked[worker] = question.number
            yield worker

    def is_asked(self, worker: int, number: int) -> bool:
        return self._asked.get(worker) == number

    def answers(self, workers: Any, timeout: Any) -> dict[int, Reply] | None:
        self._die()
        if not self.replies.keys() >= set(workers):
            return None
        self._asked = {}
        return {worker: self.replies.pop(worker) for worker in workers}

    def answered(self, workers: Any) -> dict[int, Reply]:
        return {one: said for one, said in self.replies.items() if one in workers}

    def wait(self, target: int, timeout: Any, is_done: Any, only_some: bool) -> bool:
        self.waits.append((target, timeout))
        self._die()
        return bool(is_done())

    def check_workers(self) -> None:
        pass

    def arrivals(self) -> tuple[list[Letter], bool]:
        self._die()
        letters, self.inbox = self.inbox, []
        return letters, self.informed

    def ended_workers(self) -> list[Fault]:
        return self.ended

    def last_letters(self, worker: int) -> list[Letter]:
        own = [one for one in self.inbox if one.slot in SHARDS[worker]]
        self.inbox = [one for one in self.inbox if one not in own]
        return own

    def replace(self, worker: int, resume: Any, delay: float) -> None:
        self.said.append(("replace", worker, resume.tickets))
        self.resumed[worker] = resume
        self.control.vitals[worker] = 0
        self._asked.pop(worker, None)

    def output(self, worker: int) -> str:
        return ""


class Parts:
    """State, dispatcher and receiver of a pool whose obs and actions are floats.

    Args:
        base: the tickets of all slots at first.
        options: see `PoolOptions`.
    """

    def __init__(self, base: int = 0, **options: Any) -> None:
        asked = PoolOptions(**options)
        budget = RestartBudget(asked.max_restarts, asked.restarts_per_minute)
        self.executor = executor = ScriptedExecutor()
        codec = codec_for(spaces.Box(-9, 9, (1,), np.float32))
        plan = plan_data(SLOTS, codec, codec, start=0)
        self.views = DataViews(plan, memoryview(bytearray(plan.size)))
        self.state = PoolState(SLOTS, executor.control.done)
        self.state.tickets.base = base
        self.state.done[:] = base & WORD_MASK
        self.actions = Actions(codec, self.views)
        self.lifecycle = Lifecycle()
        self.lifecycle.open()
        columns = Columns(self.views.arena, self.views.presence)
        self.inbox = Inbox(codec, columns, empty_finals=True)
        assignment: Assignment = asked.assignment([None] * SLOTS, budget, True)
        any_executor: Any = executor
        details = FaultDetails(
            *(assignment, executor.shards, False),
            *(any_executor, self.state, self.actions, self.views),
        )
        self.recovery = Recovery(asked, budget, self.inbox, details)
        self.dispatcher = Dispatcher(self.lifecycle, details, self.recovery)
        self.questions = Questions(self.dispatcher)
        self.receiver = Receiver(
            self.dispatcher, codec, self.views, self.inbox, StaleViews(), same_step=True
        )

    def reset(self) -> None:
        """Every slot begins an episode, and its result is taken."""
        self.dispatcher.reset(self.state.all, [-1] * SLOTS, {})
        self.finish(*range(SLOTS))
        self.receiver.take(self.state.all, True, False)
        self.executor.said.clear()

    def step_all(self, first: float = 0.0) -> None:
        batch = np.arange(first, first + SLOTS, dtype=np.float32)[:, None]
        self.dispatcher.step_all([batch], 0)

    def finish(self, *slots: int) -> None:
        """The workers finish what these slots were sent: observation = ticket."""
        for slot in slots:
            ticket = self.state.tickets.of(slot)
            row = ticket & 1
            self.views.obs[0][row, slot] = ticket
            self.views.record["reward"][row, slot] = 10 * ticket + slot
            self.views.record["valid"][row, slot] = True
            self.executor.control.done[slot] = ticket & WORD_MASK
