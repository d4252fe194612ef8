"""The files of a run.

runs/cartpole/2026-01-31_12-00-00/
  config.yaml        what it was asked to do, every setting
  about.json         versions, machine, command, how it ended
  metrics.jsonl      everything that was measured, a line per update
  episodes.jsonl     every episode that ended
  faults.jsonl       every restart of an env or a worker, if there was one
  checkpoints/       last.pt, best.pt; interrupted.pt after Ctrl-C; replay/, history/
  tensorboard/       the same metrics for TensorBoard
  videos/            slot 0, if the env renders
  report.html        the page about it
  error.txt          the whole traceback, if something ended it
  fault.zip          the episode that ended it, until the run is past it
"""

from __future__ import annotations

import difflib
import itertools
import json
import os
import shlex
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import IO, Any

from corral.engine import whole_file
from corral.errors import OptionError, WriteFailed

try:
    import fcntl
except ImportError:  # Windows: no lock
    fcntl = None  # type: ignore[assignment]

RUNS_FOLDER = Path("runs")
CONFIG_FILE = "config.yaml"
# In the place of a run's path: the one that was begun last.
LATEST = "latest"
# Latest episodes of episodes.jsonl that a mean is taken over.
RECENT_EPISODES = 100
# Folders of a run, in which no other run is looked for.
RUN_FOLDERS = ("checkpoints", "export", "tensorboard", "videos", "wandb")


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
        # Rows of the learner's replay, if it has one.
        self.replay = self.checkpoints / "replay"
        # Where the run continues, equal to one that was never interrupted.
        self.last = self.checkpoints / "last.pt"
        self.best = self.checkpoints / "best.pt"
        # Earlier ones, as many as keep_checkpoints.
        self.history = self.checkpoints / "history"
        # Where Ctrl-C stopped it.
        self.interrupted = self.checkpoints / "interrupted.pt"

    def written(self) -> tuple[Path, ...]:
        """Return every path that a run writes to."""
        return tuple(path for path in vars(self).values() if path != self.path)

    def folders(self) -> tuple[Path, ...]:
        """Return the folders in which files are replaced."""
        return (
            *(self.path, self.checkpoints, self.history),
            *(self.replay, self.videos),
        )

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
    path = chosen or _new_path(RUNS_FOLDER / name)
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
    """Find the directory of a run by its path or that of a file in it.

    "latest" is the run in ./runs that was begun last.
    """
    if path == Path(LATEST) and not path.exists():
        return latest_run()
    for candidate in (path, *path.parents[:3]):
        if (candidate / CONFIG_FILE).is_file():
            return RunDirectory(candidate)
    known = [str(one.path) for one in every_run()]
    near = difflib.get_close_matches(str(path), known, n=1) or known[-1:]
    meant = f"; did you mean {near[0]}?" if near else "."
    raise OptionError(
        f"{path} is not a run directory (no {CONFIG_FILE} in it){meant} See: corral "
        "list"
    )


def latest_run(root: Path = RUNS_FOLDER) -> RunDirectory:
    """Return the run that was begun last: its folder's name is the time."""
    runs = list(every_run(root))
    if not runs:
        raise OptionError(
            f"there is no latest run: {root.resolve()} holds none. Name a run's "
            "directory; see: corral list"
        )
    return max(runs, key=_begun_at)


def _begun_at(run: RunDirectory) -> tuple[float, str]:
    """When a run was begun; its name has the time, too, but not that of --out."""
    known = run.read_about().get("began_at")
    moment = known if isinstance(known, float) else run.config.stat().st_mtime
    return moment, run.path.name


def every_run(root: Path = RUNS_FOLDER) -> Iterator[RunDirectory]:
    """Yield the runs under a folder, at any depth, each once; sorted by path."""
    seen: set[str] = set()
    runs, ways, links = list[Path](), [root], list[Path]()
    while ways or links:  # links come last, behind what they lead to
        folder = ways.pop() if ways else links.pop()
        real = os.path.realpath(folder)
        if real in seen or not os.path.isdir(real) or not os.access(real, os.R_OK):
            continue
        seen.add(real)
        is_run = (folder / CONFIG_FILE).is_file()
        runs += [folder] * is_run
        for entry in os.scandir(folder):
            if not (is_run and entry.name in RUN_FOLDERS):
                (links if entry.is_symlink() else ways).append(folder / entry.name)
    yield from map(RunDirectory, sorted(runs))


def _new_path(folder: Path) -> Path:
    """The folder of a run that starts now; numbered if several start in a second."""
    # `runs` itself may be a link to another disk; what is in it stays in it.
    root, place = RUNS_FOLDER.resolve(), folder.resolve()
    if not place.is_relative_to(root):
        raise OptionError(
            f"{folder} is a link to {place}, outside of {root}; write there with --out "
            "DIRECTORY, or choose another name"
        )
    now = time.strftime("%Y-%m-%d_%H-%M-%S")
    numbers = (f"-{number}" for number in itertools.count(2))
    paths = (folder / f"{now}{end}" for end in itertools.chain([""], numbers))
    return next(path for path in paths if not path.exists())


LOCK_TRIES, LOCK_PAUSE_SECONDS = 5, 0.02


def lock(directory: RunDirectory) -> ExitStack:
    """Lock a run's directory until the returned stack is closed.

    Guarantees: the program that holds the lock is the only one that trains there,
    wherever the file system supports locks; the end of the program, however it comes,
    releases it.
    """
    with ExitStack() as held:
        if fcntl is None:
            return held.pop_all()
        descriptor = os.open(directory.path, os.O_RDONLY)
        held.callback(os.close, descriptor)
        for _ in range(LOCK_TRIES):  # `is_held` keeps it for a moment
            if _locked(descriptor, fcntl.LOCK_EX) is not False:
                return held.pop_all()
            time.sleep(LOCK_PAUSE_SECONDS)
        raise OptionError(
            f"{directory.path} is being trained by another program: wait for its "
            "end, or stop it with Ctrl-C, then resume"
        )


def is_held(directory: RunDirectory) -> bool | None:
    """Return whether a program holds the lock; None if unknown."""
    if fcntl is None:
        return None
    descriptor = os.open(directory.path, os.O_RDONLY)
    # Shared: two that look at the same time do not see each other.
    free = _locked(descriptor, fcntl.LOCK_SH)
    os.close(descriptor)
    return None if free is None else not free


def _locked(descriptor: int, kind: int) -> bool | None:
    """Lock it if it is free; returns whether it was, None if there are no locks."""
    try:
        fcntl.flock(descriptor, kind | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:
        return None
    return True


BEGAN_KEY = "began"


def state_of(directory: RunDirectory) -> str:
    """What has become of a run, in one word.

    running      a program is training it
    done         trained to its end
    interrupted  Ctrl-C or SIGTERM stopped it, and it was saved
    failed       an error ended it; diverged: a loss or a weight was not finite
    killed       its program ended without a word: a kill, a crash, a power cut
    damaged      its about.json cannot be read
    """
    held = is_held(directory)
    if held:
        return "running"
    state = str(directory.read_about().get("state", BEGAN_KEY))
    return "killed" if state == BEGAN_KEY and held is False else state


# The register -------------------------------------------------------------------------
# A line for each run that this user has begun, in a file of the user's: its path as
# JSON. With it `corral list` finds what `--out` or another working directory put
# elsewhere.

# The environment variable that names another file.
RUNS_FILE_VARIABLE = "CORRAL_RUNS"


def register_path() -> Path:
    """$CORRAL_RUNS, else corral/runs in $XDG_STATE_HOME or in ~/.local/state."""
    if named := os.environ.get(RUNS_FILE_VARIABLE):
        return Path(named).absolute()
    state = Path(os.environ.get("XDG_STATE_HOME", ""))
    # Relative ones are to be ignored, says XDG.
    root = state if state.is_absolute() else Path.home() / ".local/state"
    return root / "corral" / "runs"


def register(directory: RunDirectory) -> None:
    """Write down where a run is; OSError if that cannot be done."""
    file, place = register_path(), directory.path.resolve()
    if place in _registered_paths():
        return
    file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    private = partial(os.open, mode=0o600)
    # One write at the end of the file: two programs do not mix their lines.
    with open(file, "ab", buffering=0, opener=private) as runs:
        runs.write(f"{json.dumps(str(place))}\n".encode())


def registered_runs() -> list[RunDirectory]:
    """Every run that was written down and is still where it was."""
    found = map(RunDirectory, dict.fromkeys(_registered_paths()))
    return [directory for directory in found if directory.config.is_file()]


def _registered_paths() -> list[Path]:
    try:
        text = register_path().read_text(encoding="utf-8", errors="replace")
    except (FileNotFoundError, NotADirectoryError):
        return []
    places = []
    for line in text.splitlines():
        # A damaged line is left out: the run can still be named by its path.
        with suppress(json.JSONDecodeError):
            places.append(json.loads(line))
    return [Path(place) for place in places if isinstance(place, str)]


# Files of a run -----------------------------------------------------------------------


@contextmanager
def replacing(path: Path) -> Iterator[IO[bytes]]:
    """Write a file that takes the place of `path` when it is whole."""
    with whole_file.writing(path), whole_file.replacing(path) as file:
        yield file


def write_text(path: Path, text: str) -> None:
    """The same for a text."""
    with replacing(path) as file:
        file.write(text.encode())


def remove_drafts(folder: Path) -> None:
    """Remove what was being written there when programs were killed."""
    for draft in folder.glob(".*.*"):
        if draft.name.rpartition(".")[2].isdecimal():
            draft.unlink(missing_ok=True)
