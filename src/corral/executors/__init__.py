"""Executors own workers. One contract: serial, thread and process."""

from __future__ import annotations

from dataclasses import replace

from corral.adapters.factories import is_count
from corral.errors import OptionError, StartError, WorkerDied
from corral.executors.assign import (
    Placement,
    choose,
    enough_workers,
    most_processes,
    shards,
    usable_cores,
)
from corral.executors.contract import Assignment, Executor
from corral.executors.process import ProcessExecutor, kill_workers_of
from corral.executors.serial import SerialExecutor
from corral.executors.thread import ThreadExecutor
from corral.workers.probe import Measurement

EXECUTORS: dict[str, type[SerialExecutor | ThreadExecutor | ProcessExecutor]] = {
    "serial": SerialExecutor,
    "thread": ThreadExecutor,
    "process": ProcessExecutor,
}
BACKENDS = ("auto", *EXECUTORS)
ISOLATIONS = ("auto", "slot", "shared")
PROBE_SECONDS = 0.3

__all__ = [
    "BACKENDS",
    "Executor",
    "Placement",
    "ProcessExecutor",
    "SerialExecutor",
    "ThreadExecutor",
    "kill_workers_of",
    "place",
    "usable_cores",
]


def place(
    assignment: Assignment,
    backend: str = "auto",
    workers: int | None = None,
    isolation: str | None = None,
) -> tuple[Executor, Placement]:
    """Choose an executor for the slots and say why."""
    _check(backend, workers, isolation)
    slots, reason = assignment.slots, "asked for"
    # Until it is known that nobody shares a process.
    assignment.options.minds_company = isolation == "auto" and slots > 1
    if assignment.needs_processes:
        backend = _of_processes(backend, assignment.needs_processes)
        reason = f"{assignment.needs_processes} needs processes"
    if isolation == "slot":
        if backend in ("serial", "thread"):
            raise OptionError(
                f'isolation="slot" puts every slot in a process of its own; '
                f"backend={backend!r} has none. Leave the backend out."
            )
        reason = 'isolation="slot": one process per slot'
        return _one_each(assignment, reason)
    if backend == "auto" and workers is None:
        if slots == 1:
            reason = "one slot has nobody to run beside"
            return SerialExecutor(assignment), Placement("serial", 1, 1, reason)
        if assignment.options.batched:
            return _unmeasured(assignment)
        return _measured(assignment)
    if backend == "serial":
        if workers not in (None, 1):
            raise OptionError(f"backend='serial' has one worker, not workers={workers}")
        placement = Placement("serial", 1, slots, reason)
        return SerialExecutor(assignment), placement
    wanted = workers or enough_workers(slots, assignment.cores)
    count = min(int(wanted), slots)
    if backend == "thread":
        placement = Placement("thread", count, slots, reason)
        chosen = replace(assignment, shards=shards(slots, count))
        return ThreadExecutor(chosen), placement
    return _process(assignment, Placement("process", count, slots, reason))


def _of_processes(backend: str, asked: str) -> str:
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


def _process(
    assignment: Assignment, placement: Placement
) -> tuple[ProcessExecutor, Placement]:
    slots, workers = assignment.slots, placement.workers
    assignment.options.minds_company &= workers < slots
    chosen = replace(assignment, shards=shards(slots, workers))
    return ProcessExecutor(chosen), placement


def _one_each(
    assignment: Assignment, reason: str, step_time: float | None = None
) -> tuple[ProcessExecutor, Placement]:
    """A process for every slot."""
    slots = assignment.slots
    return _process(assignment, Placement("process", slots, slots, reason, step_time))


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
    asked = replace(assignment, shards=shards(slots, enough_workers(slots, cores)))
    executor = ProcessExecutor(asked, room=most_processes(slots, cores))
    try:
        executor.launch()
        measured = _probed(executor, assignment.options.minds_company)
        if measured is None:
            executor.close(2.0)
            return _untried(assignment)
        if isinstance(measured, str):
            executor.close(2.0)
            return _one_each(assignment, f"one process per slot, since {measured}")
        if assignment.options.isolate_rng:  # threads would go one at a time
            measured = replace(measured, threads=False)
        if measured.alone:
            # Not with the worker that was probed: what the two envs left behind in its
            # process, a third would meet.
            executor.close(2.0)
            reason = f"one process per slot, since {measured.alone}"
            return _one_each(assignment, reason, measured.step_time)
        placement = choose(slots, cores, measured)
        if placement.backend == "process":
            assignment.options.minds_company &= placement.workers < slots
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


def _untried(assignment: Assignment) -> tuple[Executor, Placement]:
    """Processes for envs that fail when they are tried: the caller will see how."""
    slots = assignment.slots
    workers = enough_workers(slots, assignment.cores)
    reason = "not measured, since an env failed in a trial run"
    return _process(assignment, Placement("process", workers, slots, reason))


def _probed(executor: ProcessExecutor, minds_company: bool) -> Measurement | str | None:
    """What was measured; or how the process ended in which two envs met.

    None if an env failed: what it says is for the caller's own reset or step to tell.
    """
    try:
        return executor.probe(PROBE_SECONDS)
    except StartError as error:
        if error.fault.kind == "hung":
            raise
        return None
    except WorkerDied as error:
        if not minds_company:
            raise
        # If one alone ends its process as well, it will say so there.
        how = error.fault.signal_name or f"exit code {error.fault.exit_code}"
        return f"the process that two of them were tried in ended ({how})"
