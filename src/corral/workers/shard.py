"""The slots one worker runs: builds their envs, resets, steps and records them.

The same code runs under every executor. `index` counts from the shard's first slot;
`slot` is the pool's number.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager, nullcontext, suppress
from copy import deepcopy
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from corral.adapters import adapt
from corral.core import NO_TASK, Adapter, EnvSpec
from corral.errors import SpaceMismatch
from corral.layout.codec import Codecs
from corral.layout.columns import Columns
from corral.layout.plan import ACTION_ROWS, TICKET_MASK, DataViews
from corral.workers import autoreset
from corral.workers.commands import WIDE
from corral.workers.letters import Letter, describe
from corral.workers.outcomes import as_reward, counted, five_of
from corral.workers.randomness import Isolation
from corral.workers.record import (
    ENDED,
    NOISY,
    OBS,
    OVER,
    REWARD,
    UNFIT,
    Recorder,
)
from corral.workers.seeds import episode_seed

NO_ACTION = object()
_AS_IT_IS = nullcontext()


@dataclass(slots=True)
class ShardOptions:
    """How a shard treats its episodes."""

    root_seed: int = 0
    seeded: bool = True
    """Whether episodes get seeds from (root seed, slot, episode), or start bare."""
    infos: str | tuple[str, ...] = "all"
    sample_task: Callable[[int, int, np.random.Generator], Any] | None = None
    isolate_rng: bool = False


@dataclass(slots=True)
class _Episode:
    """What the shard remembers of one slot."""

    number: int = -1
    seed: int | None = None
    task: Any = NO_TASK
    next_task: Any = NO_TASK
    next_options: dict[str, Any] | None = None
    next_seed: int | None = None
    mailed_action: list[Any] | None = None
    raw_action: Any = NO_ACTION


@dataclass(slots=True)
class Outlet:
    """Where a shard announces what it has done."""

    done: memoryview
    """One ticket per slot of the shard."""
    ring: Callable[[], object] | None
    """Called once per finished slot; None where nobody sleeps (serial)."""
    inform: Callable[[], object]
    """Called when infos were written to columns."""
    post: Callable[[Letter], None]
    times: NDArray[np.void]
    """[shard] of TIMES: how long steps and resets took."""


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
        self.care = bytearray(len(slots))
        """By slot: OVER, NOISY, or nothing that the recorder has to stop for."""
        self.episodes = [_Episode() for _ in slots]
        # The ticket of slot i is base + offsets[i]; a command to the whole shard moves
        # the base alone, so as long as no slot was sent to by itself one row fits all.
        self._base = 0
        self._offsets = [0] * len(slots)
        self._even = True
        self._drafts: dict[int, Letter] = {}
        self._generator_seeds: dict[int, int] = {}
        self._isolation = (
            Isolation(self._generator_seed, lock) if options.isolate_rng else None
        )

    # Building -------------------------------------------------------------------------

    def build(self, factories: Sequence[Callable[[], Any]]) -> list[EnvSpec]:
        """Build every env; if one cannot be built, those before it are closed."""
        for slot, factory in zip(self.slots, factories, strict=True):
            try:
                with self.randomness_of(slot):
                    self.adapters.append(adapt(factory()))
            except BaseException as error:
                self.close()
                with suppress(Exception):  # some exceptions take no attributes
                    error.slot = slot  # type: ignore[attr-defined]
                raise
        return [adapter.spec for adapter in self.adapters]

    def bind(self, views: DataViews, codecs: Codecs, outlet: Outlet) -> None:
        """Take this shard's part of the block."""
        part = slice(self.slots.start, self.slots.stop)
        records = views.record[:, part]
        self._fields = {name: records[name] for name in records.dtype.names or ()}
        obs = [array[:, part] for array in views.obs]
        plain = codecs.obs.plain and len(obs) == 1
        self._recorder = Recorder(
            records, obs[0] if plain else None, outlet.done, outlet.ring, outlet.times
        )
        self._encode = codecs.obs.encoder(obs, "obs")
        final = [array[:, part] for array in views.final_obs]
        self._encode_final = codecs.obs.encoder(final, "obs")
        # By the WIDE bit of a command: the space's own dtypes, or wide ones.
        actions = [
            [array[:, part] for array in arrays]
            for arrays in (views.action, views.wide_action)
        ]
        self._decode = [codecs.action.decoder(arrays) for arrays in actions]
        self._decode_all = [codecs.action.walker(arrays) for arrays in actions]
        self.columns = Columns(views.arena, views.presence)
        self._outlet = outlet
        self._steps = [self._isolated(i, a.step) for i, a in enumerate(self.adapters)]

    def _isolated(self, index: int, step: Callable[[Any], Any]) -> Callable[[Any], Any]:
        isolation = self._isolation
        if isolation is None:
            return step
        slot = self.slots[index]

        def isolated_step(action: Any) -> Any:
            with isolation.of(slot):
                return step(action)

        return isolated_step

    def _generator_seed(self, slot: int) -> int:
        seed = self._generator_seeds.get(slot)
        return episode_seed(self.options.root_seed, slot) if seed is None else seed

    def randomness_of(self, slot: int) -> AbstractContextManager[Any]:
        """The slot's own global generators, where they were asked for."""
        return self._isolation.of(slot) if self._isolation else _AS_IT_IS

    # Commands -------------------------------------------------------------------------

    def step_all(self, mode: int) -> None:
        """Step every slot of the shard."""
        actions = self._actions(mode) if self._settle() else None
        if actions is None:
            for index in range(len(self.slots)):
                self.step(index, mode)
            return
        self._base += 1
        self._walk(self._base, mode % WIDE, actions)

    def _actions(self, mode: int) -> Iterable[Any] | None:
        """The actions of the whole shard, if they can be read in one go."""
        decode_all = self._decode_all[mode // WIDE]
        if decode_all is None:
            return None
        try:
            return decode_all((self._base + 1) % ACTION_ROWS)
        except Exception:  # a codec of the user's: slot by slot shows which one
            return None

    def _walk(self, ticket: int, mode: int, actions: Iterable[Any]) -> None:
        """Let the recorder run, and take care of what it stops at."""
        recorder, count = self._recorder, len(self._steps)
        row, stamp = ticket & 1, ticket & TICKET_MASK
        actions = iter(actions)
        index = 0
        while index < count:
            try:
                stop = recorder.run(row, index, self._steps, actions, self.care, stamp)
                if stop is None:
                    return
                index = recorder.at
                left, result = stop
                self._take_care(index, row, mode, left, result)
            except BaseException as error:
                index = recorder.at
                self._fail(index, row, "step", error)
            self._publish(index, ticket)
            index += 1

    def _take_care(
        self, index: int, row: int, mode: int, left: int, result: Any
    ) -> None:
        """A slot that was over, or whose outcome is not plain."""
        if self.care[index] & OVER:
            autoreset.instead_of_stepping(self, index, row, mode)
            return
        if left == UNFIT:
            obs, reward, terminated, truncated, _ = five_of(result)
            left = self._recorder.record(row, index, obs, reward, terminated, truncated)
        self._finish(index, row, mode, left, result)

    def step(self, index: int, mode: int) -> None:
        """Step one slot."""
        ticket = self._advance(index)
        row = ticket & 1
        wide, mode = divmod(mode, WIDE)
        result = None
        self._recorder.mark()
        try:
            if not self.care[index] & OVER:
                result = self._steps[index](self._action(index, ticket, wide))
            self._take_care(index, row, mode, UNFIT, result)
        except BaseException as error:
            self._fail(index, row, "step", error)
        self._publish(index, ticket)

    def _action(self, index: int, ticket: int, wide: int) -> Any:
        episode = self.episodes[index]
        if episode.raw_action is not NO_ACTION:
            action, episode.raw_action = episode.raw_action, NO_ACTION
            return action
        mailed, episode.mailed_action = episode.mailed_action, None
        return self._decode[wide](ticket % ACTION_ROWS, index, mailed)

    def reset(self, index: int, seed: int | None) -> None:
        """Start an episode because the caller asked for it."""
        ticket = self._advance(index)
        row = ticket & 1
        try:
            if seed is not None:
                self.episodes[index].next_seed = seed
            self.begin(index, row)
            self.write_started(index, row, valid=True)
        except BaseException as error:
            self._fail(index, row, "reset", error)
        self._publish(index, ticket)

    def _publish(self, index: int, ticket: int) -> None:
        if self._drafts:
            self._post_drafts()
        self._outlet.done[index] = ticket & TICKET_MASK
        if self._outlet.ring is not None:
            self._outlet.ring()

    def _advance(self, index: int) -> int:
        """Count a command to one slot; returns its ticket."""
        self._offsets[index] += 1
        self._even = False
        return self._base + self._offsets[index]

    def _settle(self) -> bool:
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
        episode, slot = self.episodes[index], self.slots[index]
        episode.number += 1
        episode.seed = self._next_seed(slot, episode)
        episode.task = self._next_task(slot, episode)
        options, episode.next_options = episode.next_options, None
        if self._isolation is not None and episode.seed is not None:
            # Else an episode could not be replayed from its seed, task and actions.
            self._generator_seeds[slot] = episode_seed(episode.seed)
            self._isolation.forget(slot)
        began = time.perf_counter()
        with self.randomness_of(slot):
            result = self.adapters[index].reset(episode.seed, options, episode.task)
        self._recorder.reset_took(index, time.perf_counter() - began)
        self.care[index] &= ~OVER
        try:
            obs, info = result
        except (TypeError, ValueError):
            raise SpaceMismatch(
                f"env.reset() returned {counted(result)}; Gymnasium's API is "
                "`observation, info = env.reset()`"
            ) from None
        mailed = self._encode(row, index, obs)
        if mailed is not None:
            self._letter(index).obs = mailed
        self.write_info(index, row, info, final=False)

    def _next_seed(self, slot: int, episode: _Episode) -> int | None:
        seed, episode.next_seed = episode.next_seed, None
        if seed is None and self.options.seeded:
            return episode_seed(self.options.root_seed, slot, episode.number)
        return seed

    def _next_task(self, slot: int, episode: _Episode) -> Any:
        task, episode.next_task = episode.next_task, NO_TASK
        sample = self.options.sample_task
        if task is NO_TASK and sample is not None:
            seed = episode_seed(self.options.root_seed, slot, episode.number, 1)
            return sample(slot, episode.number, np.random.default_rng(seed))
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
        if left & REWARD:
            value = as_reward(reward)
            self._fields["reward"][row, index] = value
            self._fields["episode_return"][row, index] += value
        if left & OBS:
            mailed = self._encode(row, index, obs)
            if mailed is not None:
                self._letter(index).obs = mailed
        if left & ENDED:
            autoreset.after_the_end(self, index, row, mode, obs, info)
        else:
            self.write_info(index, row, info, final=False)

    def write_final(self, index: int, obs: Any) -> None:
        """Copy the last observation of an episode before anything can change it."""
        mailed = self._encode_final(0, index, obs)
        if mailed is not None:
            self._letter(index).final_obs = deepcopy(mailed)

    def keep_final_info(self, index: int, info: dict[str, Any]) -> None:
        """Send home the info that came with the end of an episode."""
        if self.options.infos != "none":
            # Copied before the reset, which may clear a dict that the env keeps.
            self._letter(index).final_info = _owned(self._wanted(info))

    def write_info(self, index: int, row: int, info: Any, final: bool) -> None:
        """Numbers into columns, the rest into a letter."""
        if not isinstance(info, dict):
            raise SpaceMismatch(f"info is {counted(info)}; it must be a dict")
        wanted = self.options.infos
        if wanted == "none":
            return
        if wanted == "final" and not final:
            info = {}  # and the columns of an earlier end are cleared
        rest = self.columns.write(row, self.slots[index], self._wanted(info))
        if rest:
            self._letter(index).info = _owned(rest)
        if info:
            self.care[index] |= NOISY
            self._outlet.inform()

    def _wanted(self, info: dict[str, Any]) -> dict[str, Any]:
        wanted = self.options.infos
        if isinstance(wanted, str):
            return info
        return {key: info[key] for key in wanted if key in info}

    # Faults and letters ---------------------------------------------------------------

    def _fail(self, index: int, row: int, command: str, error: BaseException) -> None:
        """An env raised, or returned what cannot be stored: tell the parent."""
        if isinstance(error, KeyboardInterrupt):
            raise error  # the user's Ctrl-C under serial; workers never see one
        self._fields["valid"][row, index] = False
        episode = self.episodes[index]
        letter = self._letter(index)
        letter.fault = describe(
            error,
            command,
            self.slots[index],
            self.worker,
            seed=episode.seed,
            task=None if episode.task is NO_TASK else episode.task,
        )

    def _letter(self, index: int) -> Letter:
        letter = self._drafts.get(index)
        if letter is None:
            letter = self._drafts[index] = Letter(self.slots[index])
        return letter

    def _post_drafts(self) -> None:
        for letter in self._drafts.values():
            self._outlet.post(letter)
        self._drafts.clear()

    # The rest -------------------------------------------------------------------------

    def close(self) -> list[BaseException]:
        """Close every env, whatever the others do; returns what went wrong."""
        errors = []
        for adapter in self.adapters:
            try:
                adapter.close()
            except BaseException as error:
                errors.append(error)
        self.adapters = []
        return errors


def _owned(value: Any) -> Any:
    """An info whose dicts and arrays are not the env's, which may use them again."""
    if type(value) is dict:
        return {key: _owned(part) for key, part in value.items()}
    return value.copy() if type(value) is np.ndarray else value
