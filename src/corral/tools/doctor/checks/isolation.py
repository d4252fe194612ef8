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

from corral.engine.adapters.isolation import DECLARATION
from corral.engine.faults.report import error_for
from corral.errors import Fault
from corral.tools.doctor.checks.determinism import is_deterministic
from corral.tools.doctor.contract import Check
from corral.tools.doctor.differences import first_difference
from corral.tools.doctor.driver import Player
from corral.tools.doctor.env_response import Moment
from corral.tools.doctor.finding import Finding, Severity
from corral.tools.doctor.runs import copied, own_generators, run_alone
from corral.tools.doctor.subject import Patient, brief

NAMES = ("the first env", "the second env", "an env built later")
REMEDY = 'isolation="slot" gives each env a process of its own'


@dataclass(slots=True)
class Together:
    """What each env did, and what went wrong."""

    runs: list[list[Moment]] = field(default_factory=lambda: [[], [], []])
    trouble: str = ""


def measure_together(factory: Callable[[], Any], seed: int, moments: int) -> Together:
    """Three envs in one process, as drawn above."""
    found = Together()
    try:
        for slot, moment in _in_turns(factory, seed, moments):
            found.runs[slot].append(copied(moment))
    except _Trouble as trouble:
        found.trouble = str(trouble)
    return found


class _Trouble(Exception):
    """One env failed beside the others."""


def _in_turns(
    factory: Callable[[], Any], seed: int, moments: int
) -> Iterator[tuple[int, Moment]]:
    isolation = own_generators(seed)
    players: dict[int, Player] = {}

    def act(slot: int, what: str) -> Moment | None:
        try:
            if what == "build":
                around = lambda: isolation.of(slot)  # noqa: E731 - of this slot
                players[slot] = Player(factory, seed, slot, around)
            elif what == "close":
                players.pop(slot).close()
            else:
                return players[slot].advance()
        except Exception as error:
            raise _Trouble(f"{NAMES[slot]} failed in {_call(error, what)}") from error
        return None

    for slot in (0, 1):
        act(slot, "build")
    for number in range(moments):
        if number == moments * 2 // 3:
            act(1, "close")
        if number == moments * 5 // 6:
            act(2, "build")
        for slot in sorted(players):
            moment = act(slot, "advance")
            assert moment is not None
            yield slot, moment
    for slot in sorted(players):
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


def examine(patient: Patient) -> Iterator[Finding]:
    """Alone, then together."""
    steps = patient.known.steps
    alone = patient.ask_each(
        run_alone, [(patient.seed, slot, steps, True) for slot in range(3)]
    )
    for answer in alone:
        if isinstance(answer, Fault):
            raise error_for(answer)
    wrong = _wrong(patient, alone)
    patient.shares = not wrong
    if wrong and not _wrong(patient, alone):
        yield _by_chance(wrong)
    elif wrong:
        yield _unsafe(patient, wrong)
    elif patient.deterministic is False:
        yield Finding(
            "isolation",
            "note",
            f"two envs in one process ran {steps} resets and steps without an error; "
            "whether they disturb each other cannot be seen, since no two runs of one "
            "env are equal",
            "make it deterministic first",
        )
    else:
        yield _safe(patient)


def _wrong(patient: Patient, alone: list[list[Moment]]) -> str:
    """What goes wrong with several in one process; "" if nothing does."""
    arguments = (patient.seed, patient.known.steps)
    (answer,) = patient.ask_each(measure_together, [arguments])
    if isinstance(answer, Fault):
        return f"with several in one process {brief(answer)}"
    apart = _apart(answer, alone)
    if apart and not is_deterministic(patient):
        apart = ""
    if answer.trouble:
        return f"{answer.trouble}. Before that, {apart}" if apart else answer.trouble
    return f"envs in one process disturb each other: {apart}" if apart else ""


def _apart(together: Together, alone: list[list[Moment]]) -> str:
    for name, ours, theirs in zip(NAMES, together.runs, alone, strict=True):
        found = first_difference(ours, theirs)
        if found:
            return f"{name}, {found} (together and alone)"
    return ""


def _safe(patient: Patient) -> Finding:
    declared = patient.known.metadata.get(DECLARATION)
    text = (
        "several in one process, one of them closed, one built later: each did the "
        f"same as alone, bit for bit, {patient.known.steps} resets and steps long"
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
        "run it alone for long; if it fails there as well, it is not for company, "
        'else isolation="slot"',
    )


def _unsafe(patient: Patient, text: str) -> Finding:
    declared = patient.known.metadata.get(DECLARATION) == "shared"
    return Finding(
        "isolation",
        "problem",
        f"not safe to share a process: {text}",
        REMEDY + ("; its metadata says that it may share one" if declared else ""),
        f"three processes at once, an env each: {patient.known.steps} resets and steps "
        "without an error",
        {"isolation": "slot"},
        {"isolation": "slot"},
    )


CHECK = Check("isolation", examine)
