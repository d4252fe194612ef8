"""A run's part in the videos of slot 0's training episodes; see `slot_recording`."""

from __future__ import annotations

from corral.errors import FaultError, OptionError
from corral.train.run.directory import RunDirectory
from corral.train.run.outputs import Outputs
from corral.train.run.parts import Parts
from corral.train.run.slot_recording import (
    RecordingPlan,
    finish,
    finished,
    follow,
    trouble_file,
)
from corral.train.sinks.encode_video import FORMATS, MP4_MISSING, has_mp4


class TrainingVideos:
    """Has slot 0 recorded, and passes on the videos that are whole.

    Does nothing if the run records no training episodes.
    """

    def __init__(self, parts: Parts, directory: RunDirectory, outputs: Outputs) -> None:
        self._parts, self._config = parts, parts.config
        self._outputs = outputs
        self._folder = directory.videos / "training"
        self._restarts = 0
        if self._config.records:
            self._formats = self._chosen_formats()
            trouble_file(self._folder).unlink(missing_ok=True)
            # Those of the run before it was resumed.
            self._seen = {path for _, path in finished(self._folder, self._formats)}

    def _chosen_formats(self) -> tuple[str, ...]:
        asked = self._config.record_formats
        if "mp4" in asked and not has_mp4():
            raise OptionError(f"record_formats has mp4, and {MP4_MISSING}")
        if not asked and not has_mp4():
            self._outputs.console.say(f"Videos of training are GIFs; {MP4_MISSING}")
        known = FORMATS if has_mp4() else ("gif",)
        return tuple(name for name in known if not asked or name in asked)

    def begin(self, steps: int) -> None:
        """Record the episodes that begin from now on."""
        if not self._config.records:
            return
        plan = RecordingPlan(
            self._folder.resolve(),
            self._config.record_every_steps,
            self._config.record_every_episodes,
            self._config.num_envs,
            steps,
            self._formats,
        )
        self._parts.pool.apply(follow, plan, slots=[0])

    def look(self, steps: int, restarts: int) -> None:
        """Pass on new videos; an env that was built again is recorded again."""
        if not self._config.records:
            return
        for step, path in finished(self._folder, self._formats):
            if path not in self._seen:
                self._seen.add(path)
                self._outputs.video("training", path, step)
        trouble = trouble_file(self._folder)
        if trouble.exists():
            self._outputs.failed_video(trouble.read_text())
        if restarts != self._restarts:
            self._restarts = restarts
            self.begin(steps)

    def end(self, steps: int, restarts: int) -> None:
        """Wait for the last one."""
        if not self._config.records:
            return
        try:
            self._parts.pool.apply(finish, slots=[0])
        except FaultError as error:
            self._outputs.failed_video(str(error).partition("\n")[0])
        self.look(steps, restarts)
