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
import shlex
import tempfile
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from numpy.typing import NDArray

from corral.engine.faults.fault_file import load
from corral.engine.faults.report import error_for, message_for, where
from corral.engine.keywords import check_choice, checked_keywords
from corral.engine.parallel_map import map as run_in_worker
from corral.engine.worker.letters import describe, for_travel, users_part
from corral.errors import (
    CorralError,
    Fault,
    OptionError,
    OrderError,
    WorkerDied,
    WorkerHung,
)
from corral.tools.doctor.neighbours import (
    CARRIED,
    FAILS_ALONE,
    NeighbourCheck,
    check_neighbours,
)
from corral.tools.doctor.rerun import (
    At,
    Rerun,
    came_by_value,
    episode_of,
    failing_of,
    what_carries,
)

# Kinds of faults that end the process, which then is one of its own.
FATAL = ("died", "hung")
# Seconds allowed for what failed, in a process of its own, without another limit.
REPLAY_TIMEOUT_SECONDS = 60.0
SAME_PROGRAM = (
    "This program has run other envs too, so this does not show whether they are the "
    "reason. To find out, run: corral replay {}"
)
UNLESS_BUILT = (
    "It fails alone too: the other envs of its process are not the reason, unless the "
    "program that saved this had built such an env itself (its class is defined in a "
    "script or notebook)."
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
        neighbours: How it went alone and beside other envs of its process; None if that
            was not tried.
        rerun: The episode itself; None where it was run in a process of its own.
        path: Where the fault was saved; "FILE" if that is not known.
    """

    fault: Fault
    reproduced: bool | None
    command: str
    step: int
    error: BaseException | None
    notes: tuple[str, ...]
    neighbours: NeighbourCheck | None = None
    rerun: Rerun | None = None
    path: str = "FILE"

    @property
    def interferes(self) -> bool | None:
        """Whether another env of its process is why it failed; None: not known."""
        if self.neighbours is not None:
            return self.neighbours.interferes
        return False if self.reproduced and not self._reservation else None

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
    def _reservation(self) -> str:
        """Why other envs may be the reason though it failed alone; "" if they are not.

        They may have left something: in a class of a script, which was saved with that,
        or in this process.
        """
        if not self.fault.company and episode_of(self.fault).asked is None:
            return ""
        if carried := what_carries(self.fault):
            return CARRIED.format(carried)
        after_others = self.rerun is not None and self.rerun.after_others
        return SAME_PROGRAM.format(shlex.quote(self.path)) if after_others else ""

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
        elif self.reproduced:
            how = f"reproduced in {came}: {self._said(self.error)}"
        else:
            how = f"not reproduced: in {came} it was {self._said(self.error)}"
        place = where(replace(self.fault, pid=None))  # which is of another run
        lines = [f"{place}: {how}", *(f"Note: {n}." for n in self.notes)]
        if self.neighbours is not None:
            lines.append(str(self.neighbours))
        elif self.reproduced and self.fault.company:
            by_value = came_by_value(self.fault) == "class"
            alone = UNLESS_BUILT if by_value else FAILS_ALONE
            lines.append(self._reservation or alone)
        return "\n".join(lines)

    def _said(self, error: BaseException) -> str:
        """What went wrong this time, without the slot and the episode."""
        found = error.fault if isinstance(error, CorralError) else None
        if found is None or self.rerun is not None:
            return f"{type(error).__qualname__}: {error}".rstrip(": ")
        if found.error_type is not None:
            return f"{found.error_type}: {found.error_text}".rstrip(": ")
        less = replace(found, seed=None, step=None)
        return message_for(less, None).removeprefix(f"{where(less)}: ")


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
        The result; `.error` is what was raised, with its traceback, and `.interferes`
        says whether another env of its process is the reason. If the env shared its
        process and does not fail alone, finding that out takes nine processes and some
        seconds. Close the result, or use it in a `with`: its env is open, if it ran in
        this process.
    """
    fault, saved = load(path, trust), os.fsdecode(path)
    replayed = replay_fault(fault, up_to, backend, timeout, shared, debugger, saved)
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
    path: str = "FILE",
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
    replayed.path = path
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
        error = raised.with_traceback(users_part(raised))
    reproduced: bool | None = None
    if up_to == "failing" or error is not None:
        raised_alike = type(error).__qualname__ == fault.error_type
        reproduced = raised_alike and rerun.at == failing_of(fault)
    replayed = Replay(
        fault, reproduced, *rerun.at, error=error, notes=_notes(fault), rerun=rerun
    )
    if isinstance(error, KeyboardInterrupt) and not reproduced:  # Ctrl-C
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
            # An item for each command, so that each has a limit; the parent holds it,
            # whatever the env does to the timers of its process.
            commands = [None] * (len(episode_of(fault).actions) + 3)
            answers = run_in_worker(
                _run,
                [(fault, shared, limit, Path(folder)), *commands],
                workers=1,
                item_timeout=max(limit, REPLAY_TIMEOUT_SECONDS),
            )
            found, at = next(filter(None, answers))
        except (WorkerDied, WorkerHung) as ended:
            at = _at(Path(folder, DIARY))
            found = _ended(ended.fault, at, Path(folder), limit)
    error = None
    if found is not None:
        found = replace(found, slot=fault.slot, seed=fault.seed)
        error = error_for(found, None)
    same = ("error_type", "signal_name", "exit_code")
    reproduced = at == failing_of(fault) and all(
        found is not None and getattr(found, name) == getattr(fault, name)
        for name in same
    )
    return Replay(fault, reproduced, *at, error=error, notes=_notes(fault))


def _ended(fault: Fault, at: At, folder: Path, limit: float) -> Fault:
    """The fault of a process that ended; if it was late, one of an env that hung."""
    found = replace(fault, item=None, worker=None, command=at[0], step=at[1])
    if fault.kind == "hung":
        return found
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


# What went wrong, if anything did, and where it ended.
Ending = tuple[Fault | None, At]


class _Elsewhere:
    """The episode in the other process, which notes what it is about to do.

    Args:
        limit: seconds for the command that failed.
        folder: for the files named above.
    """

    def __init__(
        self,
        fault: Fault,
        shared: dict[str, NDArray[Any]] | None,
        limit: float,
        folder: Path,
    ) -> None:
        self._limit, self._folder = limit, folder
        self._crash = (folder / CRASH).open("w")
        diary = folder / DIARY
        self._rerun = Rerun(
            fault, shared, lambda at: diary.write_text(f"{at[0]} {at[1]}")
        )
        self._over = False

    def go_on(self) -> Ending | None:
        """Do the next command; how it all ended, if that was the last."""
        if self._over:
            return None
        faulthandler.enable(self._crash)  # the env may have named another file
        rerun = self._rerun
        try:
            if rerun.advance():
                return None
            self._over = True
            self._fail()
        except BaseException as error:
            self._over = True
            found = describe(error, rerun.at[0], None, 0, step=rerun.at[1])
            return for_travel(found), rerun.at
        return None, rerun.at

    def _fail(self) -> None:
        with (self._folder / LATE).open("w") as late:
            faulthandler.dump_traceback_later(self._limit, exit=True, file=late)
            try:
                self._rerun.go_on()
            finally:
                faulthandler.cancel_dump_traceback_later()


# In the other process.
_elsewhere_now: _Elsewhere | None = None


def _run(
    first: tuple[Fault, dict[str, NDArray[Any]] | None, float, Path] | None,
) -> Ending | None:
    """The body of the other process: open the episode first, then do its commands."""
    global _elsewhere_now
    if first is not None:
        _elsewhere_now = _Elsewhere(*first)
        return None
    assert _elsewhere_now is not None
    return _elsewhere_now.go_on()


def _at(diary: Path) -> At:
    """What it was about to do last."""
    command, step = _read(diary).split() or ("start", 0)
    return command, int(step)


def _read(file: Path) -> str:
    """A file of the process; "" if it did not come that far."""
    return file.read_text(errors="replace") if file.exists() else ""
