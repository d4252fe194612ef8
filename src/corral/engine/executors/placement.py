"""Which executor a pool gets, with how many workers, and why: `backend="auto"` too.

    place(assignment, backend, workers, isolation)
      -> serial | thread | process, and the reason that `envs.layout` shows

`auto` times two envs in a worker. `process_sharing` says whether envs may share a
process.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial

from corral.engine.executors.assign import (
    Placement,
    choose,
    enough_workers,
    shards,
    useful_processes,
)
from corral.engine.executors.contract import Assignment, Executor, closed_on_error
from corral.engine.executors.process import ProcessExecutor
from corral.engine.executors.process_sharing import (
    SharingProbe,
    SharingQuestion,
    try_sharing,
)
from corral.engine.executors.serial import SerialExecutor
from corral.engine.executors.thread import ThreadExecutor
from corral.engine.keywords import check_count
from corral.engine.worker.commands import ProbeRequest
from corral.engine.worker.isolation_probe import SharingAnswer
from corral.engine.worker.probe import Measurement
from corral.errors import IsolationError, OptionError

EXECUTORS: dict[str, type[SerialExecutor | ThreadExecutor | ProcessExecutor]] = {
    "serial": SerialExecutor,
    "thread": ThreadExecutor,
    "process": ProcessExecutor,
}
BACKENDS = ("auto", *EXECUTORS)
ISOLATIONS = ("auto", "slot", "shared")
# The probe of `auto`, which times envs anyway: it may take longer than the others.
AUTO_PROBE = ProbeRequest(seconds=0.2, limit=1.0, long_to_build=1.0)

ASKED = "asked for"


def place(
    assignment: Assignment,
    backend: str = "auto",
    workers: int | None = None,
    isolation: str | None = None,
    own_processes: bool = False,
) -> tuple[Executor, Placement]:
    """Choose an executor for the slots and say why.

    Args:
        assignment: what is to be run.
        backend: one of BACKENDS.
        workers: how many, as `check_workers` allows; None for as many as are useful.
        isolation: one of ISOLATIONS; None where there are no envs.
        own_processes: whether the pool replaces a class with a process for every env,
            and must return the same numbers: `workers` is then only a wish.
    """
    slots, reason = assignment.slots, ASKED
    # Until it is known that no two envs share a process.
    assignment.options.checks_sharing = isolation == "auto" and slots > 1
    if assignment.needs_processes:
        require_processes(assignment.needs_processes, backend)
        backend, reason = "process", f"{assignment.needs_processes} needs processes"
    if isolation == "slot":
        require_processes('isolation="slot"', backend)
        if workers is not None:
            raise OptionError(
                'isolation="slot" has one worker per slot; leave out workers='
            )
        reason = 'isolation="slot": one process per slot'
        return _executor(assignment, Placement("process", slots, slots, reason))
    if backend == "auto" and workers is None:
        return _automatic(assignment)
    if backend == "serial":
        return _executor(assignment, Placement("serial", 1, slots, reason))
    if own_processes and workers is None and reason == ASKED:
        reason = f"this class uses processes; usable cores: {assignment.cores}"
    count = min(int(workers or enough_workers(slots, assignment.cores)), slots)
    if backend == "thread":
        placement = Placement("thread", count, slots, reason)
        return _threads(assignment, placement, workers)
    obeys = workers is not None and not own_processes
    wanted = Placement("process", count, slots, reason)
    usable_cores = assignment.cores if workers is None else None

    def decide(_: Measurement, sharing: SharingAnswer | None) -> Placement:
        return _processes(wanted, sharing, obeys, usable_cores)

    return _tried(assignment, count, ProbeRequest(), decide)


def check_workers(workers: int | None, backend: str) -> None:
    """Refuse a number of workers that the backend cannot have."""
    if workers is not None:
        check_count("workers", workers)
    if backend == "serial" and workers not in (None, 1):
        raise OptionError(f"backend='serial' has one worker, not workers={workers}")


def require_processes(asked: str, backend: str) -> None:
    """Refuse a backend whose workers cannot hang or die without the caller."""
    if backend in ("serial", "thread"):
        raise OptionError(
            f"{asked} needs worker processes, and backend={backend!r} has none; use "
            'backend="process", or leave it out'
        )


def _executor(
    assignment: Assignment, placement: Placement, started: ProcessExecutor | None = None
) -> tuple[Executor, Placement]:
    """The executor: one that was started for a probe, or a new one."""
    slots, workers = assignment.slots, placement.workers
    if placement.backend == "process":
        assignment.options.checks_sharing &= workers < slots
    if started is not None:
        started.reassign(shards(slots, workers))
        return started, placement
    chosen = replace(assignment, shards=shards(slots, workers))
    return EXECUTORS[placement.backend](chosen), placement


def _question(assignment: Assignment, workers: int) -> SharingQuestion | None:
    """Whether envs may share a process; None if that does not matter."""
    options = assignment.options
    if not options.checks_sharing or options.batched or workers == assignment.slots:
        return None
    return SharingQuestion(assignment)


def _tried(
    assignment: Assignment,
    workers: int,
    request: ProbeRequest,
    decide: Callable[[Measurement, SharingAnswer | None], Placement],
) -> tuple[Executor, Placement]:
    """Try two envs in a worker if need be; it stays a worker if processes win.

    Args:
        assignment: what is to be run.
        workers: how many processes are probably wanted.
        request: what to find out; with `seconds`, envs are timed in any case.
        decide: the placement, from the measurement and from what is known of sharing.
    """
    question = _question(assignment, 1 if request.seconds else workers)
    sharing, guests = None, [0, 1]
    if question is not None:
        sharing, guests = question.known_answer(), question.probe_slots
    judges = question is not None and sharing is None
    timed = request.seconds and (sharing is None or sharing.safe)
    if not judges and not timed:
        return _executor(assignment, decide(Measurement(0.0), sharing))
    asked = replace(assignment, shards=shards(assignment.slots, workers))
    executor = ProcessExecutor(asked, room=assignment.slots)
    with closed_on_error(executor):
        probe = SharingProbe(executor, guests, replace(request, judges=judges))
        measured = probe.measure()
        sharing = measured.sharing or sharing
        if judges and question is not None and sharing is not None:
            question.store(sharing)
        placement = decide(measured, sharing)
        if placement.backend == "process":
            probe.clean(measured)
            return _executor(assignment, placement, executor)
    executor.close(2.0)
    return _executor(assignment, placement)


# Processes and threads that were asked for --------------------------------------------


def _processes(
    placement: Placement, sharing: SharingAnswer | None, obeys: bool, cores: int | None
) -> Placement:
    """As many as asked for, if envs may share them; else one for each slot.

    Args:
        placement: what is wanted.
        sharing: whether envs may share a process; None if that does not matter.
        obeys: whether the caller's number of workers is more than a wish.
        cores: the usable ones, if the caller has given no number of workers.
    """
    if sharing is None:
        return placement
    if not sharing.safe and not obeys:
        return _one_process_each(placement.num_envs, sharing)
    if sharing.safe is False:
        asked = f"workers={placement.workers}"
        alone = f'isolation="slot" in place of {asked}'
        raise _must_not_share(sharing, asked, alone)
    if cores is not None:  # more processes than cores, for envs that wait
        measured = Measurement(sharing.step_time, sharing.computing)
        count, why = useful_processes(placement.num_envs, cores, measured)
        if why:
            reason = f"{placement.reason}; {why}"
            placement = replace(placement, workers=count, reason=reason)
    return _with_sharing_reason(placement, sharing)


def _must_not_share(sharing: SharingAnswer, asked: str, instead: str) -> IsolationError:
    return IsolationError(
        f"these envs must not share a process, as with {asked}: {sharing.reason}\n"
        "Next steps:\n"
        f"  give each env a process: {instead}\n"
        '  share anyway: isolation="shared"'
    )


def _threads(
    assignment: Assignment, placement: Placement, workers: int | None
) -> tuple[Executor, Placement]:
    """Threads of this process, unless envs are known to disturb each other there.

    Args:
        assignment: what is to be run.
        placement: what is wanted.
        workers: the caller's number of them, if any.
    """
    question = _question(assignment, 1)
    if question is not None:
        known = question.known_answer()
        sharing = known or question.store(
            try_sharing(assignment, question.probe_slots, ProbeRequest())
        )
        if sharing.safe is False:
            instead = 'backend="process"' + " without workers=" * (workers is not None)
            raise _must_not_share(sharing, 'backend="thread"', instead)
        placement = _with_sharing_reason(placement, sharing)
    return _executor(assignment, placement)


def _with_sharing_reason(placement: Placement, sharing: SharingAnswer) -> Placement:
    """The same, with the reason why envs may share a process."""
    if placement.backend == "process" and placement.workers == placement.num_envs:
        text = ""
    elif sharing.safe:
        text = f"envs share a process, since {sharing.reason}"
    else:
        text = f"whether envs disturb each other is not known: {sharing.reason}"
    return replace(placement, sharing=text, extra_envs=sharing.extra)


def _one_process_each(
    slots: int, sharing: SharingAnswer, step_time: float | None = None
) -> Placement:
    known = "" if sharing.safe is False else "whether envs may share one is not known: "
    reason = f"one process per slot, since {known}{sharing.reason}"
    return Placement(
        "process", slots, slots, reason, step_time, extra_envs=sharing.extra
    )


# Measured -----------------------------------------------------------------------------


def _automatic(assignment: Assignment) -> tuple[Executor, Placement]:
    """What `auto` comes to, measured where that makes a difference."""
    slots = assignment.slots
    if slots == 1:
        reason = "there is one slot, and no other to run beside it"
        return _executor(assignment, Placement("serial", 1, 1, reason))
    workers, backend = enough_workers(slots, assignment.cores), "process"
    if not assignment.options.batched:
        return _tried(assignment, workers, AUTO_PROBE, partial(_quickest, assignment))
    # A batch for each core: what one costs depends on how many slots it has.
    reason = "batched: an env for every usable core, not measured"
    if workers == 1:
        backend, reason = "serial", "there is one usable core"
    return _executor(assignment, Placement(backend, workers, slots, reason))


def _quickest(
    assignment: Assignment, measured: Measurement, sharing: SharingAnswer | None
) -> Placement:
    """The quickest place that envs may have."""
    slots = assignment.slots
    if sharing is not None and not sharing.safe:
        return _one_process_each(slots, sharing, measured.step_time or None)
    measured = replace(
        measured,
        # With isolate_rng, threads would go one at a time.
        threads=measured.threads and not assignment.options.isolate_rng,
        forks=measured.forks or (sharing is not None and sharing.forks),
    )
    placement = choose(slots, assignment.cores, measured)
    return placement if sharing is None else _with_sharing_reason(placement, sharing)
