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

from corral.engine.faults.report import error_for
from corral.engine.layout.codec import codec_for
from corral.engine.worker.commands import Ask
from corral.engine.worker.context import here
from corral.engine.worker.step_results import as_reward, counted, five_of, two_of
from corral.engine.worker.worker import Worker
from corral.errors import EpisodeRecord, Fault, OptionError, SpaceMismatch

# A command, and how many steps of the episode it ends.
At = tuple[str, int]


class SavedEnv:
    """The env of a saved episode, in a worker that builds it.

    Args:
        worker: not built yet.
        episode: whose slot is one of the worker's.
        note: called with every command that is about to be done.
    """

    def __init__(
        self,
        worker: Worker,
        episode: EpisodeRecord,
        note: Callable[[At], object] = lambda at: None,
    ) -> None:
        self.slot: int = episode.kit.slot
        # The last command, finished or not.
        self.at: At = ("construct", 0)
        # The last observation.
        self.obs: Any = None
        self._worker, self._episode, self._note = worker, episode, note
        self._place: int = self.slot - worker.shard.slots.start
        self._over = False

    @property
    def env(self) -> Any:
        """The env; None until it is built."""
        built = self._worker.shard.envs.adapters
        return self._adapter.env if self._place < len(built) else None

    @property
    def _adapter(self) -> Any:
        return self._worker.shard.envs.adapters[self._place]

    def _begin(self, command: str, step: int = 0) -> None:
        self.at = (command, step)
        self._note(self.at)

    def build(self) -> None:
        """Build the envs of the worker."""
        self._begin("construct")
        self._worker.build()

    def reset(self) -> None:
        """Begin the episode."""
        self._begin("reset")
        episode, envs = self._episode, self._worker.shard.envs
        envs.reseed(self.slot, episode.seed)
        result = envs.reset(self._place, episode.seed, episode.options, episode.task)
        self._look_at(*two_of(result))
        self._over = False

    def step(self, action: Any) -> None:
        """Take a step; of an episode that is over, the first of the next."""
        if self._over:
            self.reset()
        self._begin("step", self.at[1] + 1)
        with self._worker.shard.envs.randomness_of(self.slot):
            result = self._adapter.step(action)
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
        codec = codec_for(self._adapter.spec.observation_space)
        arrays = [np.zeros((1, 1, *leaf.shape), leaf.dtype) for leaf in codec.leaves]
        return partial(codec.encoder(arrays, "obs"), 0, 0)


class Rerun(SavedEnv):
    """A saved episode that runs again.

    Args:
        fault: what was saved.
        shared: arrays that were too big to be saved.
        note: called with every command that is about to be done.

    Attributes:
        after_others: Whether envs were built in this process before.
    """

    def __init__(
        self,
        fault: Fault,
        shared: dict[str, NDArray[Any]] | None = None,
        note: Callable[[At], object] = lambda at: None,
    ) -> None:
        episode = episode_of(fault)
        super().__init__(episode.kit.open(shared), episode, note)
        self.after_others = Worker.has_built
        last = failing_of(fault)[0]
        steps = [partial(self.step, action) for action in episode.actions]
        commands: list[Callable[[], None]] = [self.build, self.reset, *steps]
        if last in ("construct", "reset"):
            commands = commands[: 1 + (last == "reset")]
        elif last != "step":
            commands.append(partial(self._ask, last))
        self._before, self._failing = commands[:-1], commands[-1]

    def bring(self) -> None:
        """Do all that came before the command that failed."""
        while self.advance():
            pass

    def advance(self) -> bool:
        """Do one command before the one that failed; False if there is none left."""
        if not self._before:
            return False
        with inside(self._worker):
            self._before.pop(0)()
        return True

    def go_on(self) -> None:
        """Do what failed; what the env raises is raised here."""
        with inside(self._worker):
            self._failing()

    def close(self) -> None:
        with inside(self._worker):
            self._worker.shard.close()

    def _ask(self, command: str) -> None:
        """Ask the question that failed."""
        self._begin(command, len(self._episode.actions))
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


def was_in_program(fault: Fault) -> bool:
    """Whether it happened in the process that saved it (serial, thread), or may have.

    Of files of earlier versions that is not known.
    """
    return episode_of(fault).kit.packed_in in (None, fault.pid)


def came_by_value(fault: Fault) -> str:
    """What was saved as it was then, not by its name: its "class", "factory" or ""."""
    functions = episode_of(fault).kit.functions
    return "class" if functions.has_class else "factory" if functions.has_code else ""


def what_carries(fault: Fault) -> str:
    """The same, if what other envs of its process left in it was saved as well."""
    return came_by_value(fault) if was_in_program(fault) else ""


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
