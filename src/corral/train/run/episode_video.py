"""The video of one episode.

    VideoScene.of(parts, seed) ──► the policy and its scales, copied as they are now
              .record() ──► a worker: the env, and its frames ──► a GIF

What is learnt after `of` is not seen in it, so others may go on learning meanwhile.
"""

from __future__ import annotations

import copy
import functools
import inspect
import threading
from concurrent import futures
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from corral.core import Decision, Factory, Generators, Step
from corral.engine.executors.process import kill_workers_of
from corral.engine.pool import Pool, PoolOptions
from corral.errors import OptionError
from corral.rollouts.actor import ForwardingPolicy
from corral.rollouts.evaluation import evaluate
from corral.rollouts.normalise import ObsNorm
from corral.train.run.directory import replacing
from corral.train.run.parts import Parts, env_factory, one_env_options
from corral.train.sinks.video import (
    capture_frame,
    encode_gif,
    lower_priority,
    start_video,
)


@dataclass(frozen=True, slots=True)
class VideoScene:
    """All that a video needs.

    Attributes:
        tasks: The task of the episode, where there is one: the first of the final
            evaluation.
        length: Steps after which the episode is cut.
    """

    factory: Factory
    options: PoolOptions
    policy: Any
    obs_norm: ObsNorm | None
    seed: int
    tasks: list[Any] | None
    length: int

    @classmethod
    def of(cls, parts: Parts, seed: int) -> VideoScene:
        """What was learnt so far, in an env that draws; OptionError if it does not."""
        if parts.batched:
            raise OptionError("batched envs are not recorded")
        if not renders(parts):
            raise OptionError("the env does not render to rgb_array")
        # Where slot 0 is recorded, the mode of its env is not that of the others.
        own = parts.pool.spec.render_mode and not parts.config.records
        more = {} if own else {"render_mode": "rgb_array"}
        options = one_env_options(parts.config, backend="process")
        first = functools.partial(lower_priority, options.worker_init)
        return cls(
            factory=env_factory(parts.config, evaluating=True, **more),
            options=replace(options, worker_init=first),
            policy=parts.learner.policy.frozen(),
            obs_norm=copy.deepcopy(parts.obs_norm),
            seed=seed,
            tasks=parts.tasks("test", 1),
            length=parts.config.evaluate_length,
        )

    @property
    def task_text(self) -> str:
        """The task as a caption shows it; "" for none."""
        if self.tasks is None:
            return ""
        return np.array2string(np.asarray(self.tasks[0]), precision=3)

    def record(self) -> bytes:
        """The GIF; the env has a process of its own, as drivers may take it down."""
        with Pool.with_options(self.factory, 1, self.options) as pool:
            speed = float(pool.spec.metadata.get("render_fps") or 30)
            (stride,) = pool.apply(start_video, speed)
            evaluate(
                RecordingPolicy(self.policy, pool, stride),
                pool,
                episodes=1,
                seed=self.seed,
                tasks=self.tasks,
                max_length=self.length,
                obs_norm=self.obs_norm,
            )
            (video,) = pool.apply(encode_gif, speed)
        return bytes(video)


class RecordingPolicy(ForwardingPolicy):
    """A policy that has a picture of slot 0 taken before its decisions."""

    def __init__(self, policy: Any, pool: Pool, stride: int) -> None:
        super().__init__(policy)
        self._pool = pool
        self._stride = stride
        self._steps = 0

    def act(self, step: Step, carry: Any, rng: Generators) -> Decision:
        """Take the picture, then decide."""
        if self._steps % self._stride == 0:
            (self._stride,) = self._pool.apply(capture_frame, slots=[0])
        self._steps += 1
        return super().act(step, carry, rng)


def renders(parts: Parts) -> bool:
    """Whether the env can be asked for pictures."""
    mode = parts.pool.spec.render_mode
    return can_render(parts, "rgb_array") if mode is None else mode == "rgb_array"


def can_render(parts: Parts, mode: str) -> bool:
    """Whether the env has this render mode, and can be made with it."""
    spec = parts.pool.spec
    draws = mode in spec.metadata.get("render_modes", ())
    if not draws or spec.id is not None:
        return draws
    # A function of the user's need not take a render_mode.
    with suppress(TypeError, ValueError):
        taken = inspect.signature(env_factory(parts.config)).parameters.values()
        return any(
            one.kind is one.VAR_KEYWORD or one.name == "render_mode" for one in taken
        )
    return False


# Seconds between two looks at whether a video that was given up has ended.
ABORT_CHECK_SECONDS = 0.02

# Seconds of a wait for a video.
VIDEO_WAIT_SECONDS = 0.2


class BackgroundVideo:
    """Records videos while training continues, one after the other.

        training ── record(scene, path) ──► a thread ──► the scene's worker
                                          └── the GIF is at `path` once it is whole

    The scene's env draws in a worker, which also puts the pictures together; the thread
    asks the scene's policy, a copy of its own. So a video draws no random number of the
    training's, and takes little of its time.

    Guarantees: nothing continues after `close`; errors are noted and never raised.
    """

    def __init__(self) -> None:
        # Why a video failed, the first time.
        self.trouble: str | None = None
        self._executor = ThreadPoolExecutor(1, thread_name_prefix="corral-video")
        self._videos: list[Future[None]] = []
        self._thread: threading.Thread | None = None
        self._closed = False

    def record(self, scene: VideoScene, path: Path) -> None:
        """Record it, now or after the current video.

        Only the newest scene waits: one that came before it is never recorded.
        """
        if self._closed:
            return
        waiting = [video for video in self._videos if not video.cancel()]
        self._videos = [video for video in waiting if not video.done()]
        self._videos.append(self._executor.submit(self._record, scene, path))

    @property
    def busy(self) -> bool:
        """Whether a video is being recorded, or waits for that."""
        return not all(video.done() for video in self._videos)

    def wait(self) -> None:
        """Wait until all videos are done."""
        # In slices: Ctrl-C just before a wait is noticed when that wait is over.
        while self.busy:
            futures.wait(self._videos, VIDEO_WAIT_SECONDS)

    def note_failure(self, error: BaseException) -> None:
        """A video failed, for this reason."""
        lines = str(error).splitlines() or [type(error).__name__]
        self.trouble = self.trouble or lines[0].rstrip(".")

    def close(self) -> None:
        """Abort the current video, and accept no more."""
        self._closed = True
        self._executor.shutdown(wait=False, cancel_futures=True)
        while self.busy:
            # It may be waiting for an env that never answers.
            if self._thread is not None:
                kill_workers_of(self._thread)
            futures.wait(self._videos, ABORT_CHECK_SECONDS)

    def _record(self, scene: VideoScene, path: Path) -> None:
        self._thread = threading.current_thread()
        try:
            gif = scene.record()
            if not self._closed:
                with replacing(path) as file:
                    file.write(gif)
        except BaseException as error:  # a thread has no caller to raise to
            if not self._closed:  # else it was ended
                self.note_failure(error)
