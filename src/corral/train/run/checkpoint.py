"""Everything a run needs to continue exactly, in one file.

    checkpoint = Checkpoint.load(directory.last)
    checkpoint.check(config, spec, directory.last)

Guarantees: a file is replaced only by one that is complete and on the disk; loading
runs no code from it.
"""

from __future__ import annotations

import io
import re
import warnings
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
from pydantic import BaseModel, ConfigDict, ValidationError

from corral.core import EnvSpec
from corral.engine.tree import mapped
from corral.errors import CheckpointError
from corral.train.run.directory import find, replacing

# Goes up when a key changes its meaning or goes away.
FORMAT = 1
VERSION = version("corral")
ARRAY = "__ndarray__"


class Progress(BaseModel):
    """How far a run has come.

    Attributes:
        update: Updates done.
        steps: Env steps done.
        seconds: Seconds of training until this program started or the checkpoint was
            saved.
        best: The best value of the config's best_metric.
        results: The latest evaluation.
    """

    model_config = ConfigDict(strict=True)

    update: int
    steps: int
    seconds: float
    best: float | None
    results: dict[str, Any]


class Checkpoint(Progress):
    """The state of a run between two updates, with no episode running.

    Attributes:
        learner: Weights, optimiser, schedules, generators.
        replay: Names of files with the rows of the learner's replay; see
            `replay_files`.
        recipe_state: What else the recipe needs to continue; see `Parts.recipe_state`.
    """

    env: str
    observation_space: str
    action_space: str
    learner: dict[str, Any]
    normalisers: dict[str, Any]
    replay: list[str] = []
    recipe_state: dict[str, Any] = {}

    def save(self, path: Path) -> None:
        """Write the file; the one that was there stays until this one is whole."""
        import torch

        content = {"format": FORMAT, "corral": VERSION, **dict(self)}
        for name in ("replay", "recipe_state"):
            if not content[name]:
                del content[name]
        # In memory first: torch says less about a full disk than the system does.
        buffer = io.BytesIO()
        torch.save(mapped(_packed, content), buffer)
        with replacing(path) as file:
            file.write(buffer.getbuffer())

    @classmethod
    def load(cls, path: Path) -> Checkpoint:
        """Read and check the file."""
        content = _read(path)
        if "format" not in content:
            raise CheckpointError(f"{path} is not a run's checkpoint. {_other(path)}")
        if content["format"] != FORMAT:
            raise CheckpointError(
                f"{path} is of format {content['format']}, written by Corral "
                f"{content.get('corral', '?')}; this is Corral {VERSION}, "
                f"which reads format {FORMAT}. Install that version to continue, or "
                "start a new run"
            )
        try:
            return cls.model_validate(content)
        except ValidationError as error:
            wrong = error.errors()[0]
            said = f"its {wrong['loc'][0]} is wrong ({wrong['msg']})"
            raise CheckpointError(
                f"{path} is damaged: {said}. {_other(path)}"
            ) from None

    def check(self, env: str, spec: EnvSpec, path: Path) -> None:
        """Refuse a checkpoint of another env."""
        now = {
            "env": env,
            "observation_space": str(spec.observation_space),
            "action_space": str(spec.action_space),
        }
        for name, value in now.items():
            then = getattr(self, name)
            if then != value:
                raise CheckpointError(
                    f"{path} was made with another {name.replace('_', ' ')}: {then} "
                    f"then, {value} now. Use the one it was made with, or start a new "
                    "run"
                )


def checkpoint_at(path: Path, *order: str) -> Path:
    """Return a checkpoint by its path, or a run's first of these names that exists."""
    if path.suffix == ".pt":
        return path
    folder = find(path).checkpoints
    found = [file for name in order if (file := folder / f"{name}.pt").exists()]
    if not found:
        raise CheckpointError(
            f"{folder} holds no checkpoint: the run ended before its first one. Start "
            "a new run"
        )
    return found[0]


def load_learner(path: Path) -> tuple[dict[str, Any], Checkpoint | None]:
    """A learner's state: a checkpoint's, or one saved by itself.

    The latter is what `torch.save(learner.state_dict(), path)` writes, as after
    behaviour cloning.
    """
    content = _read(path)
    if "format" not in content:
        return content, None
    moment = Checkpoint.load(path)
    return moment.learner, moment


def _read(path: Path) -> dict[str, Any]:
    import torch

    try:
        data = io.BytesIO(path.read_bytes())
    except OSError as error:
        raise CheckpointError(f"{path} cannot be read: {error.strerror}") from None
    try:
        with warnings.catch_warnings():  # torch's, of a file it then refuses
            warnings.simplefilter("ignore", UserWarning)
            content = torch.load(data, map_location="cpu", weights_only=True)
    except Exception as error:  # a damaged file may raise anything in torch's reader
        # Not torch's own text, which advises running code from the file.
        found = re.search(r"GLOBAL ([\w.]+)", str(error))
        held = f"an object of {found[1]}" if found else "nothing that can be read"
        content = f"{held}, and Corral runs no code from a checkpoint"
    if not isinstance(content, dict):
        raise CheckpointError(
            f"{path} is not a checkpoint: it holds {content!s:.200}. {_other(path)}"
        )
    unpacked: dict[str, Any] = _unpacked(content)
    return unpacked


def _other(path: Path) -> str:
    return f"Use another checkpoint of {path.parent}, or start a new run"


def _packed(value: Any) -> Any:
    """Arrays as tensors, which can be loaded without running code."""
    import torch

    if isinstance(value, np.ndarray):
        return {ARRAY: torch.from_numpy(np.array(value))}
    return value.item() if isinstance(value, np.generic) else value


def _unpacked(value: Any) -> Any:
    if isinstance(value, dict):
        if value.keys() == {ARRAY}:
            return value[ARRAY].numpy()
        return {key: _unpacked(one) for key, one in value.items()}
    if isinstance(value, (list, tuple)):
        return type(value)(_unpacked(one) for one in value)
    return value
