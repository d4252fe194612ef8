"""One episode by itself: its env built, reset and stepped as a worker would have.

The same checks are made of what the env returns, so that an observation that did not
fit fails here as well.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from corral.core import Adapter
from corral.engine.faults.report import error_for
from corral.engine.layout.codec import codec_for
from corral.engine.worker.commands import Ask
from corral.engine.worker.context import here
from corral.engine.worker.step_results import as_reward, counted, five_of
from corral.errors import EpisodeRecord, Fault, OptionError, SpaceMismatch

At = tuple[str, int]
"""A command, and how many steps of the episode it ends."""


class Rerun:
    """A saved episode under way.

    Args:
        fault: what was saved.
        shared: arrays that were too big to be saved.
        note: called with every command that is about to be done.
    """

    def __init__(
        self,
        fault: Fault,
        shared: dict[str, NDArray[Any]] | None = None,
        note: Callable[[At], object] = lambda at: None,
    ) -> None:
        self._episode = episode = episode_of(fault)
        self._note = note
        self._worker = episode.kit.open(shared)
        self._slot: int = episode.kit.slot
        self._adapter: Adapter | None = None
        self._check_obs: Callable[[Any], object]
        self.obs: Any = None
        """The last observation."""
        self.at: At = ("construct", 0)
        """What was done last, or is under way."""
        commands = self._commands(failing_of(fault)[0])
        self._before, self._failing = commands[:-1], commands[-1]

    def _commands(self, last: str) -> list[tuple[At, Callable[[], None]]]:
        """From the constructor to the command that failed."""
        actions = self._episode.actions
        commands: list[tuple[At, Callable[[], None]]] = [
            (("construct", 0), self._construct),
            (("reset", 0), self._reset),
        ]
        if last in ("construct", "reset"):
            return commands[: 1 + (last == "reset")]
        for step, action in enumerate(actions, 1):
            commands.append((("step", step), partial(self._step, action)))
        if last != "step":
            commands.append(((last, len(actions)), self._ask))
        return commands

    @property
    def env(self) -> Any:
        """The env, once it is built."""
        return None if self._adapter is None else self._adapter.env

    def bring(self) -> None:
        """Do all that came before the command that failed."""
        with self._inside():
            while self._before:
                self._do(*self._before.pop(0))

    def go_on(self) -> None:
        """Do what failed, as it was; whatever the env raises comes out."""
        with self._inside():
            self._do(*self._failing)

    def _do(self, at: At, command: Callable[[], None]) -> None:
        self.at = at
        self._note(at)
        command()

    def close(self) -> None:
        """Close the env."""
        with self._inside():
            self._worker.shard.close()

    @contextmanager
    def _inside(self) -> Iterator[None]:
        """As the worker that the env ran in."""
        outside, here.context = here.context, self._worker.context
        try:
            yield
        finally:
            here.context = outside

    # Commands -------------------------------------------------------------------------

    def _construct(self) -> None:
        self._worker.build()
        (self._adapter,) = self._worker.shard.adapters
        codec = codec_for(self._adapter.spec.observation_space)
        arrays = [np.zeros((1, 1, *leaf.shape), leaf.dtype) for leaf in codec.leaves]
        encode = codec.encoder(arrays, "obs")
        self._check_obs = partial(encode, 0, 0)

    def _reset(self) -> None:
        episode, shard = self._episode, self._worker.shard
        assert self._adapter is not None
        shard.reseed(self._slot, episode.seed)
        with shard.randomness_of(self._slot):
            result = self._adapter.reset(episode.seed, episode.options, episode.task)
        try:
            obs, info = result
        except (TypeError, ValueError):
            raise SpaceMismatch(f"env.reset() returned {counted(result)}") from None
        self._look_at(obs, info)

    def _step(self, action: Any) -> None:
        assert self._adapter is not None
        with self._worker.shard.randomness_of(self._slot):
            result = self._adapter.step(action)
        obs, reward, _, _, info = five_of(result)
        as_reward(reward)
        self._look_at(obs, info)

    def _look_at(self, obs: Any, info: Any) -> None:
        self._check_obs(obs)
        if not isinstance(info, dict):
            raise SpaceMismatch(f"info is {counted(info)}; it must be a dict")
        self.obs = obs

    def _ask(self) -> None:
        """Ask the question that failed."""
        assert self._episode.asked is not None
        verb, payload = self._episode.asked
        reply = self._worker.answer(Ask(verb, (0,), payload))
        for fault in reply.faults:
            raise fault.exception or error_for(fault)


def failing_of(fault: Fault) -> At:
    """The command that failed."""
    # Of a worker that ended before it was ready no more is known than that.
    command = "construct" if fault.command == "start" else fault.command
    return command, fault.step or 0


def episode_of(fault: Fault) -> EpisodeRecord:
    """What was saved of the episode, if that is enough to run it again."""
    episode = fault.episode
    if episode is None:
        raise OptionError(
            f"this fault ({fault.kind} in {fault.command}) has no episode that could "
            "be run again"
        )
    if episode.missing:
        raise OptionError(f"this episode cannot be run again: {episode.missing}")
    return episode


def closed(rerun: Rerun) -> None:
    """Close the env of one that is given up."""
    with suppress(Exception):
        rerun.close()
