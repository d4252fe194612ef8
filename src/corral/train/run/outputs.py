"""Where a run's metrics go: its files, the terminal, and W&B if asked."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from corral.errors import Fault
from corral.train.recipes.config import RunConfig
from corral.train.run.atomic_write import write_text
from corral.train.run.directory import RunDirectory
from corral.train.sinks import Sink, jsonl
from corral.train.sinks.console import ConsoleSink
from corral.train.sinks.fanout import Fanout
from corral.train.sinks.jsonl import JsonlSink
from corral.train.sinks.tensorboard import TensorboardSink

MAX_ERROR_CHARACTERS = 200
"""Characters of an error's text that a line keeps."""


class Outputs:
    """Every sink of one run."""

    def __init__(
        self,
        directory: RunDirectory,
        config: RunConfig,
        console: ConsoleSink,
        wandb: bool = False,
    ) -> None:
        self.console = console
        self._directory = directory
        self._episodes = JsonlSink(directory.episodes)
        self._faults: JsonlSink | None = None
        """Made with the first one."""
        sinks: list[Sink] = [
            JsonlSink(directory.metrics),
            TensorboardSink(directory.tensorboard),
        ]
        if wandb:
            sinks.append(_wandb(directory, config))
        self._metrics = Fanout([*sinks, console])

    def write(self, metrics: Mapping[str, float], step: int) -> None:
        """Write metrics of one moment."""
        self._metrics.write(metrics, step)

    def write_episodes(self, rows: list[dict[str, float]], step: int) -> None:
        """Write every episode that ended, as rows of `row_of`."""
        if rows:
            self._episodes.write_all(rows, step)

    def write_fault(self, fault: Fault, count: int, step: int) -> None:
        """Write a restart and the number of restarts so far."""
        if self._faults is None:
            self._faults = JsonlSink(self._directory.faults)
        row: dict[str, Any] = {
            "count": count,
            "kind": fault.kind,
            "command": fault.command,
            "slot": fault.slot,
            "worker": fault.worker,
            "seed": fault.seed,
            "error": fault.error_type,
            "text": f"{fault.error_text or fault.signal_name or ''}"[
                :MAX_ERROR_CHARACTERS
            ],
        }
        self._faults.write(row, step)

    def close(self) -> None:
        """Close every sink."""
        try:
            self._episodes.close()
            if self._faults is not None:
                self._faults.close()
        finally:
            self._metrics.close()


def _wandb(directory: RunDirectory, config: RunConfig) -> Sink:
    from corral.train.sinks.wandb import WandbSink

    path = directory.path.resolve()
    name = f"{path.parent.name}-{path.name}"
    run_id = directory.read_about().get("wandb")
    if run_id is None:
        # Unique: another run may have a folder of the same name elsewhere.
        plain = "".join(letter if letter.isalnum() else "-" for letter in name)
        run_id = f"{plain[-40:]}-{os.urandom(4).hex()}".lstrip("-")
        directory.update_about(wandb=run_id)
    return WandbSink(
        project="corral",
        name=name,
        config=config.model_dump(mode="json"),
        folder=directory.path,
        run_id=run_id,
    )


def cut(directory: RunDirectory, step: int) -> None:
    """Remove what was written after a step, since the run continues from there."""
    for path in (directory.metrics, directory.episodes, directory.faults):
        if path.exists():
            _cut(path, [line for line in jsonl.read(path) if line["step"] <= step])


def _cut(path: Path, lines: list[dict[str, Any]]) -> None:
    write_text(path, "".join(json.dumps(line) + "\n" for line in lines))
