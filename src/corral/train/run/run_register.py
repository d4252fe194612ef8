"""Which runs this user has begun, and where: a line for each, in a file of the user's.

    $CORRAL_RUNS, else $XDG_STATE_HOME/corral/runs, else ~/.local/state/corral/runs

With it `corral list` finds what `--out` or another working directory put elsewhere.
A line is a path as JSON; the latest comes last.
"""

from __future__ import annotations

import json
import os
from pathlib import Path

from corral.train.run.directory import RunDirectory

RUNS_FILE_VARIABLE = "CORRAL_RUNS"
"""The environment variable that names another file."""


def path() -> Path:
    """Where the register is, or would be."""
    named = os.environ.get(RUNS_FILE_VARIABLE)
    if named:
        return Path(named).absolute()
    state = os.environ.get("XDG_STATE_HOME", "")
    if not os.path.isabs(state):  # relative ones are to be ignored, says XDG
        state = os.path.expanduser("~/.local/state")
    return Path(state, "corral", "runs")


def add(directory: RunDirectory) -> None:
    """Write down where a run is; OSError if that cannot be done."""
    file, place = path(), directory.path.resolve()
    if place in _lines():
        return
    file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    line = json.dumps(str(place)) + "\n"
    # One write at the end of the file: two programs do not mix their lines.
    descriptor = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    try:
        os.write(descriptor, line.encode())
    finally:
        os.close(descriptor)


def registered_runs() -> list[RunDirectory]:
    """Every run that was written down and is still where it was."""
    found = (RunDirectory(place) for place in dict.fromkeys(_lines()))
    return [directory for directory in found if directory.config.is_file()]


def _lines() -> list[Path]:
    try:
        lines = path().read_text(encoding="utf-8", errors="replace").splitlines()
    except (FileNotFoundError, NotADirectoryError):
        return []
    places = []
    for line in lines:
        try:
            place = json.loads(line)
        except json.JSONDecodeError:
            continue  # damaged: the run can still be named by its path
        if isinstance(place, str):
            places.append(Path(place))
    return places
