"""Where a run's metrics go: its files, the terminal, and W&B if asked."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from contextlib import ExitStack

from corral.errors import Fault
from corral.train.recipes.config import RunConfig
from corral.train.run.atomic_write import write_text
from corral.train.run.directory import RunDirectory
from corral.train.sinks import Sink, jsonl
from corral.train.sinks.console import ConsoleSink
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
        self._sinks: list[Sink] = [TensorboardSink(directory.tensorboard), console]
        if wandb:
            self._sinks.insert(0, _wandb(directory, config))

    def write(self, metrics: Mapping[str, float], step: int) -> None:
        """Write metrics of one moment."""
        jsonl.append(self._directory.metrics, [metrics], step)
        for sink in self._sinks:
            sink.write(metrics, step)

    def write_fault(self, fault: Fault, count: int, step: int) -> None:
        """Print and write a restart, with the number of restarts so far."""
        self.console.say(line_of(fault, count), "yellow")
        names = ("kind", "command", "slot", "worker", "seed")
        text = f"{fault.error_text or fault.signal_name or ''}"
        row = {
            "count": count,
            **{name: getattr(fault, name) for name in names},
            "error": fault.error_type,
            "text": text[:MAX_ERROR_CHARACTERS],
        }
        jsonl.append(self._directory.faults, [row], step)

    def close(self) -> None:
        """Close every sink, also if one of them cannot be closed."""
        with ExitStack() as closing:
            for sink in reversed(self._sinks):
                closing.callback(sink.close)


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
            kept = [line for line in jsonl.read(path) if line["step"] <= step]
            write_text(path, "".join(json.dumps(line) + "\n" for line in kept))


def line_of(fault: Fault, count: int) -> str:
    """Return one line: what was restarted, why, and the number of restarts."""
    place = f"slot {fault.slot}" if fault.slot is not None else "all slots"
    code = fault.signal_name or f"exit code {fault.exit_code}"
    limit = "" if fault.limit is None else f" within {fault.limit:g} s"
    text = " ".join((fault.error_text or "").split())
    reasons = {
        "died": f"its process ended in {fault.command} by {code}",
        "hung": f"no answer to {fault.command}{limit}",
        "raised": f"{fault.error_type} in {fault.command}: {text}",
    }
    reason = reasons[fault.kind][:MAX_ERROR_CHARACTERS]
    return f"Restarted   {place} of worker {fault.worker}: {reason} ({count} so far)"
