"""One episode by itself: its env built, reset and stepped as a worker would have.

The same checks are made of what the env returns, so that an observation that did not
fit fails here as well.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cached_property, partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from corral.core import Adapter
from corral.engine.faults.report import error_for
from corral.engine.layout.codec import codec_for
from corral.engine.worker.commands import Ask
from corral.engine.worker.context import here
from corral.engine.worker.step_results import as_reward, counted, five_of, two_of
from corral.engine.worker.worker import Worker
from corral.errors import EpisodeRecord, Fault, OptionError, SpaceMismatch

At = tuple[str, int]
"""A command, and how many steps of the episode it ends."""


class SavedEnv:
    """The env of a saved episode, in a worker that builds it.

    Args:
        worker: not built yet.
        episode: whose slot is one of the worker's.
    """

    def __init__(self, worker: Worker, episode: EpisodeRecord) -> None:
        self.slot: int = episode.kit.slot
        self.at: At = ("construct", 0)
        """What was done last, or is under way."""
        self.obs: Any = None
        """The last observation."""
        self._worker, self._episode = worker, episode
        self._over = False

    @property
    def adapter(self) -> Adapter | None:
        """The env, once it is built."""
        adapters = self._worker.shard.envs.adapters
        index = self.slot - self._worker.shard.slots.start
        return adapters[index] if index < len(adapters) else None

    def reset(self) -> None:
        """Begin the episode."""
        self.at = ("reset", 0)
        episode, envs = self._episode, self._worker.shard.envs
        assert self.adapter is not None
        envs.reseed(self.slot, episode.seed)
        with envs.randomness_of(self.slot):
            result = self.adapter.reset(episode.seed, episode.options, episode.task)
        self._look_at(*two_of(result))
        self._over = False

    def step(self, action: Any) -> None:
        """Take a step; of an episode that is over, the first of the next."""
        if self._over:
            self.reset()
        self.at = ("step", self.at[1] + 1)
        assert self.adapter is not None
        with self._worker.shard.envs.randomness_of(self.slot):
            result = self.adapter.step(action)
        obs, reward, terminated, truncated, info = five_of(result)
        as_reward(reward)
        self._look_at(obs, info)
        self._over = bool(terminated) or bool(truncated)

    def _look_at(self, obs: Any, info: Any) -> None:
        self._check_obs(obs)
        if not isinstance(info, dict):
            raise SpaceMismatch(f"info is {counted(info)}; it must be a dict")
        self.obs = obs

    @cached_property
    def _check_obs(self) -> Callable[[Any], object]:
        """Raises if an observation does not fit its space."""
        assert self.adapter is not None
        codec = codec_for(self.adapter.spec.observation_space)
        arrays = [np.zeros((1, 1, *leaf.shape), leaf.dtype) for leaf in codec.leaves]
        return partial(codec.encoder(arrays, "obs"), 0, 0)


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
        self._env = SavedEnv(self._worker, episode)
        self.at: At = self._env.at
        """What was done last, or is under way."""
        commands = self._commands(failing_of(fault)[0])
        self._before, self._failing = commands[:-1], commands[-1]

    def _commands(self, last: str) -> list[tuple[At, Callable[[], object]]]:
        """From the constructor to the command that failed."""
        actions = self._episode.actions
        commands: list[tuple[At, Callable[[], object]]] = [
            (("construct", 0), self._worker.build),
            (("reset", 0), self._env.reset),
        ]
        if last in ("construct", "reset"):
            return commands[: 1 + (last == "reset")]
        for step, action in enumerate(actions, 1):
            commands.append((("step", step), partial(self._env.step, action)))
        if last != "step":
            commands.append(((last, len(actions)), self._ask))
        return commands

    @property
    def env(self) -> Any:
        """The env, once it is built."""
        return None if self._env.adapter is None else self._env.adapter.env

    @property
    def obs(self) -> Any:
        """The last observation."""
        return self._env.obs

    def bring(self) -> None:
        """Do all that came before the command that failed."""
        with inside(self._worker):
            while self._before:
                self._do(*self._before.pop(0))

    def go_on(self) -> None:
        """Do what failed; what the env raises is raised here."""
        with inside(self._worker):
            self._do(*self._failing)

    def _do(self, at: At, command: Callable[[], object]) -> None:
        self.at = at
        self._note(at)
        command()

    def close(self) -> None:
        """Close the env."""
        with inside(self._worker):
            self._worker.shard.close()

    def _ask(self) -> None:
        """Ask the question that failed."""
        assert self._episode.asked is not None
        verb, payload = self._episode.asked
        reply = self._worker.answer(Ask(verb, (0,), payload))
        for fault in reply.faults:
            raise fault.exception or error_for(fault)


@contextmanager
def inside(worker: Worker) -> Iterator[None]:
    """As the worker that the env ran in."""
    outside, here.context = here.context, worker.context
    try:
        yield
    finally:
        here.context = outside


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
            f"this fault ({fault.kind} in {fault.command}) has no episode to run again"
        )
    if episode.missing:
        raise OptionError(f"this episode cannot be run again: {episode.missing}")
    return episode
