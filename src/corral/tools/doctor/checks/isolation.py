"""May several envs share a process?

The question that a pool asks before it places its slots, asked more thoroughly: what
the env says of itself does not count, it is played longer, and one is closed and
another built on the way (see `engine.worker.isolation_probe`). Global generators are
kept apart, since `isolate_rng` takes care of those.
"""

from __future__ import annotations

import functools
import logging
import os
from collections.abc import Iterator

from corral.engine.adapters.factories import wrapped
from corral.engine.adapters.isolation import ISOLATION_KEY
from corral.engine.adapters.pettingzoo import multi_env
from corral.engine.executors.contract import Assignment
from corral.engine.executors.process_sharing import NOT_REPEATABLE_REASON, try_sharing
from corral.engine.worker.commands import ProbeRequest, ShardOptions
from corral.engine.worker.isolation_probe import SharingAnswer
from corral.engine.worker.probe import FAILED_ONCE_REASON, UNREAD_REASON
from corral.tools.doctor.driver import run_alone
from corral.tools.doctor.finding import Finding, note, ok, problem, warning
from corral.tools.doctor.subject import Subject

REMEDY = 'isolation="slot" gives each env a process of its own'


def examine(subject: Subject) -> Iterator[Finding]:
    """A process each, which is the remedy; then several in one."""
    steps = subject.profile.steps
    alone = [(subject.seed, slot, steps, True) for slot in range(3)]
    subject.ask_all(run_alone, alone)
    factory = subject.factory
    if subject.profile.kind != "gymnasium":
        factory = functools.partial(wrapped, factory, (multi_env,))
    assignment = Assignment(
        factories=[factory] * 2,
        shards=[range(2)],
        options=ShardOptions(subject.seed, isolate_rng=True),
        worker_init=_silence,
    )
    question = ProbeRequest(limit=subject.seconds, thorough=True)
    found = _finding(subject, try_sharing(assignment, [0, 1], question))
    subject.shares = found.severity in ("ok", "note")
    yield found


def _silence() -> None:
    """Discard what the env prints and logs while it is tried."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    for descriptor in (1, 2):
        os.dup2(nowhere, descriptor)
    os.close(nowhere)
    logging.disable()


def _finding(subject: Subject, answer: SharingAnswer) -> Finding:
    reason = answer.reason
    if answer.difference:
        reason += f". {answer.difference[0].upper()}{answer.difference[1:]}"
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


def _safe(subject: Subject, reservation: str = "") -> Finding:
    text = (
        "envs that shared a process, one closed early and one built late, did the "
        f"same as alone, bit for bit{reservation}"
    )
    data = {"isolation": "shared"}
    if subject.profile.metadata.get(ISOLATION_KEY) == "slot":
        text += "; but its metadata asks for a process each"
        return note(text, data=data)
    return (note if reservation else ok)(text, data=data)


def _unsafe(subject: Subject, text: str) -> Finding:
    declared = subject.profile.metadata.get(ISOLATION_KEY) == "shared"
    return problem(
        f"not safe to share a process: {text}",
        REMEDY + ("; its metadata says that it may share one" if declared else ""),
        f"in three processes with one env each, {subject.profile.steps} resets and "
        "steps ran without an error",
        {"isolation": "slot"},
        {"isolation": "slot"},
    )
