"""An episode that failed, run again by itself: `corral.replay(path)`.

    fault.save(path) ──► build the env · reset it · take its steps ──► Replay

The same factory, worker_init, per_worker, seed, options, task and actions; one env, in
this process, where a debugger can see it. An episode that ended its process, or hung,
runs in a process of its own, unless up_to="before" stops it before that. One that does
not fail alone, and shared its process, then runs beside others (see `neighbours`).
"""

from __future__ import annotations

import faulthandler
import os
import pdb
import tempfile
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from numpy.typing import NDArray

from corral.engine.faults.fault_file import load
from corral.engine.faults.report import error_for, where
from corral.engine.keywords import check_choice, checked_keywords
from corral.engine.parallel_map import map as run_in_worker
from corral.engine.worker.letters import describe, for_travel
from corral.errors import Fault, OptionError, OrderError, WorkerDied
from corral.tools.doctor.neighbours import FAILS_ALONE, NeighbourCheck, check_neighbours
from corral.tools.doctor.rerun import At, Rerun, episode_of, failing_of

# Kinds of faults that end the process, which then is one of its own.
FATAL = ("died", "hung")
# Seconds allowed for what failed, in a process of its own, without another limit.
REPLAY_TIMEOUT_SECONDS = 60.0
SAME_PROGRAM = (
    "This program has run the other envs too, so it cannot tell whether they are the "
    "reason. In a terminal it can be told: corral replay FILE"
)


@dataclass(slots=True)
class Replay:
    """How it went this time.

    Attributes:
        fault: What was saved.
        reproduced: Whether it failed in the same way, at the same step; None if it was
            not tried.
        command: What was done last.
        step: The step of the episode that it came to, counted from 1.
        error: What went wrong this time.
        notes: Why it may have gone another way.
        neighbours: Whether another env of its process is why; None if that was not
            tried.
        rerun: The episode itself; None where it was run in a process of its own.
    """

    fault: Fault
    reproduced: bool | None
    command: str
    step: int
    error: BaseException | None
    notes: tuple[str, ...]
    neighbours: NeighbourCheck | None = None
    rerun: Rerun | None = None

    @property
    def env(self) -> Any:
        """The env as it stands; None where it was run in a process of its own."""
        return self.rerun and self.rerun.env

    @property
    def obs(self) -> Any:
        """Its last observation."""
        return self.rerun and self.rerun.obs

    @property
    def action(self) -> Any:
        """The action of the step that failed."""
        episode = self.fault.episode
        return episode.actions[-1] if episode is not None and episode.actions else None

    @property
    def _in_its_process(self) -> bool:
        """Whether it ran where the fault had happened, beside what others had left."""
        return self.rerun is not None and self.fault.pid == os.getpid()

    def go_on(self) -> None:
        """After up_to="before": do what failed; what the env raises comes out."""
        if self.rerun is None or self.reproduced is not None:
            raise OrderError('the episode has ended; go_on() needs up_to="before"')
        self.rerun.go_on()

    def close(self) -> None:
        if self.rerun is not None:
            with suppress(Exception):
                self.rerun.close()

    def __enter__(self) -> Replay:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __str__(self) -> str:
        came = f"{self.command}{f' {self.step}' if self.command == 'step' else ''}"
        if self.reproduced is None:
            how = f"stopped after {came}, before what failed"
        elif self.error is None:
            how = f"not reproduced: nothing went wrong up to {came}"
        else:
            raised = f"{type(self.error).__qualname__}: {self.error}"
            how = f"not reproduced: in {came} it was {raised}"
            if self.reproduced:
                how = f"reproduced in {came}: {raised}"
        place = where(replace(self.fault, pid=None))  # its process is gone
        lines = [f"{place}: {how}", *(f"Note: {n}." for n in self.notes)]
        if self.neighbours is not None:
            lines.append(str(self.neighbours))
        elif (
            self.reproduced
            and self.fault.company
            # Else its class came by value, with what others may have left in it.
            and not episode_of(self.fault).kit.functions.has_code
        ):
            lines.append(SAME_PROGRAM if self._in_its_process else FAILS_ALONE)
        return "\n".join(lines)


@checked_keywords()
def replay(
    path: str | os.PathLike[str],
    *,
    up_to: str = "failing",
    backend: str | None = None,
    timeout: float | None = None,
    shared: dict[str, NDArray[Any]] | None = None,
    raise_error: bool = False,
    debugger: bool = False,
    trust: bool = False,
) -> Replay:
    """Run the episode of a fault again that `fault.save(path)` has written.

    Args:
        path: the file. It is not opened if this user has not signed it.
        up_to: "failing" to include the command that failed, "before" to stop right
            before it: `.env` and `.action` then show the state, and `.go_on()` runs it.
        backend: "serial" for this process, "process" for one of its own (default:
            "process" if the env ended its process or hung, else "serial").
        timeout: seconds allowed for what failed in a process of its own, and for one
            run of the episode alone or beside another env (default: the limit it had,
            or 60).
        shared: arrays that were too big to be saved.
        raise_error: raise what the env raises, instead of returning it.
        debugger: open pdb where the env raised.
        trust: open the file even if another user signed it. That runs code from it.

    Returns:
        The result; `.error` is what was raised, with its traceback. If the env shared
        its process and does not fail alone, `.neighbours` says whether another env is
        the reason; that takes nine processes and some seconds. Close the result, or use
        it in a `with`: its env is open, if it ran in this process.
    """
    fault = load(path, trust)
    replayed = replay_fault(fault, up_to, backend, timeout, shared, debugger)
    error = replayed.error
    if error is not None and raise_error:
        replayed.close()
        raise error
    return replayed


def replay_fault(
    fault: Fault,
    up_to: str = "failing",
    backend: str | None = None,
    timeout: float | None = None,
    shared: dict[str, NDArray[Any]] | None = None,
    debugger: bool = False,
) -> Replay:
    """The same for a fault that is loaded already."""
    check_choice("up_to", up_to, ("failing", "before"))
    if backend is not None:
        check_choice("backend", backend, ("serial", "process"))
    episode_of(fault)  # before anything is run
    if backend is None:
        if debugger and up_to == "failing":
            refuse_debugger(fault)
        fatal = fault.kind in FATAL and up_to == "failing"
        backend = "process" if fatal else "serial"
    if backend == "serial":
        replayed = _here(fault, up_to, shared)
    else:
        replayed = _elsewhere(fault, up_to, debugger, timeout, shared)
    if fault.company and replayed.reproduced is False:
        limit = timeout or REPLAY_TIMEOUT_SECONDS
        replayed.neighbours = check_neighbours(fault, shared, limit)
    error = replayed.error
    if error is not None and debugger:
        pdb.post_mortem(error.__traceback__)
    return replayed


def refuse_debugger(fault: Fault) -> None:
    """Say what to do in place of pdb where nothing is raised."""
    if fault.kind in FATAL:
        raise OptionError(
            "the debugger opens where an env raises, and this one "
            f"{'hung' if fault.kind == 'hung' else 'ended its process'}. In Python, "
            'stop right before that: replayed = corral.replay(path, up_to="before"). '
            "Then look at replayed.env, or debug it: pdb.runcall(replayed.go_on)"
        )


def _notes(fault: Fault) -> tuple[str, ...]:
    assert fault.episode is not None
    notes = list(fault.episode.notes)
    surroundings = fault.episode.kit.surroundings
    here = ""
    with suppress(OSError):  # it was deleted
        here = os.getcwd()
    if surroundings is not None and surroundings.directory != here:
        notes.append(f"it ran in {surroundings.directory}, the replay runs here")
    return tuple(notes)


# In this process ----------------------------------------------------------------------


def _here(fault: Fault, up_to: str, shared: dict[str, NDArray[Any]] | None) -> Replay:
    rerun = Rerun(fault, shared)
    error: BaseException | None = None
    try:
        rerun.bring()
        if up_to == "failing":
            rerun.go_on()
    except BaseException as raised:
        error = raised
    reproduced: bool | None = None
    if up_to == "failing" or error is not None:
        raised_alike = type(error).__qualname__ == fault.error_type
        reproduced = raised_alike and rerun.at == failing_of(fault)
    replayed = Replay(
        fault, reproduced, *rerun.at, error=error, notes=_notes(fault), rerun=rerun
    )
    if isinstance(error, KeyboardInterrupt):
        replayed.close()
        raise error
    return replayed


# In a process of its own --------------------------------------------------------------

# Files in the folder of such a process: what it is about to do, and the stacks that
# faulthandler writes when it crashes, or before it ends it for being late.
DIARY, CRASH, LATE = "diary", "crash", "late"


def _elsewhere(
    fault: Fault,
    up_to: str,
    debugger: bool,
    timeout: float | None,
    shared: dict[str, NDArray[Any]] | None,
) -> Replay:
    if up_to == "before" or debugger:
        raise OptionError(
            'up_to="before" and debugger=True need the env in this process: '
            'backend="serial"'
        )
    limit = timeout or fault.limit or REPLAY_TIMEOUT_SECONDS
    with tempfile.TemporaryDirectory() as folder:
        try:
            task = (fault, shared, limit, Path(folder))
            found, at = run_in_worker(_run, [task], workers=1)[0]
        except WorkerDied as died:
            at = _at(Path(folder, DIARY))
            found = _ended(died.fault, at, Path(folder), limit)
    error = None
    if found is not None:
        found = replace(found, slot=fault.slot, seed=fault.seed)
        error = error_for(found, None)
    same = ("kind", "error_type", "signal_name", "exit_code")
    reproduced = at == failing_of(fault) and all(
        found is not None and getattr(found, name) == getattr(fault, name)
        for name in same
    )
    return Replay(fault, reproduced, *at, error=error, notes=_notes(fault))


def _ended(fault: Fault, at: At, folder: Path, limit: float) -> Fault:
    """The fault of a process that ended; if it was late, one of an env that hung."""
    found = replace(fault, item=None, worker=None, command=at[0], step=at[1])
    late = _read(folder / LATE)
    if found.exit_code != 1 or not late:
        return replace(found, stack=_read(folder / CRASH))
    return replace(
        found,
        kind="hung",
        exit_code=None,
        limit=limit,
        error_text=f"longer than {limit:g} s",
        stack=late.partition("\n")[2],  # without the line that says so
    )


def _run(
    task: tuple[Fault, dict[str, NDArray[Any]] | None, float, Path],
) -> tuple[Fault | None, At]:
    """The body of the other process, which notes what it is about to do."""
    fault, shared, limit, folder = task
    diary = folder / DIARY
    with (folder / CRASH).open("w") as crash, (folder / LATE).open("w") as late:
        faulthandler.enable(crash)
        rerun = Rerun(fault, shared, lambda at: diary.write_text(f"{at[0]} {at[1]}"))
        try:
            rerun.bring()
            faulthandler.dump_traceback_later(limit, exit=True, file=late)
            rerun.go_on()
        except BaseException as error:
            found = describe(error, rerun.at[0], None, 0, step=rerun.at[1])
            return for_travel(found), rerun.at
        finally:
            faulthandler.cancel_dump_traceback_later()
            faulthandler.enable()
    return None, rerun.at


def _at(diary: Path) -> At:
    """What it was about to do last."""
    command, step = _read(diary).split() or ("start", 0)
    return command, int(step)


def _read(file: Path) -> str:
    """A file of the process; "" if it did not come that far."""
    return file.read_text(errors="replace") if file.exists() else ""
