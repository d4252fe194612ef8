"""Settings of Weights & Biases: `wandb: true`, or a group of a config.

wandb:
  project: walking
  entity: my-team
  tags: [cnn, first]
  mode: offline
"""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict


class WandbSettings(BaseModel):
    """Where a run is logged, and what beside its metrics."""

    model_config = ConfigDict(
        extra="forbid", frozen=True, use_attribute_docstrings=True
    )

    project: str = "corral"
    """project of the run (default: corral)"""
    entity: str | None = None
    """user or team of the project (default: W&B's own default)"""
    name: str | None = None
    """name of the run (default: that of its folder)"""
    group: str | None = None
    """group of runs that belong together (default: none)"""
    tags: tuple[str, ...] = ()
    """tags of the run"""
    notes: str | None = None
    """a longer description of the run"""
    mode: Literal["online", "offline", "disabled"] | None = None
    """offline writes to disk, for `wandb sync` (default: $WANDB_MODE, else online)"""
    videos: bool = True
    """upload of the run's videos (default: true)"""
    artifacts: bool = True
    """upload of checkpoints and config as a model artifact (default: true)"""
