"""The slots one worker runs: takes their commands, and steps and records them.

The same code runs under every executor. `index` counts from the shard's first slot;
`slot` is the pool's number.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any

from corral.core import EnvSpec
from corral.engine.faults.report import message_for
from corral.engine.layout.codec import Codecs
from corral.engine.layout.plan import (
    BEFORE_RESET,
    CURRENT_SLOT,
    NO_SLOT,
    ROW_MASK,
    WORD_MASK,
    DataViews,
)
from corral.engine.worker import autoreset
from corral.engine.worker.commands import WIDE_ACTIONS, ResumeState
from corral.engine.worker.letters import WorkerEndpoint
from corral.engine.worker.record import (
    EPISODE_ENDED,
    EPISODE_OVER,
    NEEDS_CARE,
    NOTHING_WRITTEN,
    OBS_UNWRITTEN,
    REWARD_UNWRITTEN,
)
from corral.engine.worker.shard_rows import ShardRows, WorkerRetired
from corral.engine.worker.step_results import as_reward, five_of
from corral.errors import Fault

LOGGER = logging.getLogger("corral")


class Shard(ShardRows):
    """The envs of one worker, walked slot by slot."""

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
        super().bind(views, codecs, endpoint, resume)
        self._steppers = self.envs.steppers
        # Every other time from the last slot to the first: those stepped last are still
        # in the cache. 2 x 32 Ants, which do not fit in it: 6.6k steps/s, now 7.2k.
        # Not where the caller itself runs the envs and may count on their order.
        self._to_and_fro = not self._in_caller
        # By slot: the leaves of its next action that do not lie in the block.
        self.mailed_actions: dict[int, list[Any]] = {}
        # By slot: its next action, where the caller's own object was sent.
        self.raw_actions: dict[int, Any] = {}
        # By the WIDE_ACTIONS bit of a command: the space's own dtypes, or wide ones.
        part = slice(self.slots.start, self.slots.stop)
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
        isolation = self.envs.isolation
        if isolation is None:
            self._walk(tickets.base, mode % WIDE_ACTIONS, actions)
        else:
            with isolation:  # slot after slot, with no other code between them
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
        row, stamp = ticket & ROW_MASK, ticket & WORD_MASK
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
                left, result = stop  # a call with *stop costs 0.15 µs more
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
        row = ticket & ROW_MASK
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
        self.plan.reset(index, seed)
        self._reset_asked(index, ticket)

    def _reset_asked(self, index: int, ticket: int) -> None:
        row = ticket & ROW_MASK
        try:
            self.retire_if_outgrown(BEFORE_RESET)
            self.begin(index, row, valid=True)
        except BaseException as error:
            self._fail(index, row, None, error)
        self._publish(index, ticket)

    def _publish(self, index: int, ticket: int) -> None:
        self.guard()  # what was encoded, pickled or drawn was the user's code too
        if self.info_writer.drafts:
            self.info_writer.post()
        self._vitals[CURRENT_SLOT] = NO_SLOT
        self._done[index] = ticket & WORD_MASK
        if self._ring is not None:
            self._ring()

    def _advance(self, index: int) -> int:
        """Count a command to one slot; returns its ticket."""
        self._vitals[CURRENT_SLOT] = index
        return self.tickets.advance(index)

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

    def _fail(
        self, index: int, row: int, mode: int | None, error: BaseException
    ) -> None:
        """An env raised, or returned what cannot be stored; `mode` None for a reset."""
        self.guard(error)
        if isinstance(error, KeyboardInterrupt) and self._in_caller:
            raise error  # the user's Ctrl-C under serial; elsewhere it is the env's
        if isinstance(error, WorkerRetired):
            self.info_writer.post()
            raise error
        standing, self._standing = self._standing == index, -1
        stepped = mode is not None and not (standing or self.care[index] & EPISODE_OVER)
        command = "step" if stepped else "reset"
        fault = self.described(index, command, error)
        left = autoreset.answered_anew(self, index, row, mode, standing, fault)
        self._standing = -1
        if left is None:
            self.info_writer.letter(index).restarted = fault
        else:
            self._fields["valid"][row, index] = False
            self.info_writer.letter(index).fault = left

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
