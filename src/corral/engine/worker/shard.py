"""The slots one worker runs: builds their envs, resets, steps and records them.

The same code runs under every executor. `index` counts from the shard's first slot;
`slot` is the pool's number.
"""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext, suppress
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from corral.core import NO_TASK, Adapter, EnvSpec
from corral.engine.adapters import adapt
from corral.engine.adapters.isolation import isolation_of
from corral.engine.faults.process_memory import memory_of
from corral.engine.faults.report import message_for
from corral.engine.faults.restart_limits import RestartBudget
from corral.engine.layout.codec import Codecs
from corral.engine.layout.columns import Columns
from corral.engine.layout.info_copy import owned_info
from corral.engine.layout.plan import (
    BEFORE_RESET,
    BEGIN_TICKET,
    BUSY_SINCE,
    CONSTRUCTING,
    CURRENT_COMMAND,
    CURRENT_SLOT,
    EPISODE_NUMBER,
    EPISODE_RESTARTS,
    EPISODE_SEED,
    FIRST_BEGIN_TICKET,
    NO_SLOT,
    RESETTING,
    RETIREMENT_STAGE,
    STEPPING,
    TICKET_MASK,
    DataViews,
)
from corral.engine.worker import autoreset
from corral.engine.worker.commands import WIDE_ACTIONS
from corral.engine.worker.episode import NO_ACTION, SlotEpisode
from corral.engine.worker.forked_copies import Guard, no_guard
from corral.engine.worker.info_writer import InfoWriter
from corral.engine.worker.isolated_rng import IsolatedRng
from corral.engine.worker.letters import NotSent, describe
from corral.engine.worker.profilers import stop_profilers
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
from corral.engine.worker.seeds import SeedDomain, episode_seed
from corral.engine.worker.shard_outputs import ShardOutputs
from corral.engine.worker.step_results import as_reward, defined_at, five_of, two_of
from corral.errors import (
    Fault,
    IsolationError,
    OrderError,
    SpaceMismatch,
    SpacesDiffer,
)

LOGGER = logging.getLogger("corral")
_NO_CONTEXT = nullcontext()


@dataclass(slots=True)
class ShardOptions:
    """How a shard treats its episodes."""

    root_seed: int = 0
    seeded: bool = True
    """Whether episodes get seeds from (root seed, slot, episode), or start bare."""
    infos: str | tuple[str, ...] = "all"
    sample_task: Callable[[int, int, np.random.Generator], Any] | None = None
    isolate_rng: bool = False
    restarts: RestartBudget | None = None
    """How often an env that raised may be built again; None for never."""
    memory_limit: int | None = None
    """Bytes; a worker that holds more ends at the end of its slot's episode."""
    batched: bool = False
    """Whether one vector of environments is the whole shard: see `batched_shard`."""
    checks_sharing: bool = False
    """Whether envs share a process here, and one that must not is to be refused."""


class _Isolated:
    """Steps with the slot's own global generators."""

    __slots__ = ("_isolation", "_slot", "_stepper")

    def __init__(self, stepper: Any, isolation: IsolatedRng, slot: int) -> None:
        self._stepper = stepper
        self._isolation = isolation
        self._slot = slot

    def step(self, action: Any) -> Any:
        with self._isolation.of(self._slot):
            return self._stepper.step(action)


class WorkerRetired(BaseException):
    """This worker holds too much memory and makes room for another."""


@dataclass(slots=True)
class ResumeState:
    """Where a worker that takes another's place goes on."""

    tickets: list[int]
    """The last command that each slot has finished."""
    care: bytes
    columns: list[Any]
    """The info columns defined so far."""
    tasks: list[Any]
    """What each slot's episode was about, for those that are begun again."""


class Shard:
    """The envs of one worker, walked slot by slot."""

    def __init__(
        self,
        worker: int,
        slots: range,
        options: ShardOptions,
        lock: AbstractContextManager[Any] | None = None,
    ) -> None:
        self.worker = worker
        self.slots = slots
        self.options = options
        self.adapters: list[Adapter] = []
        self._closed_envs: set[int] = set()
        """Envs that were closed, and not built again."""
        self.care = bytearray(len(slots))
        """By slot: what the recorder has to stop for; see there."""
        self.guard: Guard = no_guard
        """Ends a forked copy of this worker; called where the env's code came back."""
        self.owns_process = False
        """Whether it is ours to stop the profilers that a new env has started."""
        self._standing = -1
        """The slot whose transition stands while its next episode begins."""
        self.episodes = [SlotEpisode() for _ in slots]
        self._begun = False
        """Whether any episode was begun here."""
        # The ticket of slot i is base + offsets[i]; a command to the whole shard moves
        # the base alone, so as long as no slot was sent to by itself one row fits all.
        self._base = 0
        self._offsets = [0] * len(slots)
        self._even = True
        self._generator_seeds: dict[int, int] = {}
        self._isolation = (
            IsolatedRng(self._generator_seed, lock) if options.isolate_rng else None
        )

    # Building -------------------------------------------------------------------------

    def build(self, factories: Sequence[Callable[[], Any]]) -> list[EnvSpec]:
        """Build every env; if one cannot be built, those before it are closed."""
        self._factories = factories
        for slot, factory in zip(self.slots, factories, strict=True):
            try:
                with self.randomness_of(slot):
                    self.adapters.append(_adapted(factory()))
                self.guard()
                if self.options.checks_sharing and len(self.adapters) == 1:
                    _check_may_share(self.adapters[0].env)
            except BaseException as error:
                self.guard(error)
                self.close()
                with suppress(Exception):  # some exceptions take no attributes
                    error.slot = slot  # type: ignore[attr-defined]
                raise
        return [adapter.spec for adapter in self.adapters]

    def bind(
        self,
        views: DataViews,
        codecs: Codecs,
        outputs: ShardOutputs,
        resume: ResumeState | None = None,
    ) -> None:
        """Take this shard's part of the block, or take it over."""
        part = slice(self.slots.start, self.slots.stop)
        records = views.record[:, part]
        self._fields = {name: records[name] for name in records.dtype.names or ()}
        obs = [array[:, part] for array in views.obs]
        plain = codecs.obs.plain and len(obs) == 1
        self._recorder = Recorder(
            records,
            obs[0] if plain else None,
            outputs.done,
            outputs.ring,
            outputs.times,
            outputs.vitals,
            None if self.guard is no_guard else self.guard,
        )
        self._vitals: Any = outputs.vitals.data
        self._vitals[CURRENT_SLOT] = NO_SLOT
        # Every other time from the last slot to the first: those stepped last are still
        # in the cache. 2 x 32 Ants, which do not fit in it: 6.6k steps/s, now 7.2k.
        # Not where the caller itself runs the envs and may count on their order.
        self._to_and_fro = outputs.ring is not None
        self._episode_words: list[Any] = [words.data for words in outputs.episode]
        self._encode = codecs.obs.encoder(obs, "obs")
        final = [array[:, part] for array in views.final_obs]
        self._encode_final = codecs.obs.encoder(final, "obs")
        self._obs, self._final = obs, final
        # By the WIDE_ACTIONS bit of a command: the space's own dtypes, or wide ones.
        actions = [
            [array[:, part] for array in arrays]
            for arrays in (views.action, views.wide_action)
        ]
        self._decode = [codecs.action.decoder(arrays) for arrays in actions]
        self._decode_all = [codecs.action.walker(arrays) for arrays in actions]
        self._action_mask = views.action_mask
        self.columns = Columns(views.arena, views.presence)
        self.info_writer = InfoWriter(
            slots=self.slots,
            wanted=self.options.infos,
            packs=self.options.restarts is not None,
            columns=self.columns,
            care=self.care,
            recorder=self._recorder,
            inform=outputs.inform,
            post=outputs.post,
        )
        self._outputs = outputs
        if resume is not None:
            self._take_over(resume)
        self._steppers = [self._stepper(index) for index in range(len(self.slots))]

    def _stepper(self, index: int) -> Any:
        """Whose `step` is called for a slot."""
        stepper = self.adapters[index].stepper
        if self._isolation is None:
            return stepper
        return _Isolated(stepper, self._isolation, self.slots[index])

    def replace_env(self, index: int, env: Any) -> None:
        """Let another env go on in this slot; the one before is not closed."""
        self.adapters[index] = self.adapters[index].exchanged(env)
        self._steppers[index] = self._stepper(index)
        self._closed_envs.discard(index)

    def _generator_seed(self, slot: int) -> int:
        seed = self._generator_seeds.get(slot)
        return episode_seed(self.options.root_seed, slot) if seed is None else seed

    def randomness_of(self, slot: int) -> AbstractContextManager[Any]:
        """The slot's own global generators, where they were asked for."""
        return self._isolation.of(slot) if self._isolation else _NO_CONTEXT

    # Commands -------------------------------------------------------------------------

    def step_all(self, mode: int) -> None:
        """Step every slot of the shard."""
        actions = self._actions(mode) if self._level_tickets() else None
        if actions is None:
            for index in range(len(self.slots)):
                self.step(index, mode)
            return
        self._base += 1
        self._walk(self._base, mode % WIDE_ACTIONS, actions)

    def _actions(self, mode: int) -> list[Any] | None:
        """The actions of the whole shard, if they can be read in one go."""
        decode_all = self._decode_all[mode // WIDE_ACTIONS]
        if decode_all is None:
            return None
        try:
            return list(decode_all(self._base + 1 & self._action_mask))
        except Exception:  # a codec of the user's: slot by slot shows which one
            return None

    def _walk(self, ticket: int, mode: int, chosen: list[Any]) -> None:
        """Let the recorder run, and take care of what it stops at."""
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
        episode = self.episodes[index]
        if episode.raw_action is not NO_ACTION:
            action, episode.raw_action = episode.raw_action, NO_ACTION
            return action
        mailed, episode.mailed_action = episode.mailed_action, None
        return self._decode[wide](ticket & self._action_mask, index, mailed)

    def reset(self, index: int, seed: int | None, mode: int = 0) -> None:
        """Start an episode because the caller asked for it, whatever the mode."""
        ticket = self._advance(index)
        row = ticket & 1
        try:
            self.retire_if_outgrown(BEFORE_RESET)
            # What the caller begins is another episode, also after one that broke off.
            self.episodes[index].broken = False
            if seed is not None:
                self.episodes[index].next_seed = seed
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
        self._outputs.done[index] = ticket & TICKET_MASK
        if self._outputs.ring is not None:
            self._outputs.ring()

    def _advance(self, index: int) -> int:
        """Count a command to one slot; returns its ticket."""
        self._vitals[CURRENT_SLOT] = index
        self._offsets[index] += 1
        self._even = False
        return self._base + self._offsets[index]

    def _ticket(self, index: int) -> int:
        """Of the slot's last command, as the block has it."""
        return self._base + self._offsets[index] & TICKET_MASK

    def _level_tickets(self) -> bool:
        """Whether all slots have the same ticket; if so the base takes it."""
        if not self._even:
            offset = self._offsets[0]
            if self._offsets.count(offset) == len(self._offsets):
                self._base += offset
                self._offsets = [0] * len(self._offsets)
                self._even = True
        return self._even

    # Episodes -------------------------------------------------------------------------

    def begin(self, index: int, row: int) -> None:
        """Reset the env for its next episode and write the first observation."""
        self._prepare(index)
        obs, info = two_of(self._reset_env(index))
        mailed = self._encode(row, index, obs)
        if mailed is not None:
            self.info_writer.letter(index).obs = self.info_writer.packed_part(mailed)
        self.info_writer.write(index, row, info)
        self.care[index] &= ~NEEDS_CARE

    def _prepare(self, index: int) -> None:
        """Say what the slot's next episode is: its number, seed, options and task."""
        episode, slot = self.episodes[index], self.slots[index]
        self._count(index, episode)
        episode.options, episode.next_options = episode.next_options, None
        episode.task = self._next_task(slot, episode)
        if self._isolation is not None:
            self.reseed(slot, episode.seed)
        self._begun = True

    def _reset_env(self, index: int) -> Any:
        """Have the env begin what was prepared, in time."""
        episode = self.episodes[index]
        vitals, began = self._vitals, time.perf_counter()
        vitals[BUSY_SINCE], vitals[CURRENT_COMMAND] = began, RESETTING
        reset = self.adapters[index].reset
        if self._isolation is None:
            result = reset(episode.seed, episode.options, episode.task)
        else:
            with self._isolation.of(self.slots[index]):
                result = reset(episode.seed, episode.options, episode.task)
        self.guard()
        self._recorder.reset_took(index, time.perf_counter() - began)
        vitals[CURRENT_COMMAND] = STEPPING
        return result

    def reseed(self, slot: int, seed: int | None) -> None:
        """Give an episode global generators that depend on its seed alone.

        Else it could not be replayed from its seed, task and actions.
        """
        if self._isolation is not None and seed is not None:
            self._generator_seeds[slot] = episode_seed(seed)
            self._isolation.forget(slot)

    def _count(self, index: int, episode: SlotEpisode) -> None:
        """Number and seed an episode; one that broke off keeps its number."""
        began = episode.began = self._ticket(index)
        if episode.broken:
            episode.restarts += 1
        else:
            episode.number += 1
            episode.restarts = 0
        if not (episode.broken and episode.next_task is NO_TASK):
            episode.first_began = began
        episode.broken = False
        episode.seed = self._next_seed(self.slots[index], episode)
        # Before anything of the env's is run: it may be the end of us.
        words = self._episode_words[index]
        words[EPISODE_NUMBER], words[EPISODE_RESTARTS] = (
            episode.number,
            episode.restarts,
        )
        words[EPISODE_SEED] = self._seed_word(index)
        words[BEGIN_TICKET], words[FIRST_BEGIN_TICKET] = began, episode.first_began

    def _next_seed(self, slot: int, episode: SlotEpisode) -> int | None:
        seed, episode.next_seed = episode.next_seed, None
        root, number = self.options.root_seed, episode.number
        if seed is None and episode.restarts:
            # Also where resets are bare: an env that is new was never given a seed.
            return episode_seed(
                root, slot, number, SeedDomain.RESTARTS, episode.restarts
            )
        if seed is None and self.options.seeded:
            return episode_seed(root, slot, number)
        return seed

    def _next_task(self, slot: int, episode: SlotEpisode) -> Any:
        task, episode.next_task = episode.next_task, NO_TASK
        if task is NO_TASK and episode.restarts and episode.task is not NO_TASK:
            return episode.task
        if task is NO_TASK:
            return sampled_task(self.options, slot, episode.number)
        return task

    def write_started(self, index: int, row: int, valid: bool) -> None:
        """A record with no transition behind it: a reset, or a filler row."""
        self._recorder.start(row, index, self._seed_word(index), valid)

    def _seed_word(self, index: int) -> int:
        """The seed of the slot's episode as the block has it: -1 for none."""
        seed = self.episodes[index].seed
        return -1 if seed is None or seed >> 63 else seed

    def mark_started(self, index: int, row: int) -> None:
        """The transition stands; its observation is the next episode's first."""
        self._fields["started"][row, index] = True
        self._fields["seed"][row, index] = self._seed_word(index)

    # Outcomes -------------------------------------------------------------------------

    def _finish(self, index: int, row: int, mode: int, left: int, result: Any) -> None:
        """What the recorder could not do, infos, and the end of an episode."""
        obs, reward, _, _, info = result
        if left & REWARD_UNWRITTEN:
            value = as_reward(reward)
            self._fields["reward"][row, index] = value
            self._fields["episode_return"][row, index] += value
        if left & OBS_UNWRITTEN:
            mailed = self._encode(row, index, obs)
            if mailed is not None:
                self.info_writer.letter(index).obs = self.info_writer.packed_part(
                    mailed
                )
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
        if isinstance(error, KeyboardInterrupt) and self._outputs.ring is None:
            raise error  # the user's Ctrl-C under serial; elsewhere it is the env's
        if isinstance(error, WorkerRetired):
            self.info_writer.post()
            raise error
        standing, self._standing = self._standing == index, -1
        stepped = mode is not None and not (standing or self.care[index] & EPISODE_OVER)
        command = "step" if stepped else "reset"
        first = fault = self.described(index, command, error)
        # The caller's own mistake, and an env that has changed, are not mended by it.
        while not isinstance(error, (OrderError, SpacesDiffer)):
            delay = self._restart_delay(index)
            if delay is None:
                fault = replace(fault, gave_up=self.options.restarts is not None)
                break
            command = "construct"
            try:
                self._rebuild(index, delay, again=mode is None)
                command = "reset"
                self._restart(index, row, mode, standing)
            except BaseException as again:
                self.guard(again)
                self._standing = -1
                error, fault = again, self.described(index, command, again)
                continue
            self.info_writer.letter(index).restarted = first
            return
        self._fields["valid"][row, index] = False
        self.info_writer.letter(index).fault = fault

    def described(self, index: int, command: str, error: BaseException) -> Fault:
        """An exception of a slot's env, with what is known of its episode."""
        if isinstance(error, NotSent) and error.__cause__ is not None:
            command, error = "sending an info home", error.__cause__
        episode = self.episodes[index]
        begun = episode.number >= 0
        taken = self._ticket(index) - episode.began & TICKET_MASK
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
            restarts=self._spent(index),
        )
        if isinstance(error, SpaceMismatch):  # raised here: say where it came from
            came = defined_at(self.adapters[index], command)
            fault = replace(fault, traceback=f"{fault.traceback or ''}{came}")
        return fault

    # Restarts -------------------------------------------------------------------------

    def _spent(self, index: int) -> int:
        budget = self.options.restarts
        return 0 if budget is None else budget.count(self.slots[index])

    def _restart_delay(self, index: int) -> float | None:
        budget = self.options.restarts
        if budget is None:
            return None
        return budget.spend(self.slots[index], time.monotonic())

    def _rebuild(self, index: int, delay: float, again: bool) -> None:
        """Put a new env in the place of one that failed.

        Args:
            index: whose.
            delay: seconds to wait first.
            again: whether the caller's own reset is to be repeated as it was.
        """
        self._vitals[CURRENT_COMMAND] = CONSTRUCTING
        time.sleep(delay)
        self._recorder.mark()
        self._close_failed_env(index)
        with self.randomness_of(self.slots[index]):
            adapter = _adapted(self._factories[index]())
        self.guard()
        if self.owns_process:
            stop_profilers()
        refuse_other_spaces(adapter, self.adapters[index].spec)
        self._vitals[CURRENT_COMMAND] = STEPPING
        self.adapters[index] = adapter
        self._closed_envs.discard(index)
        self._steppers[index] = self._stepper(index)
        self._break_off(index, again)

    def _break_off(self, index: int, again: bool) -> None:
        """The slot's episode went with its env; the next may be the same `again`."""
        episode = self.episodes[index]
        episode.broken = True
        if again:
            episode.next_seed = episode.seed
            episode.next_options = episode.options
            episode.next_task = episode.task

    def _close_failed_env(self, index: int) -> None:
        """Close an env that has failed, whatever it says to that; but once."""
        if index in self._closed_envs:
            return
        self._closed_envs.add(index)
        try:
            self.adapters[index].close()
        except BaseException as error:  # SystemExit too: it has failed already
            self.guard(error)
        self.guard()

    def _restart(self, index: int, row: int, mode: int | None, standing: bool) -> None:
        """Answer the command that failed, from the new env."""
        if not standing:  # what it wrote of the outcome is void
            self.info_writer.discard(index)
        if mode is None:
            self.begin(index, row)
            self.write_started(index, row, valid=True)
        elif standing:
            self.begin_next(index, row)
        else:
            autoreset.after_a_fault(self, index, row, mode)

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
        """The step's transition stands; its observation is the next episode's first."""
        self._standing = index
        self.begin(index, row)
        self._standing = -1
        self.mark_started(index, row)

    def break_off(self, index: int) -> None:
        """The episode ended with its worker: the next one is this one again."""
        self.care[index] &= ~EPISODE_LOST
        self.episodes[index].broken = True

    def retire_if_outgrown(self, stage: int) -> None:
        """End this worker, between two episodes, if it holds too much memory."""
        limit = self.options.memory_limit
        # One that is too big before its first episode would be replaced for ever.
        if limit is None or not self._begun or (memory_of(os.getpid()) or 0) <= limit:
            return
        self._vitals[RETIREMENT_STAGE] = stage
        raise WorkerRetired

    def _take_over(self, resume: ResumeState) -> None:
        self._base, self._offsets = 0, list(resume.tickets)
        self._even = False
        self.care[:] = resume.care
        self.columns.adopt(resume.columns)
        for index, episode in enumerate(self.episodes):
            values = self._outputs.episode[index].tolist()
            episode.task = resume.tasks[index]
            episode.number, episode.restarts = (
                values[EPISODE_NUMBER],
                values[EPISODE_RESTARTS],
            )
            episode.began, episode.first_began = (
                values[BEGIN_TICKET],
                values[FIRST_BEGIN_TICKET],
            )
            episode.seed = None if values[EPISODE_SEED] < 0 else values[EPISODE_SEED]
            # Cut short and not begun again, if its last row is of no transition.
            last = resume.tickets[index] & 1, index
            over = self.care[index] & EPISODE_OVER
            episode.broken = bool(over and not self._fields["valid"][last])

    # The rest -------------------------------------------------------------------------

    def close(self) -> list[Fault]:
        """Close every env, whatever the others do; returns what went wrong.

        It is logged as well, since most who close envs can no longer raise anything.
        """
        self.guard()
        faults = []
        for index, adapter in enumerate(self.adapters):
            if index in self._closed_envs:
                continue
            try:
                adapter.close()
                self.guard()
            except BaseException as error:
                self.guard(error)
                faults.append(self.described(index, "close", error))
        self.adapters = []
        for fault in faults:
            with suppress(Exception):  # the interpreter itself may be ending
                LOGGER.warning("%s\n%s", message_for(fault), fault.traceback)
        return faults


def sampled_task(options: ShardOptions, slot: int, number: int) -> Any:
    """The task of an episode that was given none."""
    if options.sample_task is None:
        return NO_TASK
    seed = episode_seed(options.root_seed, slot, number, SeedDomain.TASKS)
    return options.sample_task(slot, number, np.random.default_rng(seed))


def _check_may_share(env: Any) -> None:
    """Refuse a second env in this process, where the first must be alone in it."""
    verdict = isolation_of(env)
    if verdict is not None and verdict.isolation == "slot":
        raise IsolationError(
            f"{verdict.subject} must be alone in its process ({verdict.reason}), and "
            'here several slots would share one. isolation="slot" gives each its own; '
            'isolation="shared" builds them together all the same'
        )


def _adapted(env: Any) -> Adapter:
    """The env's adapter; what cannot have one may still own processes and sockets."""
    try:
        return adapt(env)
    except BaseException:
        with suppress(Exception):
            env.close()
        raise


def refuse_other_spaces(built: Any, spec: EnvSpec) -> None:
    """Refuse, and close, what was built again and has other spaces than before."""
    for name in ("observation_space", "action_space"):
        ours, theirs = getattr(built.spec, name), getattr(spec, name)
        if ours != theirs:
            with suppress(BaseException):  # what follows says more
                built.close()
            raise SpacesDiffer(
                f"built again it has another {name}: {ours} instead of {theirs}"
            )
