"""Videos of slot 0's own training episodes.

    the worker of slot 0                              a process of its own, low priority
      env.reset, env.step ─► a frame ─► step-N.frames ──► step-N.mp4, step-N.gif

Frames are taken where the env is, after its own `reset` and `step`, and the global
random generators are as they were afterwards. So a run with videos does the same as one
without, bit for bit, unless the env's `render` changes the env.

This module is imported in workers, and imports no learner.
"""

from __future__ import annotations

import os
import random
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from corral.engine.adapters.factories import OuterFactory
from corral.engine.adapters.multi_agent import PettingZooAdapter
from corral.errors import OptionError
from corral.train.sinks.frame_file import FrameFile, draw_without_display

# Frames of one video; a longer episode is shown up to here.
MAX_FRAMES = 3000
# Seconds that the end of a run waits for the last video.
WAIT_SECONDS = 120.0
ENCODER = "corral.train.sinks.encode_video"
NAME = "_corral_recorder"


@dataclass(frozen=True, slots=True)
class RecordingPlan:
    """Which episodes are recorded, and where to.

    Attributes:
        folder: Of the videos.
        every_steps: Steps of all envs from one video to the next; None for no limit.
        every_episodes: The same in episodes of slot 0.
        num_envs: So many steps of all envs are one step of slot 0.
        first_step: Steps of the run so far.
        formats: "gif", "mp4" or both.
    """

    folder: Path
    every_steps: int | None
    every_episodes: int | None
    num_envs: int
    first_step: int
    formats: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class RecordedFactory(OuterFactory):
    """Makes an env that draws, and can be recorded: with `render_mode="rgb_array"`."""

    def __call__(self) -> Any:
        """Make it; OptionError if it cannot draw."""
        draw_without_display()
        made = self.make()
        multi = isinstance(made, PettingZooAdapter)
        env = made.env if multi else made
        mode = getattr(env, "render_mode", None)
        if mode != "rgb_array":
            made.close()
            raise OptionError(
                "record_every_steps and record_every_episodes need an env that takes "
                f'render_mode="rgb_array"; the render_mode of {env} is {mode!r}'
            )
        # The object whose methods the worker calls.
        SlotRecorder(env, made.course if multi else env)
        return made


class SlotRecorder:
    """Takes frames of one env; does nothing until it is given a plan.

    Args:
        env: draws.
        stepped: its `reset` and `step` are called: the env, or a shortcut to it.
    """

    def __init__(self, env: Any, stepped: Any) -> None:
        self._env = env
        self._plan: RecordingPlan | None = None
        self._steps = self._episodes = 0
        # What comes next, in steps of all envs and in episodes.
        self._due = [0, 0]
        self._file: FrameFile | None = None
        self._encoder: subprocess.Popen[bytes] | None = None
        setattr(env, NAME, self)
        stepped.reset = self._recorded(stepped.reset, begins=True)
        stepped.step = self._recorded(stepped.step, begins=False)

    def _recorded(self, method: Callable[..., Any], begins: bool) -> Callable[..., Any]:
        def call(*args: Any, **kwargs: Any) -> Any:
            if begins:
                self._safely(self._end)
            result = method(*args, **kwargs)
            self._steps += not begins
            self._episodes += begins
            if begins:
                self._safely(self._begin)
            if self._file is not None:
                self._safely(self._take)
            return result

        call.__wrapped__ = method  # type: ignore[attr-defined]  # for its signature
        return call

    def follow(self, plan: RecordingPlan) -> None:
        """Record from the next episode on."""
        self._plan, self._steps, self._episodes = plan, 0, 0
        every = plan.every_steps or 0
        self._due = [-(-plan.first_step // every) * every if every else 0, 0]

    def finish(self) -> None:
        """Finish the video of the running episode, and wait for all files."""
        self._safely(self._end)
        if self._encoder is not None:
            with suppress(subprocess.TimeoutExpired):
                self._encoder.wait(WAIT_SECONDS)

    def _begin(self) -> None:
        plan = self._plan
        if plan is None:
            return
        step = plan.first_step + self._steps * plan.num_envs
        counted = ((plan.every_steps, step), (plan.every_episodes, self._episodes - 1))
        due = [
            place
            for place, (every, now) in enumerate(counted)
            if every is not None and now >= self._due[place]
        ]
        # While a video is encoded none is begun: the next episode is then due.
        if due and (self._encoder is None or self._encoder.poll() is not None):
            for place in due:
                every, now = counted[place]
                self._due[place] = (now // every + 1) * every if every else 0
            plan.folder.mkdir(parents=True, exist_ok=True)
            self._file = FrameFile(plan.folder / f"step-{step:09}.frames")

    def _take(self) -> None:
        assert self._file is not None
        if self._file.count < MAX_FRAMES:
            with unchanged_generators():
                frame = self._env.render()
            self._file.add(frame)

    def _end(self) -> None:
        file, self._file = self._file, None
        if file is None or self._plan is None:
            return
        if file.count < 2:  # an episode that has begun, and no more
            file.discard()
            return
        file.close()
        fps = float((self._env.metadata or {}).get("render_fps") or 30)
        command = [sys.executable, "-m", ENCODER, str(file.path), str(fps)]
        self._encoder = subprocess.Popen(
            [*command, *self._plan.formats],
            env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
            stdin=subprocess.DEVNULL,
        )

    def _safely(self, work: Callable[[], None]) -> None:
        """A video that fails is told of, and training goes on."""
        try:
            work()
        except Exception as error:
            file, self._file = self._file, None
            plan, self._plan = self._plan, None
            if file is not None:
                file.discard()
            if plan is not None:
                trouble_file(plan.folder).write_text(f"{type(error).__name__}: {error}")


@contextmanager
def unchanged_generators() -> Iterator[None]:
    """Leave the global generators of random and numpy as they are."""
    states = random.getstate(), np.random.get_state()
    try:
        yield
    finally:
        random.setstate(states[0])
        np.random.set_state(states[1])


# Asked of the worker of slot 0 --------------------------------------------------------


def follow(env: Any, plan: RecordingPlan) -> None:
    """Have slot 0 recorded from its next episode on."""
    getattr(env, NAME).follow(plan)


def finish(env: Any) -> None:
    """Wait until the files of slot 0's videos are whole."""
    getattr(env, NAME).finish()


# The run's part -----------------------------------------------------------------------


def trouble_file(folder: Path) -> Path:
    """Where a worker writes why a video failed."""
    return folder / "trouble.txt"


def finished(folder: Path, formats: tuple[str, ...]) -> Iterator[tuple[int, Path]]:
    """The videos that are whole, with their steps; as MP4 if there is one."""
    for path in sorted(folder.glob(f"step-*.{formats[-1]}")):
        film = path.with_suffix(".mp4")
        yield int(path.stem.removeprefix("step-")), film if film.exists() else path
