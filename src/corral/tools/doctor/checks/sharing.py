"""May several envs share a process, and may threads have one env each?"""

from __future__ import annotations

import os
from functools import partial
from typing import Any

from corral.engine.adapters.factories import wrapped
from corral.engine.adapters.isolation import ISOLATION_KEY
from corral.engine.adapters.pettingzoo import multi_env
from corral.engine.executors.assign import usable_cores
from corral.engine.executors.contract import Assignment
from corral.engine.executors.process_sharing import NOT_REPEATABLE_REASON, try_sharing
from corral.engine.worker.commands import ProbeRequest, ShardOptions
from corral.engine.worker.isolation_probe import THREADS_KEY, SharingAnswer
from corral.engine.worker.probe import FAILED_ONCE_REASON, UNREAD_REASON
from corral.tools.doctor.driver import run_alone
from corral.tools.doctor.report import Finding, note, ok, problem, warning
from corral.tools.doctor.subject import Subject
from corral.tools.output_file import write_output_to

# Isolation ----------------------------------------------------------------------------
#
# The question that a pool asks before it places its slots, asked more thoroughly: what
# the env says of itself does not count, it is played longer, and one is closed and
# another built on the way (see `engine.worker.isolation_probe`). Global generators are
# kept apart, since `isolate_rng` takes care of those.


def check_isolation(subject: Subject) -> Finding:
    """A process each, which is the remedy; then several in one."""
    steps = subject.profile.steps
    subject.ask_all(run_alone, [(subject.seed, slot, steps, True) for slot in range(3)])
    found = _judged(subject, _tried(subject))
    subject.shares = found.severity in ("ok", "note")
    return found


def _tried(subject: Subject, threads: bool = False) -> SharingAnswer:
    """What a probe finds out about two of these envs."""
    factory = subject.factory
    if subject.profile.kind != "gymnasium":
        factory = partial(wrapped, factory, (multi_env,))
    assignment = Assignment(
        factories=[factory] * 2,
        shards=[range(2)],
        options=ShardOptions(subject.seed, isolate_rng=not threads),
        worker_init=partial(write_output_to, os.devnull),
    )
    timed = GAIN_SECONDS if threads and usable_cores() > 1 else 0.0
    asked = ProbeRequest(timed, limit=subject.seconds, thorough=True, threads=threads)
    return try_sharing(assignment, [0, 1], asked)


def _judged(subject: Subject, answer: SharingAnswer) -> Finding:
    reason = _reason(answer)
    if answer.safe:
        return _safe(subject)
    if answer.safe is False:
        return _unsafe(subject, reason)
    if answer.reason == NOT_REPEATABLE_REASON:
        return note(
            "two envs in one process ran without an error; whether they interfere "
            "with each other cannot be seen, since no two runs of one env are equal",
            "make it deterministic first",
        )
    if answer.reason.startswith(UNREAD_REASON):
        return _safe(subject, f"; but {answer.reason}")
    remedy = 'use isolation="slot", unless you know that sharing is safe'
    if answer.reason.startswith(FAILED_ONCE_REASON):
        remedy = (
            "run it alone for long; if it fails there as well, the other envs are not "
            'the cause; otherwise use isolation="slot"'
        )
    return warning(f"whether envs may share a process is not known: {reason}", remedy)


def _reason(answer: SharingAnswer) -> str:
    """Why, and which env did something else than alone."""
    apart = answer.difference
    return f"{answer.reason}. {apart[0].upper()}{apart[1:]}" if apart else answer.reason


def _safe(subject: Subject, reservation: str = "") -> Finding:
    if subject.profile.metadata.get(ISOLATION_KEY) == "slot":
        reservation += "; but its metadata asks for a process each"
    return (note if reservation else ok)(
        "envs that shared a process, one closed early and one built late, did the "
        f"same as alone, bit for bit{reservation}",
        data={"isolation": "shared"},
    )


def _unsafe(subject: Subject, text: str) -> Finding:
    remedy = 'isolation="slot" gives each env a process of its own'
    if subject.profile.metadata.get(ISOLATION_KEY) == "shared":
        remedy += "; its metadata says that it may share one"
    return problem(
        f"not safe to share a process: {text}",
        remedy,
        f"in three processes with one env each, {subject.profile.steps} resets and "
        "steps ran without an error",
        {"isolation": "slot"},
        {"isolation": "slot"},
    )


# Threads ------------------------------------------------------------------------------

# Seconds for measuring what threads gain.
GAIN_SECONDS = 0.9
# Times the work of one thread, from which on threads are recommended.
WORTHWHILE_GAIN = 1.5
NOT_THREADS = 'do not use backend="thread"; "auto" does not choose it either'


def check_threads(subject: Subject) -> Finding:
    """Whether they do the same as alone, then whether it is worth it."""
    data = {"threads": False}
    if subject.draws_globally:
        return note(
            "threads would share the global generators it draws from; with "
            "isolate_rng=True only one of them runs at a time",
            NOT_THREADS,
            data=data,
        )
    answer = _tried(subject, threads=True)
    declared = bool(subject.profile.metadata.get(THREADS_KEY))
    if answer.safe or answer.reason.startswith(UNREAD_REASON):
        return _gain(answer, declared, "did the same as alone")
    if answer.reason == NOT_REPEATABLE_REASON:
        return _gain(answer, declared, "ran without an error")
    text = f"two threads with an env each interfere with each other: {_reason(answer)}"
    if declared:
        return problem(text, f'remove "{THREADS_KEY}" from its metadata', data=data)
    return note(text, NOT_THREADS, data=data)


def _gain(answer: SharingAnswer, declared: bool, did: str) -> Finding:
    text = f"two threads with an env each {did}"
    data: dict[str, Any] = {"threads": True}
    if usable_cores() < 2:
        return ok(text, data=data)
    gain = data["gain"] = answer.thread_gain
    text = f"{text}; two did {gain:.2f} times the work of one"
    if gain < WORTHWHILE_GAIN:
        return ok(f"{text}: its steps hold the GIL", data=data)
    if declared:
        return ok(text, data=data)
    remedy = (
        f'its steps release the GIL: with metadata["{THREADS_KEY}"] = True "auto" can '
        "choose threads, which start at once and share memory"
    )
    return note(text, remedy, data=data)
