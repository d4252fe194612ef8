"""A report as JSON: stable keys, plain values, null where nothing is known.

{format, command, environment, settings, machine, versions, interrupted, missing,
 agents, left_out, recommendation, groups: [
   {num_envs, limit, step_seconds, cpu_share, auto, candidates: [...]}]}

docs/guides/bench.md says what each key means.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from corral.tools.bench.recommend import best_of
from corral.tools.bench.results import BenchReport, CandidateResult, SizeResults

FORMAT = 1
"""Goes up when a key changes its meaning or goes away."""


def document(report: BenchReport, command: Sequence[str]) -> dict[str, Any]:
    """Everything that was found out."""
    settings, chosen = asdict(report.settings), report.recommendation
    return {
        "format": FORMAT,
        "command": list(command),
        "environment": {
            "name": settings.pop("env"),
            "kwargs": settings.pop("kwargs"),
            "observation_space": report.observation_space,
            "action_space": report.action_space,
        },
        "settings": {**settings, "backends": settings["backends"] or None},
        "machine": report.machine,
        "versions": report.versions,
        "interrupted": report.interrupted,
        "missing": [
            {"name": one.name, "install": one.install} for one in report.missing
        ],
        "agents": report.agents or None,
        "left_out": report.left_out,
        "recommendation": asdict(chosen) if chosen else None,
        "groups": [_group(group) for group in report.groups],
    }


def _group(group: SizeResults) -> dict[str, Any]:
    best, values = best_of(group), asdict(group)
    del values["rows"]
    rows = [_candidate(row) | {"best": row is best} for row in group.rows]
    return {**values, "auto": group.auto or None, "candidates": rows}


def _candidate(row: CandidateResult) -> dict[str, Any]:
    values = asdict(row)
    candidate, rates = values.pop("candidate"), row.rates
    for internal in ("traceback", "rates"):
        del values[internal]
    del candidate["fillers"]
    return {
        **candidate,
        **values,
        "reason": row.reason or None,
        "steps_per_second": row.steps_per_second,
        "spread": rates.spread if rates else None,
        "rounds": rates.rounds if rates else (),
    }
