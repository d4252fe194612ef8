"""The files of a run.

runs/cartpole/2026-01-31_12-00-00/
  config.yaml        what it was asked to do, every setting
  about.json         versions, machine, command, how it ended
  metrics.jsonl      everything that was measured, a line per update
  episodes.jsonl     every episode that ended
  faults.jsonl       every restart of an env or a worker, if there was one
  checkpoints/       last.pt, best.pt; interrupted.pt after Ctrl-C; replay/
  tensorboard/       the same metrics for TensorBoard
  videos/            slot 0, if the env renders
  report.html        the page about it
  error.txt          the whole traceback, if something ended it
  fault.zip          the episode that ended it, until the run is past it
"""

from __future__ import annotations

import difflib
import json
import os
import shlex
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from corral.errors import OptionError, WriteFailed
from corral.train.run.atomic_write import write_text

RUNS_FOLDER = Path("runs")
CONFIG_FILE = "config.yaml"
RUN_FOLDERS = ("checkpoints", "tensorboard", "videos", "wandb")
"""Folders of a run, in which no other run is looked for."""


class RunDirectory:
    """The paths of one run, as drawn above."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.config = path / CONFIG_FILE
        self.about = path / "about.json"
        self.metrics = path / "metrics.jsonl"
        self.episodes = path / "episodes.jsonl"
        self.faults = path / "faults.jsonl"
        self.fault = path / "fault.zip"
        self.error = path / "error.txt"
        self.report = path / "report.html"
        self.tensorboard = path / "tensorboard"
        self.videos = path / "videos"
        self.checkpoints = path / "checkpoints"
        self.replay = self.checkpoints / "replay"
        """Rows of the learner's replay, if it has one."""
        self.last = self.checkpoints / "last.pt"
        """Where the run continues, equal to one that was never interrupted."""
        self.best = self.checkpoints / "best.pt"
        self.interrupted = self.checkpoints / "interrupted.pt"
        """Where Ctrl-C stopped it."""

    def written(self) -> tuple[Path, ...]:
        """Return every path that a run writes to."""
        files = (self.config, self.about, self.metrics, self.episodes, self.report)
        folders = (self.checkpoints, self.replay, self.tensorboard, self.videos)
        moments = (self.last, self.best, self.interrupted)
        return (*files, self.error, self.faults, self.fault, *folders, *moments)

    def folders(self) -> tuple[Path, ...]:
        """Return the folders in which files are replaced."""
        return (self.path, self.checkpoints, self.replay, self.videos)

    def update_about(self, **facts: Any) -> None:
        """Add to about.json."""
        known = self.read_about()
        write_text(self.about, json.dumps({**known, **facts}, indent=2) + "\n")

    def read_about(self) -> dict[str, Any]:
        """Read about.json."""
        try:
            facts = json.loads(self.about.read_text(encoding="utf-8"))
        except FileNotFoundError:
            return {}
        except ValueError:  # nothing but the page and `corral list` would miss it
            return {"state": "damaged"}
        return facts if isinstance(facts, dict) else {"state": "damaged"}


def create(name: str, chosen: Path | None = None) -> RunDirectory:
    """Create the folder of a new run; an existing one is refused."""
    if chosen is None:
        _refuse_links(RUNS_FOLDER / name)
        path = _unused(RUNS_FOLDER / name / time.strftime("%Y-%m-%d_%H-%M-%S"))
    else:
        path = chosen
        if path.exists():
            typed = shlex.join(["corral", "train", "--resume", str(path)])
            raise OptionError(
                f"the run directory {path} exists already; choose another with --out, "
                f"or continue the run in it: {typed}"
            )
    directory = RunDirectory(path)
    try:
        for folder in (path, directory.checkpoints):
            folder.mkdir(parents=True)
    except OSError as error:
        raise WriteFailed(
            f"the run directory {path} cannot be created: {error.strerror}; choose "
            "another with --out"
        ) from error
    return directory


def find(path: Path) -> RunDirectory:
    """Find the directory of a run by its path or that of a file in it."""
    for candidate in (path, path.parent, path.parent.parent):
        if (candidate / CONFIG_FILE).is_file():
            return RunDirectory(candidate)
    known = [str(one.path) for one in every_run()]
    near = difflib.get_close_matches(str(path), known, n=1) or known[-1:]
    meant = f"; the latest is {near[0]}" if near else ""
    raise OptionError(
        f"{path} is not a run directory (no {CONFIG_FILE} in it){meant}. See: corral "
        "list"
    )


def every_run(root: Path = RUNS_FOLDER) -> Iterator[RunDirectory]:
    """Yield the runs under a folder, at any depth, each once; sorted by path."""
    for folder in sorted(_folders(root)):
        if (folder / CONFIG_FILE).is_file():
            yield RunDirectory(folder)


def _folders(root: Path) -> Iterator[Path]:
    """It and all below it, each once; links come last, behind what they lead to."""
    seen: set[str] = set()
    ways, links = [root], list[Path]()
    while ways or links:
        folder = ways.pop() if ways else links.pop()
        real = os.path.realpath(folder)
        if real in seen or not os.path.isdir(real) or not os.access(real, os.R_OK):
            continue
        seen.add(real)
        yield folder
        own = RUN_FOLDERS if (folder / CONFIG_FILE).is_file() else ()
        for entry in os.scandir(folder):
            if entry.name not in own:
                (links if entry.is_symlink() else ways).append(folder / entry.name)


def _refuse_links(path: Path) -> None:
    """`runs` itself may be a link to another disk; what is in it stays in it."""
    root, place = RUNS_FOLDER.resolve(), path.resolve()
    if not place.is_relative_to(root):
        raise OptionError(
            f"{path} is a link to {place}, outside of {root}; write there with --out "
            "DIRECTORY, or choose another name"
        )


def _unused(path: Path) -> Path:
    """The same, or with a number if two runs began within a second."""
    number, candidate = 2, path
    while candidate.exists():
        candidate = path.with_name(f"{path.name}-{number}")
        number += 1
    return candidate
