"""Metrics, videos and models for Weights & Biases; nothing else imports wandb."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from corral.errors import OptionError, requires

with requires("logging to W&B needs wandb: pip install 'corral[wandb]'"):
    import wandb


class WandbSink:
    """One run of W&B, opened by the process that trains; workers know nothing of it.

    Args:
        project: where the run is filed.
        name: of the run.
        config: what the run was asked to do.
        folder: where wandb keeps its own files.
        run_id: the same one again continues a run that was interrupted.
        **options: for `wandb.init`: entity, group, tags, notes, mode.
    """

    def __init__(
        self,
        project: str,
        name: str,
        config: dict[str, Any],
        folder: str | os.PathLike[str],
        run_id: str,
        **options: Any,
    ) -> None:
        try:
            self._run = wandb.init(
                project=project,
                name=name,
                config=config,
                dir=os.fspath(folder),
                id=run_id,
                resume="allow",
                **options,
            )
        except wandb.errors.Error as error:
            raise OptionError(
                f"wandb: {error} With `wandb: {{mode: offline}}` in the config, or "
                "WANDB_MODE=offline, it is kept on disk, for `wandb sync`"
            ) from error

    def write(self, metrics: Mapping[str, float], step: int) -> None:
        """Log the metrics."""
        self._run.log(dict(metrics), step=step)

    def video(self, name: str, path: Path, step: int) -> None:
        """Upload a video; W&B's step never goes back, so its own is a number beside."""
        film = wandb.Video(str(path), format=path.suffix[1:])
        self._run.log({f"videos/{name}": film, f"videos/{name}_step": step})

    def write_model(self, name: str, files: Sequence[Path], about: Any) -> None:
        """Log files as a model artifact, a new version each time."""
        plain = re.sub(r"[^\w.-]", "-", name)
        artifact = wandb.Artifact(plain, type="model", metadata=about)
        for file in files:
            artifact.add_file(str(file), name=file.name)
        self._run.log_artifact(artifact)

    def close(self) -> None:
        """Send what is left, and finish the run."""
        self._run.finish()
