"""May several envs share a process?

    alone      slot 0 │ slot 1 │ slot 2      each in a process of its own
    together   slot 0 ─ ─ ─ ─ ─ ─ ─ ─ ─ ─    one process: stepped in turns,
               slot 1 ─ ─ ─ ─ ─ closed       one of them closed on the way,
               slot 2           built ─ ─    another one built

Each has to do together what it does alone, bit for bit. Global generators are kept
apart, since `isolate_rng` takes care of those. What goes wrong has to do so a second
time: an env may also fail now and then, whoever is there.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

from corral.engine.adapters.isolation import ISOLATION_KEY
from corral.engine.faults.report import error_for
from corral.errors import Fault
from corral.tools.doctor.checks.determinism import is_deterministic
from corral.tools.doctor.contract import Check
from corral.tools.doctor.differences import first_difference
from corral.tools.doctor.driver import EpisodeDriver
from corral.tools.doctor.env_response import EnvResponse
from corral.tools.doctor.finding import Finding, Severity
from corral.tools.doctor.runs import copied, own_generators, run_alone
from corral.tools.doctor.subject import Subject, brief

ENV_NAMES = ("the first env", "the second env", "an env built later")
REMEDY = 'isolation="slot" gives each env a process of its own'


@dataclass(slots=True)
class SharedRun:
    """What each env did, and what went wrong."""

    runs: list[list[EnvResponse]] = field(default_factory=lambda: [[], [], []])
    trouble: str = ""


def measure_together(factory: Callable[[], Any], seed: int, moments: int) -> SharedRun:
    """Three envs in one process, as drawn above."""
    found = SharedRun()
    try:
        for slot, moment in _in_turns(factory, seed, moments):
            found.runs[slot].append(copied(moment))
    except _EnvFailed as trouble:
        found.trouble = str(trouble)
    return found


class _EnvFailed(Exception):
    """One env failed beside the others."""


def _in_turns(
    factory: Callable[[], Any], seed: int, moments: int
) -> Iterator[tuple[int, EnvResponse]]:
    isolation = own_generators(seed)
    drivers: dict[int, EpisodeDriver] = {}

    def act(slot: int, what: str) -> EnvResponse | None:
        try:
            if what == "build":
                around = lambda: isolation.of(slot)  # noqa: E731 - of this slot
                drivers[slot] = EpisodeDriver(factory, seed, slot, around)
            elif what == "close":
                drivers.pop(slot).close()
            else:
                return drivers[slot].advance()
        except Exception as error:
            raise _EnvFailed(
                f"{ENV_NAMES[slot]} failed in {_call(error, what)}"
            ) from error
        return None

    for slot in (0, 1):
        act(slot, "build")
    for number in range(moments):
        if number == moments * 2 // 3:
            act(1, "close")
        if number == moments * 5 // 6:
            act(2, "build")
        for slot in sorted(drivers):
            moment = act(slot, "advance")
            assert moment is not None
            yield slot, moment
    for slot in sorted(drivers):
        act(slot, "close")


def _call(error: Exception, what: str) -> str:
    """The env's method that raised, by what is on the way to it."""
    name = {"build": "its constructor", "close": "close()"}.get(what)
    if name is None:
        trace = error.__traceback__
        calls = []
        while trace is not None:
            calls.append(trace.tb_frame.f_code.co_name)
            trace = trace.tb_next
        name = "reset()" if "reset" in calls else "step()"
    return f"{name}: {type(error).__name__}: {error}".rstrip(". ")


def examine(subject: Subject) -> Iterator[Finding]:
    """Alone, then together."""
    steps = subject.profile.steps
    alone = subject.ask_each(
        run_alone, [(subject.seed, slot, steps, True) for slot in range(3)]
    )
    for answer in alone:
        if isinstance(answer, Fault):
            raise error_for(answer)
    wrong = _wrong(subject, alone)
    subject.shares = not wrong
    if wrong and not _wrong(subject, alone):
        yield _by_chance(wrong)
    elif wrong:
        yield _unsafe(subject, wrong)
    elif subject.deterministic is False:
        yield Finding(
            "isolation",
            "note",
            f"two envs in one process ran {steps} resets and steps without an error; "
            "whether they disturb each other cannot be seen, since no two runs of one "
            "env are equal",
            "make it deterministic first",
        )
    else:
        yield _safe(subject)


def _wrong(subject: Subject, alone: list[list[EnvResponse]]) -> str:
    """What goes wrong with several in one process; "" if nothing does."""
    arguments = (subject.seed, subject.profile.steps)
    (answer,) = subject.ask_each(measure_together, [arguments])
    if isinstance(answer, Fault):
        return f"with several in one process {brief(answer)}"
    apart = _apart(answer, alone)
    if apart and not is_deterministic(subject):
        apart = ""
    if answer.trouble:
        return f"{answer.trouble}. Before that, {apart}" if apart else answer.trouble
    return f"envs in one process disturb each other: {apart}" if apart else ""


def _apart(together: SharedRun, alone: list[list[EnvResponse]]) -> str:
    for name, ours, theirs in zip(ENV_NAMES, together.runs, alone, strict=True):
        found = first_difference(ours, theirs)
        if found:
            return f"{name}, {found} (together and alone)"
    return ""


def _safe(subject: Subject) -> Finding:
    declared = subject.profile.metadata.get(ISOLATION_KEY)
    text = (
        "several in one process, one of them closed, one built later: each did the "
        f"same as alone, bit for bit, {subject.profile.steps} resets and steps long"
    )
    if declared == "slot":
        text += "; but its metadata asks for a process each"
    severity: Severity = "note" if declared == "slot" else "ok"
    return Finding("isolation", severity, text, data={"isolation": "shared"})


def _by_chance(text: str) -> Finding:
    return Finding(
        "isolation",
        "warning",
        f"went wrong once, with several in one process: {text}. Tried again, it did "
        "not: whether they may share one is not known",
        "run it alone for long; if it fails there as well, the other envs are not the "
        'cause; otherwise use isolation="slot"',
    )


def _unsafe(subject: Subject, text: str) -> Finding:
    declared = subject.profile.metadata.get(ISOLATION_KEY) == "shared"
    return Finding(
        "isolation",
        "problem",
        f"not safe to share a process: {text}",
        REMEDY + ("; its metadata says that it may share one" if declared else ""),
        f"three processes at once, an env each: {subject.profile.steps} resets and "
        "steps "
        "without an error",
        {"isolation": "slot"},
        {"isolation": "slot"},
    )


CHECK = Check("isolation", examine)
