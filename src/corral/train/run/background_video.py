"""Records videos in the background while training continues.

    training ── record(scene, path) ──► a thread ──► the scene's worker
                                      └── the GIF is at `path` once it is whole

The scene's env draws in a worker, which also puts the pictures together; the thread
asks the scene's policy, a copy of its own. So a video draws no random number of the
training's, and takes little of its time.

Guarantees: one video at a time; nothing continues after `close`;
errors are noted and never raised.
"""

from __future__ import annotations

import threading
from pathlib import Path

from corral.engine.executors.process import kill_workers_of
from corral.train.run.atomic_write import replacing
from corral.train.run.episode_video import VideoScene

ABORT_CHECK_SECONDS = 0.02
"""Seconds between two looks at whether a video that was given up has ended."""

VIDEO_WAIT_SECONDS = 0.2
"""Seconds of a wait for a video."""


VideoRequest = tuple[VideoScene, Path]


class BackgroundVideo:
    """Records one scene after the other."""

    def __init__(self) -> None:
        self.failed = 0
        """How many videos failed."""
        self.trouble: str | None = None
        """What it was the first time."""
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None
        self._idle = threading.Event()
        # Not by `join`: before Python 3.13, Ctrl-C in it makes a thread that goes on
        # look like one that has ended.
        self._idle.set()
        self._next: VideoRequest | None = None
        self._closed = False

    def record(self, scene: VideoScene, path: Path) -> None:
        """Record it, now or after the current video.

        Only the newest scene waits: one that came before it is never recorded.
        """
        with self._lock:
            self._next = scene, path
            if self._thread is None and not self._closed:
                self._start()

    @property
    def busy(self) -> bool:
        """Whether a video is under way."""
        return not self._idle.is_set()

    def wait(self) -> None:
        """Wait until all videos are done."""
        # In slices: Ctrl-C just before a wait is noticed when that wait is over.
        while not self._idle.wait(VIDEO_WAIT_SECONDS):
            pass

    def note_failure(self, error: BaseException) -> None:
        """A video failed, for this reason."""
        lines = str(error).splitlines() or [type(error).__name__]
        with self._lock:
            self.failed += 1
            self.trouble = self.trouble or lines[0].rstrip(".")

    def close(self) -> None:
        """Abort the current video, and accept no more."""
        with self._lock:
            self._closed = True
            thread = self._thread
        while thread is not None and self.busy:
            # It may be waiting for an env that never answers.
            kill_workers_of(thread)
            self._idle.wait(ABORT_CHECK_SECONDS)

    def _start(self) -> None:
        self._thread = threading.Thread(
            target=self._run, name="corral-video", daemon=True
        )
        self._idle.clear()
        try:
            self._thread.start()
        except RuntimeError:  # the system has no more threads to give
            self._thread = None
            self._idle.set()
            raise

    # The thread's ---------------------------------------------------------------------

    def _run(self) -> None:
        while (order := self._next_request()) is not None:
            try:
                self._record_video(*order)
            except BaseException as error:  # a thread has no caller to raise to
                if not self._closed:  # else it was ended
                    self.note_failure(error)

    def _next_request(self) -> VideoRequest | None:
        """The next video to record; None ends the thread."""
        with self._lock:
            order, self._next = self._next, None
            if order is None or self._closed:
                self._thread = None
                self._idle.set()
                return None
            return order

    def _record_video(self, scene: VideoScene, path: Path) -> None:
        gif = scene.record()
        if not self._closed:
            with replacing(path) as file:
                file.write(gif)
