"""The slots one worker runs: takes their commands, and steps and records them.

The same code runs under every executor. `index` counts from the shard's first slot;
`slot` is the pool's number.
"""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, suppress
from dataclasses import replace
from typing import Any, ClassVar

from corral.core import NO_TASK, EnvSpec
from corral.engine.faults.process_usage import memory_of
from corral.engine.faults.report import message_for
from corral.engine.layout.codec import Codecs
from corral.engine.layout.columns import Columns
from corral.engine.layout.info_copy import owned_info
from corral.engine.layout.plan import (
    BEFORE_RESET,
    CURRENT_COMMAND,
    CURRENT_SLOT,
    NO_SLOT,
    RESETTING,
    RETIREMENT_STAGE,
    STEPPING,
    TICKET_MASK,
    DataViews,
    Tickets,
)
from corral.engine.worker import autoreset
from corral.engine.worker.commands import WIDE_ACTIONS, ResumeState, ShardOptions
from corral.engine.worker.endpoint import WorkerEndpoint
from corral.engine.worker.episode_plan import EpisodePlan
from corral.engine.worker.forked_copies import Guard, no_guard
from corral.engine.worker.info_writer import InfoWriter
from corral.engine.worker.letters import NotSent, describe
from corral.engine.worker.record import (
    EPISODE_ENDED,
    EPISODE_LOST,
    EPISODE_OVER,
    NEEDS_CARE,
    NOTHING_WRITTEN,
    OBS_UNWRITTEN,
    REWARD_UNWRITTEN,
    Recorder,
)
from corral.engine.worker.shard_envs import ShardEnvs
from corral.engine.worker.step_results import as_reward, defined_at, five_of, two_of
from corral.errors import Fault, SpaceMismatch

LOGGER = logging.getLogger("corral")


class WorkerRetired(BaseException):
    """This worker holds too much memory and makes room for another."""


class Shard:
    """The envs of one worker, walked slot by slot."""

    envs_type: ClassVar[type[ShardEnvs]] = ShardEnvs

    def __init__(
        self,
        worker: int,
        slots: range,
        options: ShardOptions,
        lock: AbstractContextManager[Any] | None = None,
        guard: Guard = no_guard,
        owns_process: bool = False,
    ) -> None:
        """Make a shard without envs; see `ShardEnvs` for the last three."""
        self.worker = worker
        self.slots = slots
        self.options = options
        self.guard = guard
        self.envs = self.envs_type(slots, options, guard, owns_process, lock)
        self.plan = EpisodePlan(slots, options)
        self.care = bytearray(len(slots))
        """By slot: what the recorder has to stop for; see there."""
        self.mailed_actions: dict[int, list[Any]] = {}
        """By slot: the leaves of its next action that do not lie in the block."""
        self.raw_actions: dict[int, Any] = {}
        """By slot: its next action, where the caller's own object was sent."""
        self._standing = -1
        """The slot whose transition is recorded while its next episode begins."""
        # As long as no slot was sent to by itself one row of the block fits all.
        self.tickets = Tickets(len(slots))

    # Building -------------------------------------------------------------------------

    def build(self, factories: Sequence[Callable[..., Any]]) -> list[EnvSpec]:
        """Build every env; if one cannot be built, those before it are closed."""
        try:
            return self.envs.build(factories)
        except BaseException:
            self.close()
            raise

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
        self._done, self._ring = control.done.data[part], endpoint.ring
        self._vitals: Any = control.vitals[endpoint.index].data
        self._vitals[CURRENT_SLOT] = NO_SLOT
        self._steppers = self.envs.steppers
        # Every other time from the last slot to the first: those stepped last are still
        # in the cache. 2 x 32 Ants, which do not fit in it: 6.6k steps/s, now 7.2k.
        # Not where the caller itself runs the envs and may count on their order.
        self._to_and_fro = self._ring is not None
        self._bind_rows(views, codecs, endpoint, part)
        self._bind_actions(views, codecs, part)
        self._bind_infos(views, endpoint)
        self.plan.bind(control.episode[part])
        if resume is not None:
            self._take_over(resume)

    def _bind_rows(
        self, views: DataViews, codecs: Codecs, endpoint: WorkerEndpoint, part: slice
    ) -> None:
        records = views.record[:, part]
        self._fields = {name: records[name] for name in records.dtype.names or ()}
        self._obs = [array[:, part] for array in views.obs]
        self._final = [array[:, part] for array in views.final_obs]
        self._encode = codecs.obs.encoder(self._obs, "obs")
        self._encode_final = codecs.obs.encoder(self._final, "obs")
        plain = codecs.obs.plain and len(self._obs) == 1
        self._recorder = Recorder(
            records,
            self._obs[0] if plain else None,
            self._done,
            self._ring,
            endpoint.control.times[part],
            endpoint.control.vitals[endpoint.index],
            None if self.guard is no_guard else self.guard,
        )

    def _bind_infos(self, views: DataViews, endpoint: WorkerEndpoint) -> None:
        self.columns = Columns(views.arena, views.presence)
        self.info_writer = InfoWriter(
            slots=self.slots,
            wanted=self.options.infos,
            packs=self.options.restarts is not None,
            columns=self.columns,
            care=self.care,
            recorder=self._recorder,
            inform=endpoint.informer(),
            send=endpoint.send,
        )

    def _bind_actions(self, views: DataViews, codecs: Codecs, part: slice) -> None:
        # By the WIDE_ACTIONS bit of a command: the space's own dtypes, or wide ones.
        actions = [
            [array[:, part] for array in arrays]
            for arrays in (views.action, views.wide_action)
        ]
        self._decode = [codecs.action.decoder(arrays) for arrays in actions]
        self._decode_all = [codecs.action.walker(arrays) for arrays in actions]
        self._action_mask = views.action_mask

    # Commands -------------------------------------------------------------------------

    def step_all(self, mode: int) -> None:
        """Step every slot of the shard."""
        tickets = self.tickets
        actions = None
        if tickets.even or tickets.level():
            actions = self._actions(mode)
        if actions is None:
            for index in range(len(self.slots)):
                self.step(index, mode)
            return
        tickets.base += 1
        with self.envs.in_a_row():
            self._walk(tickets.base, mode % WIDE_ACTIONS, actions)

    def _actions(self, mode: int) -> list[Any] | None:
        """The actions of the whole shard, if they can be read in one go."""
        decode_all = self._decode_all[mode // WIDE_ACTIONS]
        if decode_all is None:
            return None
        try:
            return list(decode_all(self.tickets.base + 1 & self._action_mask))
        except Exception:  # a codec of the user's: slot by slot shows which one
            return None

    def _walk(self, ticket: int, mode: int, chosen: list[Any]) -> None:
        """Let the recorder run, and handle each slot that it stops at."""
        recorder, steppers, care = self._recorder, self._steppers, self.care
        row, stamp = ticket & 1, ticket & TICKET_MASK
        index, stride = 0, 1
        if row and self._to_and_fro:
            index, stride = len(steppers) - 1, -1
            chosen.reverse()
        actions = iter(chosen)
        if self.info_writer.is_relieved:
            self.info_writer.inform()  # before the first of them is published
        while 0 <= index < len(steppers):
            try:
                stop = recorder.run(row, index, stride, steppers, actions, care, stamp)
                if stop is None:
                    return
                index = recorder.at
                left, result = stop
                self._take_care(index, row, mode, left, result)
            except BaseException as error:
                index = recorder.at
                self._fail(index, row, mode, error)
            self._publish(index, ticket)
            index += stride

    def _take_care(
        self, index: int, row: int, mode: int, left: int, result: Any
    ) -> None:
        """A slot that was not stepped, or whose outcome is not plain."""
        if self.care[index] & NEEDS_CARE:
            autoreset.instead_of_stepping(self, index, row, mode)
            return
        if left == NOTHING_WRITTEN:
            obs, reward, terminated, truncated, _ = five_of(result)
            left = self._recorder.record(row, index, obs, reward, terminated, truncated)
        self._finish(index, row, mode, left, result)

    def step(self, index: int, mode: int) -> None:
        """Step one slot."""
        ticket = self._advance(index)
        row = ticket & 1
        wide, mode = divmod(mode, WIDE_ACTIONS)
        result = None
        self._recorder.mark()
        try:
            action = self._action(index, ticket, wide)
            if not self.care[index] & NEEDS_CARE:
                result = self._steppers[index].step(action)
                self.guard()
            self._take_care(index, row, mode, NOTHING_WRITTEN, result)
        except BaseException as error:
            self._fail(index, row, mode, error)
        self._publish(index, ticket)

    def _action(self, index: int, ticket: int, wide: int) -> Any:
        if index in self.raw_actions:
            return self.raw_actions.pop(index)
        mailed = self.mailed_actions.pop(index, None)
        return self._decode[wide](ticket & self._action_mask, index, mailed)

    def reset(self, index: int, seed: int | None, mode: int = 0) -> None:
        """Start an episode because the caller asked for it, whatever the mode."""
        ticket = self._advance(index)
        row = ticket & 1
        try:
            self.retire_if_outgrown(BEFORE_RESET)
            self.plan.reset(index, seed)
            self.begin(index, row)
            self.write_started(index, row, valid=True)
        except BaseException as error:
            self._fail(index, row, None, error)
        self._publish(index, ticket)

    def _publish(self, index: int, ticket: int) -> None:
        self.guard()  # what was encoded, pickled or drawn was the user's code too
        if self.info_writer.drafts:
            self.info_writer.post()
        self._vitals[CURRENT_SLOT] = NO_SLOT
        self._done[index] = ticket & TICKET_MASK
        if self._ring is not None:
            self._ring()

    def _advance(self, index: int) -> int:
        """Count a command to one slot; returns its ticket."""
        self._vitals[CURRENT_SLOT] = index
        return self.tickets.advance(index)

    # Episodes -------------------------------------------------------------------------

    def begin(self, index: int, row: int) -> None:
        """Reset the env for its next episode and write the first observation."""
        self._prepare(index)
        obs, info = two_of(self._reset_env(index))
        self._write_obs(index, row, obs)
        self.info_writer.write(index, row, info)
        self.care[index] &= ~NEEDS_CARE

    def _write_obs(self, index: int, row: int, obs: Any) -> None:
        mailed = self._encode(row, index, obs)
        if mailed is not None:
            self.info_writer.letter(index).obs = self.info_writer.packed_part(mailed)

    def _prepare(self, index: int) -> None:
        """Count to the slot's next episode, before its env begins it."""
        self.envs.leave_slots()  # `sample_task` draws outside the slot's streams
        episode = self.plan.begin(index, self.tickets.word(index))
        self.envs.reseed(self.slots[index], episode.seed)

    def _reset_env(self, index: int) -> Any:
        """Have the env begin what was prepared, in time."""
        episode, began = self.plan.episodes[index], time.perf_counter()
        self.mark(RESETTING)
        result = self.envs.reset(index, episode.seed, episode.options, episode.task)
        self.guard()
        self._recorder.reset_took(index, time.perf_counter() - began)
        self._vitals[CURRENT_COMMAND] = STEPPING
        return result

    def write_started(self, index: int, row: int, valid: bool) -> None:
        """A record with no transition behind it: a reset, or a filler row."""
        self._recorder.start(row, index, self.plan.episodes[index].seed_word, valid)

    # Outcomes -------------------------------------------------------------------------

    def _finish(self, index: int, row: int, mode: int, left: int, result: Any) -> None:
        """What the recorder could not do, infos, and the end of an episode."""
        obs, reward, _, _, info = result
        if left & REWARD_UNWRITTEN:
            value = as_reward(reward)
            self._fields["reward"][row, index] = value
            self._fields["episode_return"][row, index] += value
        if left & OBS_UNWRITTEN:
            self._write_obs(index, row, obs)
        if left & EPISODE_ENDED:
            autoreset.after_the_end(self, index, row, mode, obs, info)
        else:
            self.info_writer.write_step(index, row, info)

    def write_final(self, index: int, obs: Any) -> None:
        """Copy the last observation of an episode before anything can change it."""
        mailed = self._encode_final(0, index, obs)
        if mailed is not None:
            home = self.info_writer.packed_part(owned_info(mailed))
            self.info_writer.letter(index).final_obs = home

    # Faults ---------------------------------------------------------------------------

    def _fail(
        self, index: int, row: int, mode: int | None, error: BaseException
    ) -> None:
        """An env raised, or returned what cannot be stored; `mode` None for a reset."""
        self.guard(error)
        if isinstance(error, KeyboardInterrupt) and self._ring is None:
            raise error  # the user's Ctrl-C under serial; elsewhere it is the env's
        if isinstance(error, WorkerRetired):
            self.info_writer.post()
            raise error
        standing, self._standing = self._standing == index, -1
        stepped = mode is not None and not (standing or self.care[index] & EPISODE_OVER)
        command = "step" if stepped else "reset"
        fault = self.described(index, command, error)
        left = autoreset.answered_anew(self, index, row, mode, standing, error, fault)
        self._standing = -1
        if left is None:
            self.info_writer.letter(index).restarted = fault
        else:
            self._fields["valid"][row, index] = False
            self.info_writer.letter(index).fault = left

    def described(self, index: int, command: str, error: BaseException) -> Fault:
        """An exception of a slot's env, with what is known of its episode."""
        if isinstance(error, NotSent) and error.__cause__ is not None:
            command, error = "sending an info home", error.__cause__
        episode, budget = self.plan.episodes[index], self.options.restarts
        begun = episode.number >= 0
        taken = self.tickets.word(index) - episode.began & TICKET_MASK
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
        )
        if isinstance(error, SpaceMismatch):  # raised here: say where it came from
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

    def cut(self, index: int, row: int) -> None:
        """A row for a step that never came back: truncated where it stood, no data."""
        for array, final in zip(self._obs, self._final, strict=True):
            array[row, index] = final[0, index] = array[1 - row, index]
        fields, before = self._fields, (1 - row, index)
        fields["seed"][row, index] = fields["seed"][before]
        # After an end the row before speaks of the episode that ended.
        fresh = fields["terminated"][before] or fields["truncated"][before]
        for name in ("episode_return", "episode_length"):
            fields[name][row, index] = 0 if fresh else fields[name][before]
        fields["reward"][row, index] = fields["step_time"][row, index] = 0.0
        for name in ("terminated", "started", "valid"):
            fields[name][row, index] = False
        fields["truncated"][row, index] = True
        self.info_writer.clear(index, row)

    def begin_next(self, index: int, row: int) -> None:
        """Begin the next episode in the same row: the step's transition stays."""
        self._standing = index
        self.begin(index, row)
        self._standing = -1
        self._fields["started"][row, index] = True
        self._fields["seed"][row, index] = self.plan.episodes[index].seed_word

    def break_off(self, index: int) -> None:
        """The episode ended with its worker: the next one is this one again."""
        self.care[index] &= ~EPISODE_LOST
        self.plan.break_off(index)

    def retire_if_outgrown(self, stage: int) -> None:
        """End this worker, between two episodes, if it holds too much memory."""
        limit = self.options.memory_limit
        # One that is too big before its first episode would be replaced for ever.
        if limit is None or not self.plan.has_begun:
            return
        if (memory_of(os.getpid()) or 0) > limit:
            self._vitals[RETIREMENT_STAGE] = stage
            raise WorkerRetired

    def _take_over(self, resume: ResumeState) -> None:
        self.tickets.take_over(resume.tickets)
        self.care[:] = resume.care
        self.columns.adopt(resume.columns)
        # Cut short and not begun again, if its last row is of no transition.
        valid = self._fields["valid"]
        broken = [
            bool(self.care[index] & EPISODE_OVER and not valid[ticket & 1, index])
            for index, ticket in enumerate(resume.tickets)
        ]
        self.plan.take_over(resume.tasks, broken)

    # The rest -------------------------------------------------------------------------

    def close(self) -> list[Fault]:
        """Close every env, whatever the others do; returns what went wrong.

        Errors are logged as well: most callers that close envs can no longer raise.
        """
        self.guard()
        faults = [
            self.described(index, "close", error) for index, error in self.envs.close()
        ]
        for fault in faults:
            with suppress(Exception):  # the interpreter itself may be ending
                LOGGER.warning("%s\n%s", message_for(fault), fault.traceback)
        return faults
