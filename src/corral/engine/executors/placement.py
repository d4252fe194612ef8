"""Which executor a pool gets, with how many workers, and why: `backend="auto"` too.

    place(assignment, backend, workers, isolation)
      -> serial | thread | process, and the reason that `envs.layout` shows

`auto` has two envs timed in a worker; sharing a process is asked of `process_sharing`.
"""

from __future__ import annotations

from dataclasses import replace

from corral.engine.adapters.factories import is_count
from corral.engine.executors.assign import (
    Placement,
    choose,
    enough_workers,
    shards,
    useful_processes,
)
from corral.engine.executors.contract import Assignment, Executor
from corral.engine.executors.process import ProcessExecutor
from corral.engine.executors.process_sharing import SharingProbe, SharingQuestion
from corral.engine.executors.serial import SerialExecutor
from corral.engine.executors.thread import ThreadExecutor
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
"""What `auto` asks, which times envs anyway: it may take longer than the others."""

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
        own_processes: whether this stands for a class with a process for every env,
            whose numbers it has to give: then `workers` is no more than a wish.
    """
    _check(backend, workers, isolation)
    slots, reason = assignment.slots, ASKED
    # Until it is known that nobody shares a process.
    assignment.options.checks_sharing = isolation == "auto" and slots > 1
    if assignment.needs_processes:
        backend = _require_processes(backend, assignment.needs_processes)
        reason = f"{assignment.needs_processes} needs processes"
    if isolation == "slot":
        if backend in ("serial", "thread"):
            raise OptionError(
                f'isolation="slot" puts every slot in a process of its own; '
                f"backend={backend!r} has none. Leave the backend out."
            )
        reason = 'isolation="slot": one process per slot'
        return _one_worker_each(assignment, reason)
    if backend == "auto" and workers is None:
        if slots == 1:
            reason = "there is one slot, and no other to run beside it"
            return SerialExecutor(assignment), Placement("serial", 1, 1, reason)
        if assignment.options.batched:
            return _unmeasured(assignment)
        return _measured(assignment)
    if backend == "serial":
        if workers not in (None, 1):
            raise OptionError(f"backend='serial' has one worker, not workers={workers}")
        placement = Placement("serial", 1, slots, reason)
        return SerialExecutor(assignment), placement
    if own_processes and workers is None and reason == ASKED:
        reason = f"this class uses processes; {_usable(assignment.cores)}"
    wanted = workers or enough_workers(slots, assignment.cores)
    count = min(int(wanted), slots)
    if backend == "thread":
        return _threads(assignment, Placement("thread", count, slots, reason))
    placement = Placement("process", count, slots, reason)
    return _processes(assignment, placement, workers is not None, own_processes)


def _require_processes(backend: str, asked: str) -> str:
    """A backend whose workers can be given up, and be outlived."""
    if backend == "auto":
        return "process"
    capabilities = EXECUTORS[backend].capabilities
    if not (capabilities.deadlines and capabilities.survives_deaths):
        raise OptionError(
            f"{asked} needs workers that can hang or die without the caller; "
            f'backend={backend!r} has none. Use backend="process", or leave it out.'
        )
    return backend


def _check(backend: str, workers: int | None, isolation: str | None) -> None:
    if backend not in BACKENDS:
        raise OptionError(
            f"backend is {backend!r}; choose one of {', '.join(BACKENDS)}"
        )
    if workers is not None and not is_count(workers):
        raise OptionError(f"workers is {workers!r}; it must be an integer >= 1")
    if isolation not in (None, *ISOLATIONS):
        raise OptionError(
            f"isolation is {isolation!r}; choose one of {', '.join(ISOLATIONS)}"
        )
    if isolation == "slot" and workers is not None:
        raise OptionError('isolation="slot" decides the number of workers itself')


def _usable(cores: int) -> str:
    return "one core is usable" if cores == 1 else f"{cores} cores are usable"


# Processes and threads that were asked for --------------------------------------------


def _process(
    assignment: Assignment, placement: Placement
) -> tuple[ProcessExecutor, Placement]:
    slots, workers = assignment.slots, placement.workers
    assignment.options.checks_sharing &= workers < slots
    chosen = replace(assignment, shards=shards(slots, workers))
    return ProcessExecutor(chosen), placement


def _one_worker_each(
    assignment: Assignment, reason: str, step_time: float | None = None, extra: int = 0
) -> tuple[ProcessExecutor, Placement]:
    """A process for every slot."""
    slots = assignment.slots
    placement = Placement("process", slots, slots, reason, step_time, extra_envs=extra)
    return _process(assignment, placement)


def _needs_sharing_answer(assignment: Assignment, workers: int) -> bool:
    """Whether it matters what envs do to each other in one process."""
    options = assignment.options
    return options.checks_sharing and not options.batched and workers < assignment.slots


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
        return _process(assignment, placement)
    inquiry, executor = SharingQuestion(assignment), None
    sharing = inquiry.known_answer()
    try:
        if sharing is None:
            executor, sharing = _probed(assignment, placement.workers, inquiry)
        shares = sharing.safe or (counted and not own_processes)
        if sharing.safe is False and shares:
            raise IsolationError(
                f"these envs must not share a process: {sharing.reason}; "
                f"workers={placement.workers} makes them share\n"
                'For a process each: isolation="slot" instead of workers=\n'
                'To share anyway: isolation="shared"'
            )
        if shares:
            if not counted:
                placement = _with_more_processes(placement, assignment.cores, sharing)
            placement = _with_sharing_reason(placement, sharing)
        else:
            reason = f"one process per slot, since {_sharing_reason(sharing)}"
            placement = replace(placement, workers=assignment.slots, reason=reason)
            placement = replace(placement, extra_envs=sharing.extra)
        if executor is None:
            return _process(assignment, placement)
        assignment.options.checks_sharing &= placement.workers < assignment.slots
        executor.reassign(shards(assignment.slots, placement.workers))
        return executor, placement
    except BaseException:
        if executor is not None:
            executor.close(2.0)
        raise


def _with_more_processes(
    placement: Placement, cores: int, sharing: SharingAnswer
) -> Placement:
    """More processes than cores, for envs that wait."""
    measured = Measurement(sharing.step_time, sharing.computing)
    count, why = useful_processes(placement.num_envs, cores, measured)
    if not why:
        return placement
    return replace(placement, workers=count, reason=f"{placement.reason}; {why}")


def _probed(
    assignment: Assignment, workers: int, inquiry: SharingQuestion
) -> tuple[ProcessExecutor, SharingAnswer]:
    """Have the first worker try envs, while the others start."""
    slots = assignment.slots
    asked = replace(assignment, shards=shards(slots, workers))
    executor = ProcessExecutor(asked, room=slots)
    try:
        executor.launch()
        look = SharingProbe(executor, inquiry.probe_slots, ProbeRequest())
        measured = look.measure()
        assert measured.sharing is not None
        inquiry.store(measured.sharing)
        look.clean(measured)
        return executor, measured.sharing
    except BaseException:
        executor.close(2.0)
        raise


def _threads(
    assignment: Assignment, placement: Placement
) -> tuple[Executor, Placement]:
    """Threads of this process, unless envs are known to disturb each other there."""
    chosen = replace(assignment, shards=shards(assignment.slots, placement.workers))
    if _needs_sharing_answer(assignment, 1):
        sharing = SharingQuestion(assignment).answer(ProbeRequest())
        if sharing.safe is False:
            raise IsolationError(
                f"these envs must not share a process: {sharing.reason}; "
                'backend="thread" makes them share\n'
                'For a process each: backend="process"\n'
                'To share anyway: isolation="shared"'
            )
        placement = _with_sharing_reason(placement, sharing)
    return ThreadExecutor(chosen), placement


def _with_sharing_reason(placement: Placement, sharing: SharingAnswer) -> Placement:
    """The same, with the reason why envs may share a process."""
    apart = placement.backend == "process" and placement.workers == placement.num_envs
    if apart:
        text = ""
    elif sharing.safe:
        text = f"envs share a process, since {sharing.reason}"
    else:
        text = f"whether envs disturb each other is not known: {sharing.reason}"
    return replace(placement, sharing=text, extra_envs=sharing.extra)


def _sharing_reason(sharing: SharingAnswer) -> str:
    if sharing.safe is False:
        return sharing.reason
    return f"whether envs may share one is not known: {sharing.reason}"


# Measured -----------------------------------------------------------------------------


def _unmeasured(assignment: Assignment) -> tuple[Executor, Placement]:
    """A batch for each core: what one costs depends on how many slots it has."""
    slots = assignment.slots
    workers = enough_workers(slots, assignment.cores)
    if workers == 1:
        reason = "there is one usable core"
        return SerialExecutor(assignment), Placement("serial", 1, slots, reason)
    reason = "batched: an env for every usable core, not measured"
    return _process(assignment, Placement("process", workers, slots, reason))


def _measured(assignment: Assignment) -> tuple[Executor, Placement]:
    """Time two envs in a worker; it goes on as a worker if processes win."""
    slots, cores = assignment.slots, assignment.cores
    inquiry = (
        SharingQuestion(assignment) if _needs_sharing_answer(assignment, 1) else None
    )
    known = None if inquiry is None else inquiry.known_answer()
    if known is not None and not known.safe:
        return _one_worker_each(
            assignment, f"one process per slot, since {_sharing_reason(known)}"
        )
    asked = replace(assignment, shards=shards(slots, enough_workers(slots, cores)))
    executor = ProcessExecutor(asked, room=slots)
    try:
        executor.launch()
        guests = [0, 1] if inquiry is None else inquiry.probe_slots
        judges = inquiry is not None and known is None
        question = replace(AUTO_PROBE, judges=judges)
        look = SharingProbe(executor, guests, question)
        measured = look.measure()
        sharing = measured.sharing or known
        if judges and inquiry is not None:
            inquiry.store(sharing)
        if sharing is not None and not sharing.safe:
            look.clean(measured)
            executor.reassign(shards(slots, slots))
            assignment.options.checks_sharing = False
            return executor, _one_process_each(slots, measured, sharing)
        if assignment.options.isolate_rng:  # threads would go one at a time
            measured = replace(measured, threads=False)
        if sharing is not None and sharing.forks:
            measured = replace(measured, forks=True)
        placement = choose(slots, cores, measured)
        if sharing is not None:
            placement = _with_sharing_reason(placement, sharing)
        if placement.backend == "process":
            look.clean(measured)
            assignment.options.checks_sharing &= placement.workers < slots
            executor.reassign(shards(slots, placement.workers))
            return executor, placement
    except BaseException:
        executor.close(2.0)
        raise
    executor.close(2.0)
    if placement.backend == "thread":
        chosen = replace(assignment, shards=shards(slots, placement.workers))
        return ThreadExecutor(chosen), placement
    return SerialExecutor(assignment), placement


def _one_process_each(
    slots: int, measured: Measurement, sharing: SharingAnswer
) -> Placement:
    """A process for every slot, after they were tried."""
    reason = f"one process per slot, since {_sharing_reason(sharing)}"
    step_time = measured.step_time or None
    return Placement(
        "process", slots, slots, reason, step_time, extra_envs=sharing.extra
    )
