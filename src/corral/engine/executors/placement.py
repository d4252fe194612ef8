"""Which executor a pool gets, with how many workers, and why: `backend="auto"` too.

    place(assignment, backend, workers, isolation)
      -> serial | thread | process, and the reason that `envs.layout` shows

`auto` times two envs in a worker. `process_sharing` says whether envs may share a
process.
"""

from __future__ import annotations

from dataclasses import replace

from corral.engine.executors.assign import (
    Placement,
    choose,
    enough_workers,
    shards,
    useful_processes,
)
from corral.engine.executors.contract import (
    Assignment,
    Executor,
    closed_on_error,
)
from corral.engine.executors.process import ProcessExecutor
from corral.engine.executors.process_sharing import SharingProbe, SharingQuestion
from corral.engine.executors.serial import SerialExecutor
from corral.engine.executors.thread import ThreadExecutor
from corral.engine.keywords import check_choice, check_count
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
AUTO_PROBE = ProbeRequest(seconds=0.2, limit=1.0, long_to_build=1.0)
"""The probe of `auto`, which times envs anyway: it may take longer than the others."""

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
        workers: how many; None for as many as are useful.
        isolation: one of ISOLATIONS; None where there are no envs.
        own_processes: whether the pool replaces a class with a process for every env,
            and must return the same numbers: `workers` is then only a wish.
    """
    _check(backend, workers, isolation)
    slots, reason = assignment.slots, ASKED
    # Until it is known that no two envs share a process.
    assignment.options.checks_sharing = isolation == "auto" and slots > 1
    if assignment.needs_processes:
        backend = _require_processes(backend, assignment.needs_processes)
        reason = f"{assignment.needs_processes} needs processes"
    if isolation == "slot":
        if backend in ("serial", "thread"):
            raise OptionError(
                f'isolation="slot" gives every slot a process of its own, and '
                f"backend={backend!r} has none; leave out the backend"
            )
        reason = 'isolation="slot": one process per slot'
        return _executor(assignment, Placement("process", slots, slots, reason))
    if backend == "auto" and workers is None:
        return _automatic(assignment)
    if backend == "serial":
        if workers not in (None, 1):
            raise OptionError(f"backend='serial' has one worker, not workers={workers}")
        return _executor(assignment, Placement("serial", 1, slots, reason))
    if own_processes and workers is None and reason == ASKED:
        cores = assignment.cores
        usable = "one core is usable" if cores == 1 else f"{cores} cores are usable"
        reason = f"this class uses processes; {usable}"
    count = min(int(workers or enough_workers(slots, assignment.cores)), slots)
    if backend == "thread":
        return _threads(assignment, Placement("thread", count, slots, reason))
    placement = Placement("process", count, slots, reason)
    return _processes(assignment, placement, workers is not None, own_processes)


def _require_processes(backend: str, asked: str) -> str:
    """A backend whose workers can hang or die without the caller."""
    if backend == "auto":
        return "process"
    capabilities = EXECUTORS[backend].capabilities
    if not (capabilities.deadlines and capabilities.survives_deaths):
        raise OptionError(
            f"{asked} needs workers that can hang or die without the caller, and "
            f'backend={backend!r} has none; use backend="process", or leave it out'
        )
    return backend


def _check(backend: str, workers: int | None, isolation: str | None) -> None:
    check_choice("backend", backend, BACKENDS)
    if workers is not None:
        check_count("workers", workers)
    if isolation is not None:
        check_choice("isolation", isolation, ISOLATIONS)
    if isolation == "slot" and workers is not None:
        raise OptionError(
            'isolation="slot" has one worker per slot; leave out workers='
        )


def _executor(
    assignment: Assignment, placement: Placement
) -> tuple[Executor, Placement]:
    slots, workers = assignment.slots, placement.workers
    if placement.backend == "process":
        assignment.options.checks_sharing &= workers < slots
    chosen = replace(assignment, shards=shards(slots, workers))
    return EXECUTORS[placement.backend](chosen), placement


def _reassigned(
    executor: ProcessExecutor, assignment: Assignment, placement: Placement
) -> tuple[Executor, Placement]:
    """The same with worker processes that were started for a probe."""
    assignment.options.checks_sharing &= placement.workers < assignment.slots
    executor.reassign(shards(assignment.slots, placement.workers))
    return executor, placement


def _needs_sharing_answer(assignment: Assignment, workers: int) -> bool:
    """Whether it matters what envs do to each other in one process."""
    options = assignment.options
    return options.checks_sharing and not options.batched and workers < assignment.slots


# Processes and threads that were asked for --------------------------------------------


def _processes(
    assignment: Assignment, placement: Placement, counted: bool, own_processes: bool
) -> tuple[Executor, Placement]:
    """As many as asked for, if envs may share them; else one for each slot.

    Args:
        assignment: what is to be run.
        placement: what is wanted.
        counted: whether the caller has given the number of workers.
        own_processes: see `place`.
    """
    if not _needs_sharing_answer(assignment, placement.workers):
        return _executor(assignment, placement)
    question = SharingQuestion(assignment)
    sharing, executor = question.known_answer(), None
    if sharing is None:
        chosen = replace(assignment, shards=shards(assignment.slots, placement.workers))
        executor = ProcessExecutor(chosen, room=assignment.slots)
    with closed_on_error(executor):
        if executor is not None:
            probe = SharingProbe(executor, question.probe_slots, ProbeRequest())
            measured = probe.measure()
            sharing = measured.sharing
            question.store(sharing)
            probe.clean(measured)
        assert sharing is not None
        if not sharing.safe and (own_processes or not counted):
            placement = _one_process_each(assignment.slots, sharing)
        elif sharing.safe is False:
            raise _must_not_share(
                sharing, f"workers={placement.workers}", 'isolation="slot"'
            )
        else:
            if not counted:
                placement = _with_more_processes(placement, assignment.cores, sharing)
            placement = _with_sharing_reason(placement, sharing)
        if executor is None:
            return _executor(assignment, placement)
        return _reassigned(executor, assignment, placement)


def _must_not_share(sharing: SharingAnswer, asked: str, instead: str) -> IsolationError:
    return IsolationError(
        f"these envs must not share a process: {sharing.reason}; {asked} makes them "
        f"share\nFor a process each: {instead} instead of {asked.partition('=')[0]}=\n"
        'To share anyway: isolation="shared"'
    )


def _with_more_processes(
    placement: Placement, cores: int, sharing: SharingAnswer
) -> Placement:
    """More processes than cores, for envs that wait."""
    measured = Measurement(sharing.step_time, sharing.computing)
    count, why = useful_processes(placement.num_envs, cores, measured)
    if not why:
        return placement
    return replace(placement, workers=count, reason=f"{placement.reason}; {why}")


def _threads(
    assignment: Assignment, placement: Placement
) -> tuple[Executor, Placement]:
    """Threads of this process, unless envs are known to disturb each other there."""
    if _needs_sharing_answer(assignment, 1):
        sharing = SharingQuestion(assignment).answer(ProbeRequest())
        if sharing.safe is False:
            raise _must_not_share(sharing, 'backend="thread"', 'backend="process"')
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
    reason = sharing.reason
    if sharing.safe is None:
        reason = f"whether envs may share one is not known: {reason}"
    reason = f"one process per slot, since {reason}"
    extra = sharing.extra
    return Placement("process", slots, slots, reason, step_time, extra_envs=extra)


# Measured -----------------------------------------------------------------------------


def _automatic(assignment: Assignment) -> tuple[Executor, Placement]:
    """What `auto` comes to, measured where that makes a difference."""
    slots = assignment.slots
    if slots == 1:
        reason = "there is one slot, and no other to run beside it"
        return _executor(assignment, Placement("serial", 1, 1, reason))
    if not assignment.options.batched:
        return _measured(assignment)
    # A batch for each core: what one costs depends on how many slots it has.
    workers, backend = enough_workers(slots, assignment.cores), "process"
    reason = "batched: an env for every usable core, not measured"
    if workers == 1:
        backend, reason = "serial", "there is one usable core"
    return _executor(assignment, Placement(backend, workers, slots, reason))


def _measured(assignment: Assignment) -> tuple[Executor, Placement]:
    """Time two envs in a worker; it goes on as a worker if processes win."""
    slots, cores, options = assignment.slots, assignment.cores, assignment.options
    question, sharing, guests = None, None, [0, 1]
    if _needs_sharing_answer(assignment, 1):
        question = SharingQuestion(assignment)
        sharing, guests = question.known_answer(), question.probe_slots
    if sharing is not None and not sharing.safe:
        return _executor(assignment, _one_process_each(slots, sharing))
    judges = question is not None and sharing is None
    asked = replace(assignment, shards=shards(slots, enough_workers(slots, cores)))
    executor = ProcessExecutor(asked, room=slots)
    with closed_on_error(executor):
        probe = SharingProbe(executor, guests, replace(AUTO_PROBE, judges=judges))
        measured = probe.measure()
        sharing = measured.sharing or sharing
        if judges and question is not None:
            question.store(sharing)
        if sharing is not None and not sharing.safe:
            step_time = measured.step_time or None
            placement = _one_process_each(slots, sharing, step_time)
        else:
            if options.isolate_rng:  # threads would go one at a time
                measured = replace(measured, threads=False)
            if sharing is not None and sharing.forks:
                measured = replace(measured, forks=True)
            placement = choose(slots, cores, measured)
            if sharing is not None:
                placement = _with_sharing_reason(placement, sharing)
        if placement.backend == "process":
            probe.clean(measured)
            return _reassigned(executor, assignment, placement)
    executor.close(2.0)
    return _executor(assignment, placement)
