"""A shard's part of the block: its episodes begin here, and its rows are written.

`index` counts from the shard's first slot; `slot` is the pool's number.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, ClassVar, NoReturn

from corral.core import NO_TASK
from corral.engine.faults.process_usage import memory_of
from corral.engine.layout.codec import Codecs
from corral.engine.layout.columns import Columns
from corral.engine.layout.info_copy import owned_info
from corral.engine.layout.plan import (
    BUSY_SINCE,
    CURRENT_COMMAND,
    CURRENT_SLOT,
    NO_SLOT,
    RESETTING,
    RETIREMENT_STAGE,
    ROW_MASK,
    STEPPING,
    DataViews,
    Tickets,
    steps_since,
)
from corral.engine.worker.commands import Job, ResumeState
from corral.engine.worker.episode_plan import EpisodePlan
from corral.engine.worker.forked_copies import Guard, no_guard
from corral.engine.worker.info_writer import InfoWriter
from corral.engine.worker.letters import (
    NotSent,
    WorkerEndpoint,
    describe,
    is_raised_by_env,
)
from corral.engine.worker.record import EPISODE_OVER, NEEDS_CARE, Recorder
from corral.engine.worker.shard_envs import ShardEnvs
from corral.engine.worker.step_results import defined_at, two_of
from corral.errors import Fault, SpaceMismatch, UsageError


class WorkerRetired(BaseException):
    """This worker holds too much memory and makes room for another."""


@dataclass(slots=True)
class Outlet:
    """How a shard announces its results: rings, letters and info columns."""

    ring: Callable[..., object] | None
    info_writer: InfoWriter


class ShardRows:
    """The envs of one worker, and where their results are written."""

    envs_type: ClassVar[type[ShardEnvs]] = ShardEnvs

    def __init__(
        self,
        job: Job,
        lock: AbstractContextManager[Any] | None = None,
        guard: Guard = no_guard,
    ) -> None:
        """Make a shard without envs; see `ShardEnvs` for lock and guard."""
        self.worker = job.worker
        self.slots = slots = job.slots
        self.options = job.options
        self.guard = guard
        self.envs = self.envs_type(job, guard, lock)
        self.plan = EpisodePlan(slots, job.options)
        # By slot: what the recorder has to stop for; see there.
        self.care = bytearray(len(slots))
        # The slot whose transition is recorded while its next episode begins.
        self._standing = -1
        # Whether the worker must not end now, since a site is at work.
        self.stays = False
        # Whether an episode has ended with too much memory in use.
        self.outgrown = False
        # As long as no slot was sent to by itself one row of the block fits all.
        self.tickets = Tickets(len(slots))

    def bind(
        self,
        views: DataViews,
        codecs: Codecs,
        endpoint: WorkerEndpoint,
        resume: ResumeState | None = None,
    ) -> None:
        """Take this shard's part of the block, or take it over."""
        part = slice(self.slots.start, self.slots.stop)
        control = endpoint.control
        self._done = control.done.data[part]
        # Whether the caller itself runs the envs.
        self._in_caller = endpoint.ring is None
        self._vitals: Any = control.vitals[endpoint.index].data
        self._vitals[CURRENT_SLOT] = NO_SLOT
        self._records = views.record[:, part]
        self._fields = {n: self._records[n] for n in views.record.dtype.names or ()}
        self._obs = [array[:, part] for array in views.obs]
        self._final = [array[:, part] for array in views.final_obs]
        self._encode = codecs.obs.encoder(self._obs, "obs")
        self._encode_final = codecs.obs.encoder(self._final, "obs")
        plain = codecs.obs.plain and len(self._obs) == 1
        self._new_recorder = partial(
            Recorder,
            self._records,
            self._obs[0] if plain else None,
            self._done,
            times=control.times[part],
            vitals=control.vitals[endpoint.index],
            guard=None if self.guard is no_guard else self.guard,
        )
        packs = self.options.restarts is not None
        self._outlet = self.new_outlet(endpoint, self.slots, views, packs)
        self.use(self._outlet)
        self.plan.bind(control.episode[part])
        if resume is not None:
            self._take_over(resume)

    def new_outlet(
        self, endpoint: WorkerEndpoint, slots: range, views: DataViews, packs: bool
    ) -> Outlet:
        """Another way to announce results.

        Args:
            endpoint: takes rings, letters, and the news of infos.
            slots: the shard's, as letters and columns number them.
            views: has the arena of the columns.
            packs: see `InfoWriter`.
        """
        info_writer = InfoWriter(
            slots=slots,
            wanted=self.options.infos,
            packs=packs,
            columns=Columns(views.arena, views.presence),
            care=self.care,
            recorder=self._new_recorder(ring=endpoint.ring),
            inform=endpoint.informer(),
            send=endpoint.send,
            tickets=self.tickets,
        )
        return Outlet(endpoint.ring, info_writer)

    def use(self, outlet: Outlet) -> Outlet:
        """Announce results through this outlet; returns the one used before."""
        before, self._outlet = self._outlet, outlet
        self._ring, self.info_writer = outlet.ring, outlet.info_writer
        self._recorder = self.info_writer.recorder
        self.columns = self.info_writer.columns
        return before

    def _take_over(self, resume: ResumeState) -> None:
        self.tickets.take_over(resume.tickets)
        self.care[:] = resume.care
        self.columns.adopt(resume.columns)
        # Cut short and not begun again, if its last row is of no transition.
        valid = self._fields["valid"]
        rows = [ticket & ROW_MASK for ticket in resume.tickets]
        broken = [
            bool(self.care[index] & EPISODE_OVER and not valid[row, index])
            for index, row in enumerate(rows)
        ]
        self.plan.take_over(resume.tasks, broken)

    # Beginnings -----------------------------------------------------------------------

    def begin(self, index: int, row: int, valid: bool) -> None:
        """Begin the slot's next episode, on a row without a transition.

        Args:
            index: the slot.
            row: where to write.
            valid: True for a reset that was asked for; False for a filler row.
        """
        self._begin(index, row)
        self._recorder.start(row, index, self.plan.episodes[index].seed_word, valid)

    def begin_next(self, index: int, row: int) -> None:
        """Begin the next episode in the same row: the step's transition stays."""
        self._standing = index
        self._begin(index, row)
        self._standing = -1
        self._fields["started"][row, index] = True
        self._fields["seed"][row, index] = self.plan.episodes[index].seed_word

    def _begin(self, index: int, row: int) -> None:
        """Reset the env for its next episode and write the first observation."""
        self._prepare(index)
        obs, info = two_of(self._reset_env(index))
        self._write_obs(index, row, obs)
        self.info_writer.write(index, row, info)
        self.care[index] &= ~NEEDS_CARE

    def _prepare(self, index: int) -> None:
        """Count to the slot's next episode, before its env begins it."""
        isolated = self.envs.isolation is not None
        if isolated:
            self.envs.leave_slots()  # `sample_task` draws outside the slot's streams
        episode = self.plan.begin(index, self.tickets.word(index))
        if isolated:
            self.envs.reseed(self.slots[index], episode.seed)

    def _reset_env(self, index: int) -> Any:
        """Have the env begin what was prepared, in time."""
        episode, vitals = self.plan.episodes[index], self._vitals
        vitals[BUSY_SINCE] = began = time.perf_counter()
        vitals[CURRENT_COMMAND] = RESETTING
        result = self.envs.reset(index, episode.seed, episode.options, episode.task)
        self.guard()
        self._recorder.reset_took(index, time.perf_counter() - began)
        vitals[CURRENT_COMMAND] = STEPPING
        return result

    # Rows -----------------------------------------------------------------------------

    def _write_obs(self, index: int, row: int, obs: Any) -> None:
        mailed = self._encode(row, index, obs)
        if mailed is not None:
            self.info_writer.letter(index).obs = self.info_writer.packed_part(mailed)

    def write_final(self, index: int, obs: Any) -> None:
        """Copy the last observation of an episode before anything can change it."""
        mailed = self._encode_final(0, index, obs)
        if mailed is not None:
            letter = self.info_writer.letter(index)
            letter.final_obs = self.info_writer.packed_part(owned_info(mailed))

    def cut(self, index: int, row: int) -> None:
        """A row for a step that never came back: truncated where it stood, no data."""
        for array, final in zip(self._obs, self._final, strict=True):
            array[row, index] = final[0, index] = array[1 - row, index]
        self._records[row, index] = self._records[1 - row, index]
        record = self._records[row, index]  # a view
        if record["terminated"] or record["truncated"]:  # the episode before
            record["episode_return"] = record["episode_length"] = 0
        record["reward"] = record["step_time"] = 0.0
        record["terminated"] = record["started"] = record["valid"] = False
        record["truncated"] = True
        self.info_writer.clear(index, row)

    def hold(self, index: int, row: int) -> None:
        """The row of the episode's end again, without reward: its env does nothing."""
        for array in self._obs:
            array[row, index] = array[1 - row, index]
        self._records[row, index] = self._records[1 - row, index]
        record = self._records[row, index]  # a view
        record["reward"] = record["step_time"] = 0.0
        record["started"] = record["valid"] = False
        self.info_writer.clear(index, row)

    # Faults and limits ----------------------------------------------------------------

    def described(self, index: int, command: str, error: BaseException) -> Fault:
        """An exception of a slot's env, with what is known of its episode."""
        if isinstance(error, NotSent) and error.__cause__ is not None:
            command, error = "sending an info to the caller", error.__cause__
        episode, budget = self.plan.episodes[index], self.options.restarts
        begun = episode.number >= 0
        taken = steps_since(episode.began, self.tickets.word(index))
        fault = describe(
            error,
            command,
            self.slots[index],
            self.worker,
            seed=episode.seed,
            step=taken if begun and command not in ("construct", "reset") else 0,
            task=None if episode.task is NO_TASK else episode.task,
            has_task=episode.task is not NO_TASK,
            options=episode.options,
            restarts=0 if budget is None else budget.count(self.slots[index]),
            by_env=isinstance(error, UsageError) and is_raised_by_env(error),
        )
        if (
            isinstance(error, SpaceMismatch) and not fault.by_env
        ):  # raised here: say where it came from
            came = defined_at(self.envs.adapters[index], command)
            fault = replace(fault, traceback=f"{fault.traceback or ''}{came}")
        return fault

    def mark(self, doing: int) -> None:
        """Let the parent see what this worker does, from now on."""
        self._vitals[CURRENT_COMMAND] = doing
        self._recorder.mark()

    def lose_episode(self, index: int, repeated: bool) -> None:
        """The slot's episode went with its env, which is another now."""
        self.plan.break_off(index, repeated)

    def retire_if_outgrown(self, stage: int) -> None:
        """End this worker, between two episodes, if it holds too much memory."""
        limit = self.options.memory_limit
        # One that is too big before its first episode would be replaced for ever.
        if limit is None or not self.plan.has_begun:
            return
        if (memory_of(os.getpid()) or 0) > limit:
            self.outgrown = True
            if not self.stays:
                self.retire(stage)

    def retire(self, stage: int) -> NoReturn:
        """End this worker; the parent replaces it."""
        self._vitals[RETIREMENT_STAGE] = stage
        raise WorkerRetired
