"""A run's part in the videos of its policy; see `episode_video`."""

from __future__ import annotations

from corral.engine.worker.seeds import EvaluationSeed
from corral.train.run.directory import RunDirectory
from corral.train.run.episode_video import BackgroundVideo, VideoScene
from corral.train.run.outputs import Outputs
from corral.train.run.parts import Parts


class PolicyVideos:
    """Records videos of the policy, and tells why one failed.

    Attributes:
        background: Records them while training continues.
    """

    def __init__(self, parts: Parts, directory: RunDirectory, outputs: Outputs) -> None:
        self.background = BackgroundVideo()
        self._parts, self._directory, self._outputs = parts, directory, outputs

    def record(self, name: str) -> None:
        """Record a video of the policy as it is now; training does not wait for it."""
        directory = self._directory
        try:
            scene = VideoScene.of(self._parts, self._parts.seed(EvaluationSeed.VIDEO))
            directory.videos.mkdir(exist_ok=True)
            if scene.tasks is not None:
                directory.update_about(video_task=scene.task_text)
            self.background.record(scene, directory.videos / f"{name}.gif")
        except Exception as error:  # a run does not fail because of a video
            self.background.note_failure(error)
        self._outputs.failed_video(self.background.trouble)

    def wait(self) -> None:
        """Wait for videos; Ctrl-C skips them and nothing else."""
        try:
            if self.background.busy:
                self._outputs.recording_video()
            self.background.wait()
        except KeyboardInterrupt:
            self.background.close()
            self._outputs.skipped_video()
        self._outputs.failed_video(self.background.trouble)

    def skip(self) -> None:
        """Abort the current video, and tell why an earlier one failed."""
        self.close()
        self._outputs.failed_video(self.background.trouble)

    def close(self) -> None:
        """Abort the current video."""
        self.background.close()
