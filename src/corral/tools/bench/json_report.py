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

# Goes up when a key changes its meaning or goes away.
FORMAT = 1


def document(report: BenchReport, command: Sequence[str]) -> dict[str, Any]:
    """Everything that was found out."""
    settings, chosen = asdict(report.settings), report.recommendation
    return {
        "format": FORMAT,
        "command": list(command),
        "environment": {
            "name": settings.pop("env"),
            "kwargs": settings.pop("kwargs"),
            **_values(report, "observation_space action_space"),
        },
        "settings": {**settings, "backends": settings["backends"] or None},
        **_values(report, "machine versions interrupted left_out"),
        "missing": [_values(peer, "name install") for peer in report.missing],
        "agents": report.agents or None,
        "recommendation": asdict(chosen) if chosen else None,
        "groups": [_group(group) for group in report.groups],
    }


def _group(group: SizeResults) -> dict[str, Any]:
    best = best_of(group)
    rows = [_candidate(row) | {"best": row is best} for row in group.rows]
    figures = _values(group, "num_envs limit step_seconds cpu_share")
    return {**figures, "auto": group.auto or None, "candidates": rows}


def _candidate(row: CandidateResult) -> dict[str, Any]:
    figures = "state auto over_loop efficiency startup_seconds memory_bytes cpu_burnt"
    return {
        **_values(row.candidate, "library kind title workers"),
        **_values(row, figures),
        "time": asdict(row.time) if row.time else None,
        "reason": row.reason or None,
        "steps_per_second": row.rates.median if row.rates else None,
        "spread": row.rates.spread if row.rates else None,
        "rounds": row.rates.rounds if row.rates else (),
    }


def _values(of: Any, names: str) -> dict[str, Any]:
    return {name: getattr(of, name) for name in names.split()}
