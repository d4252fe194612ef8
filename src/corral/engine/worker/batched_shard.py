"""A shard whose slots are one vector of environments, advanced with one call.

It obeys the same commands as a shard of single envs and answers them slot by slot, so
the pool sees no difference. One call serves:

    step    every slot of the command whose episode is running
    reset   every slot whose episode begins in the command

The slots of one command come as consecutive entries (`commands.MORE_FOLLOWS`).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from corral.core import EnvSpec
from corral.engine.adapters.batched import Outcome
from corral.engine.layout.codec import Codecs
from corral.engine.layout.plan import (
    BEFORE_RESET,
    BUSY_SINCE,
    CURRENT_COMMAND,
    CURRENT_SLOT,
    NO_SLOT,
    RESETTING,
    STEPPING,
    TICKET_MASK,
    DataViews,
)
from corral.engine.worker import autoreset
from corral.engine.worker.batch_table import BatchTable
from corral.engine.worker.commands import MORE_FOLLOWS, WIDE_ACTIONS, ResumeState
from corral.engine.worker.endpoint import WorkerEndpoint
from corral.engine.worker.episode_plan import EpisodePlan
from corral.engine.worker.record import EPISODE_LOST, EPISODE_OVER, NEEDS_CARE
from corral.engine.worker.shard import Shard
from corral.engine.worker.shard_envs import BatchEnvs
from corral.errors import Fault


class BatchedShard(Shard):
    """One vector of environments; its sub-envs are the slots."""

    envs_type = BatchEnvs
    envs: BatchEnvs

    # Building -------------------------------------------------------------------------

    def build(self, factories: Sequence[Callable[..., Any]]) -> list[EnvSpec]:
        """Build the one env; the factory is the same for every slot."""
        self._gathered: list[tuple[int, int | None]] = []
        self._prepared: dict[int, BaseException | None] = {}
        """Slots whose next episode is decided; or what kept it from being so."""
        self._began: dict[int, tuple[Any, float]] = {}
        """What resets returned, until it is asked for, and the time that each took."""
        self._lost: dict[int, Fault] = {}
        """Slots whose episode ended with the env, and why."""
        specs = super().build(factories)
        self._batch = self.envs.batch
        if self._batch.resets_itself is not None:
            name = type(self._batch.env).__name__
            self.plan = EpisodePlan(self.slots, self.options, self_resetting=name)
        return specs

    def bind(
        self,
        views: DataViews,
        codecs: Codecs,
        endpoint: WorkerEndpoint,
        resume: ResumeState | None = None,
    ) -> None:
        """Take this shard's part of the block, or take it over."""
        super().bind(views, codecs, endpoint, resume)
        part = slice(self.slots.start, self.slots.stop)
        self._table = BatchTable.of(codecs, views, part, endpoint.control.times[part])
        self._tickets_done = np.asarray(self._done)
        self._cares = np.frombuffer(self.care, np.uint8)
        if resume is not None:
            self._make_steppable()

    # Commands -------------------------------------------------------------------------

    def step_all(self, mode: int) -> None:
        """Step every slot of the shard."""
        going = self._cares & NEEDS_CARE == 0
        if self._table is None or not going.any() or not self.tickets.level():
            self._step_together(list(range(len(self.slots))), mode)
            return
        wide, mode = divmod(mode, WIDE_ACTIONS)
        self._step_whole(self._table, going, mode, wide)

    def _step_whole(
        self, table: BatchTable, going: NDArray[np.bool_], mode: int, wide: int
    ) -> None:
        """The same with arrays; results that are not plain are handled one by one."""
        self.tickets.base += 1
        ticket, rest = self.tickets.base, list(range(len(self.slots)))
        result: Any = None
        error: BaseException | None = None
        began = time.perf_counter()
        self._vitals[BUSY_SINCE], self._vitals[CURRENT_SLOT] = began, 0
        # An env that restarts its episodes by itself does so when it is stepped.
        itself = self._batch.resets_itself is not None
        mask = None if itself or going.all() else going
        share = 0.0
        try:
            result = self._batch.call(table.actions(ticket, wide), mask)
            self.guard()
            share = (time.perf_counter() - began) / len(rest)
            plain = table.record(ticket & 1, result, self._cares == 0, share)
            if len(plain):
                rest = np.delete(rest, plain).tolist()
                self._vitals[CURRENT_SLOT] = NO_SLOT
                self._tickets_done[plain] = ticket & TICKET_MASK
                if self._ring is not None:
                    self._ring(len(plain))
        except BaseException as raised:
            self.guard(raised)
            error = raised
        stepped = [i for i in rest if itself or going[i]]
        self._see_to(dict.fromkeys(rest, ticket), stepped, mode, share, result, error)

    def step(self, index: int, mode: int) -> None:
        """Step one slot; together with those that follow, if MORE_FOLLOWS."""
        self._gathered.append((index, None))
        if not mode & MORE_FOLLOWS:
            gathered, self._gathered = self._gathered, []
            self._step_together([index for index, _ in gathered], mode)

    def reset(self, index: int, seed: int | None, mode: int = 0) -> None:
        """Start an episode because the caller asked for it; the same."""
        self._gathered.append((index, seed))
        if not mode & MORE_FOLLOWS:
            gathered, self._gathered = self._gathered, []
            self._reset_together(gathered)

    def _reset_together(self, gathered: list[tuple[int, int | None]]) -> None:
        tickets = {index: self._advance(index) for index, _ in gathered}
        for index, seed in gathered:
            self.plan.reset(index, seed)
        self.plan.resets_all = True
        self._begin_together(list(tickets))
        for index, ticket in tickets.items():
            row = ticket & 1
            try:
                self._vitals[CURRENT_SLOT] = index
                self.retire_if_outgrown(BEFORE_RESET)
                self.begin(index, row)
                self.write_started(index, row, valid=True)
            except BaseException as error:
                self._fail(index, row, None, error)
            self._publish(index, ticket)
        self.plan.resets_all = False

    def _step_together(self, indexes: list[int], mode: int) -> None:
        wide, mode = divmod(mode % MORE_FOLLOWS, WIDE_ACTIONS)
        tickets = self._tickets(indexes)
        stepped, result = list[int](), None
        error: BaseException | None = None
        began = time.perf_counter()
        self._vitals[BUSY_SINCE], self._vitals[CURRENT_SLOT] = began, indexes[0]
        try:
            stepped, result = self._stepped(tickets, wide)
            self.guard()
        except BaseException as raised:
            self.guard(raised)
            error = raised
        share = (time.perf_counter() - began) / len(indexes)
        self._see_to(tickets, stepped, mode, share, result, error)

    def _see_to(
        self,
        tickets: dict[int, int],
        stepped: list[int],
        mode: int,
        share: float,
        result: Any,
        error: BaseException | None,
    ) -> None:
        """Begin and record what a step command came to, slot by slot."""
        outcomes: dict[int, Outcome] = {}
        try:
            if error is None and stepped:
                outcomes = self._batch.outcomes(result, stepped)
        except BaseException as raised:
            error = raised
        if error is None:
            self._begin_together(self._beginning(outcomes, tickets, mode))
        for index, ticket in tickets.items():
            self._vitals[CURRENT_SLOT] = index
            self._vitals[BUSY_SINCE] = time.perf_counter() - share
            self._answer(index, ticket, mode, outcomes.get(index), error)

    def _tickets(self, indexes: list[int]) -> dict[int, int]:
        """Count a command to these slots."""
        if len(indexes) == len(self.slots) and self.tickets.level():
            self.tickets.base += 1
            return dict.fromkeys(indexes, self.tickets.base)
        return {index: self._advance(index) for index in indexes}

    def _stepped(self, tickets: dict[int, int], wide: int) -> tuple[list[int], Any]:
        """Step those slots of a command that have an episode, with one call."""
        chosen = {i: self._action(i, ticket, wide) for i, ticket in tickets.items()}
        # An env that restarts its episodes by itself does so when it is stepped.
        if self._batch.resets_itself is None:
            chosen = {i: a for i, a in chosen.items() if not self.care[i] & NEEDS_CARE}
        return list(chosen), self._batch.step(chosen) if chosen else None

    def _answer(
        self,
        index: int,
        ticket: int,
        mode: int,
        outcome: Outcome | None,
        error: BaseException | None,
    ) -> None:
        """Record what a step command came to in one slot, and publish it."""
        row, care = ticket & 1, self.care[index]
        try:
            if care & NEEDS_CARE:
                self._hand_out(index, care, outcome)
                autoreset.instead_of_stepping(self, index, row, mode)
            elif error is not None:
                raise error
            else:
                assert outcome is not None
                left = self._recorder.record(row, index, *outcome[:4])
                self._finish(index, row, mode, left, outcome)
        except BaseException as raised:
            self._fail(index, row, mode, raised)
        self._publish(index, ticket)

    def _hand_out(self, index: int, care: int, outcome: Outcome | None) -> None:
        """Before a step that is none: what there is to tell, or to begin with."""
        if care & EPISODE_LOST and index in self._lost:
            self.info_writer.letter(index).restarted = self._lost.pop(index)
        elif outcome is not None:  # the env has begun by itself
            self._began[index] = (outcome[0], outcome[4]), 0.0

    # Episodes -------------------------------------------------------------------------

    def _beginning(
        self, outcomes: dict[int, Outcome], tickets: dict[int, int], mode: int
    ) -> list[int]:
        """The slots of a step command whose next episode begins in it, and by us."""
        if self._batch.resets_itself is not None:
            for index, begun in self._batch.begun.items():
                self._began[index] = begun, 0.0
            return []
        ended = [i for i, outcome in outcomes.items() if outcome[2] or outcome[3]]
        over = [i for i in tickets if self.care[i] & NEEDS_CARE == EPISODE_OVER]
        return [
            *(ended if mode == autoreset.SAME_STEP else ()),
            *(over if mode != autoreset.OFF else ()),
        ]

    def _begin_together(self, indexes: list[int]) -> None:
        """Have several episodes begin with one reset.

        If that fails, its result is dropped: each slot is reset by itself when its turn
        comes, so that only the one to blame has a fault.
        """
        if not indexes:
            return
        for index in indexes:
            try:
                super()._prepare(index)
                self._prepared[index] = None
            except BaseException as error:
                self._prepared[index] = error
        chosen = [index for index in indexes if self._prepared[index] is None]
        vitals, began = self._vitals, time.perf_counter()
        vitals[BUSY_SINCE], vitals[CURRENT_COMMAND] = began, RESETTING
        vitals[CURRENT_SLOT] = indexes[0]
        try:
            if len(chosen) > 1 or self._batch.resets_itself is not None:
                episodes = [(i, self.plan.episodes[i]) for i in chosen]
                results = self._batch.reset(
                    {i: (one.seed, one.options, one.task) for i, one in episodes}
                )
                self.guard()
                share = (time.perf_counter() - began) / len(chosen)
                self._began.update((i, (results[i], share)) for i in chosen)
        except BaseException as error:
            self.guard(error)
            if isinstance(error, KeyboardInterrupt) and self._ring is None:
                raise  # the user's Ctrl-C under serial
            if self._batch.resets_itself is not None:  # there is no other way
                self._prepared.update(dict.fromkeys(chosen, error))
        vitals[CURRENT_COMMAND] = STEPPING

    def _prepare(self, index: int) -> None:
        self._lost.pop(index, None)
        if index not in self._prepared:
            super()._prepare(index)
            return
        error = self._prepared.pop(index)
        if error is not None:
            raise error

    def _reset_env(self, index: int) -> Any:
        if index not in self._began:
            return super()._reset_env(index)
        result, seconds = self._began.pop(index)
        self._recorder.reset_took(index, seconds)
        return result

    # Faults ---------------------------------------------------------------------------

    def _fail(
        self, index: int, row: int, mode: int | None, error: BaseException
    ) -> None:
        self._began.pop(index, None)
        self._failing = error
        super()._fail(index, row, mode, error)

    def lose_episode(self, index: int, repeated: bool) -> None:
        """The slot's episode went with the env; all slots lose theirs."""
        self._batch = self.envs.batch
        self._lose_others(index)
        super().lose_episode(index, repeated)

    def _lose_others(self, index: int) -> None:
        """Slots beside the one that failed are without their episodes too."""
        self._began.clear()
        for other, episode in enumerate(self.plan.episodes):
            running = episode.number >= 0 and not self.care[other] & NEEDS_CARE
            # One that is about to begin another has lost nothing.
            if other == index or other in self._prepared or not running:
                continue
            self.care[other] |= EPISODE_LOST
            fault = self.described(other, "step", self._failing)
            beside = self.slots[index]
            self._lost[other] = replace(fault, kind="shardmate", beside=beside)
        self._make_steppable()

    def _make_steppable(self) -> None:
        """A new env that is stepped as a whole: also before all slots have begun."""
        if not self._batch.masks_steps:
            tasks = [episode.task for episode in self.plan.episodes]
            self._batch.reset({i: (0, None, task) for i, task in enumerate(tasks)})
            self.guard()
