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
    settings = report.settings
    chosen = report.recommendation
    return {
        "format": FORMAT,
        "command": list(command),
        "environment": {
            "name": settings.env,
            "kwargs": settings.kwargs,
            "observation_space": report.observation_space,
            "action_space": report.action_space,
        },
        "settings": {
            "num_envs": list(settings.num_envs),
            "backends": list(settings.backends) if settings.backends else None,
            "workers": list(settings.workers),
            "against": list(settings.against),
            "policy_ms": settings.policy_ms,
            "rounds": settings.rounds,
            "seconds": settings.seconds,
            "seed": settings.seed,
            "deadline": settings.deadline,
        },
        "machine": report.machine,
        "versions": report.versions,
        "interrupted": report.interrupted,
        "missing": [
            {"name": peer.name, "install": peer.install} for peer in report.missing
        ],
        "agents": report.agents or None,
        "left_out": list(report.left_out),
        "recommendation": asdict(chosen) if chosen else None,
        "groups": [_group(group) for group in report.groups],
    }


def _group(group: SizeResults) -> dict[str, Any]:
    best = best_of(group)
    return {
        "num_envs": group.num_envs,
        "limit": group.limit,
        "step_seconds": group.step,
        "cpu_share": group.share,
        "auto": group.auto or None,
        "candidates": [_candidate(row, row is best) for row in group.rows],
    }


def _candidate(row: CandidateResult, best: bool) -> dict[str, Any]:
    candidate = row.candidate
    return {
        "title": candidate.title,
        "library": candidate.library,
        "kind": candidate.kind,
        "workers": candidate.workers,
        "state": row.state,
        "reason": row.reason or None,
        "auto": row.auto,
        "best": best,
        "steps_per_second": row.steps_per_second,
        "spread": row.rates.spread if row.rates else None,
        "rounds": list(row.rates.rounds) if row.rates else [],
        "over_loop": row.over_loop,
        "efficiency": row.efficiency,
        "startup_seconds": row.startup,
        "memory_bytes": row.memory,
        "cpu_burnt": row.burnt,
        "time": asdict(row.split) if row.split else None,
    }
