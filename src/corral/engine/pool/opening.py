"""Opening a pool: place the slots, build their envs there, lay out the block."""

from __future__ import annotations

from dataclasses import dataclass, replace

from corral.core import EnvSpec
from corral.engine.executors.assign import Placement
from corral.engine.executors.contract import Assignment, Executor, closed_on_error
from corral.engine.executors.placement import place
from corral.engine.faults.report import error_for
from corral.engine.layout.codec import Codecs
from corral.engine.layout.plan import DataViews
from corral.engine.pool.fault_details import with_rebuild_spec
from corral.engine.pool.options import ApiOptions, PoolOptions, own_process_reason
from corral.errors import FaultError, IsolationError


@dataclass(frozen=True, slots=True)
class OpenWorkers:
    """Workers that wait for their first command."""

    executor: Executor
    layout: Placement
    specs: list[EnvSpec]
    """What each env said about itself."""
    spec: EnvSpec
    """What they agree on."""
    codecs: Codecs
    views: DataViews


def open_workers(
    assignment: Assignment, options: PoolOptions, api: ApiOptions
) -> OpenWorkers:
    """Choose where the slots run, and build their envs there."""
    try:
        return _open(assignment, options, api)
    except IsolationError:
        given = options.workers is not None and not api.own_processes
        if options.backend not in ("auto", "process") or given:
            raise
        apart = replace(options, workers=None, isolation="slot")
        opened = _open(assignment, apart, api)
        layout = replace(opened.layout, reason=own_process_reason(opened.spec))
        return replace(opened, layout=layout)


def _open(assignment: Assignment, options: PoolOptions, api: ApiOptions) -> OpenWorkers:
    shards: list[range] = []
    one_process = False
    try:
        executor, layout = place(
            assignment,
            options.backend,
            options.workers,
            options.isolation,
            api.own_processes,
        )
        shards, one_process = executor.shards, layout.backend != "process"
        with closed_on_error(executor):
            specs = executor.build()
            spec = api.agree(specs)
            codecs = Codecs.of(spec)
            views = executor.bind(codecs)
            return OpenWorkers(executor, layout, specs, spec, codecs, views)
    except FaultError as error:
        fault = with_rebuild_spec(error.fault, assignment, shards, one_process)
        complete = error_for(fault)
        raise complete from complete.__cause__
