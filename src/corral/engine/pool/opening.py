"""Opening a pool: place the slots, build their envs there, lay out the block."""

from __future__ import annotations

from dataclasses import dataclass, replace

from corral.core import EnvSpec
from corral.engine.adapters.isolation import ISOLATION_KEY
from corral.engine.executors.assign import Placement
from corral.engine.executors.contract import Assignment, Executor, closed_on_error
from corral.engine.executors.placement import place
from corral.engine.faults.report import error_for
from corral.engine.layout.codec import Codecs
from corral.engine.layout.plan import DataViews
from corral.engine.pool.fault_details import Neighbourhood
from corral.engine.pool.options import ApiOptions, PoolOptions
from corral.errors import FaultError, IsolationError


@dataclass(frozen=True, slots=True)
class OpenWorkers:
    """Workers that wait for their first command.

    Attributes:
        specs, spec: Those of the envs, and the one that they agree on.
    """

    executor: Executor
    layout: Placement
    specs: list[EnvSpec]
    spec: EnvSpec
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
        declared = opened.spec.metadata.get(ISOLATION_KEY)
        said = f'metadata["{ISOLATION_KEY}"] is "{declared}"'
        saved = "`corral doctor --save` found that envs disturb each other"
        reason = f"one process per slot, since {said if declared else saved}"
        return replace(opened, layout=replace(opened.layout, reason=reason))


def _open(assignment: Assignment, options: PoolOptions, api: ApiOptions) -> OpenWorkers:
    beside = Neighbourhood(assignment, [], one_process=False)
    try:
        executor, layout = place(
            assignment,
            options.backend,
            options.workers,
            options.isolation,
            api.own_processes,
        )
        one_process = layout.backend != "process"
        beside = Neighbourhood(assignment, executor.shards, one_process)
        with closed_on_error(executor):
            specs = executor.build()
            spec = api.agree(specs)
            codecs = Codecs.of(spec)
            views = executor.bind(codecs)
            return OpenWorkers(executor, layout, specs, spec, codecs, views)
    except FaultError as error:
        complete = error_for(beside.with_rebuild_spec(error.fault))
        raise complete from complete.__cause__
