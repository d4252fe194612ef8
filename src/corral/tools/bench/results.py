"""What a benchmark found out, as values."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal

from corral.errors import CorralError, FaultError
from corral.tools.bench.candidates import Candidate, Peer
from corral.tools.bench.measure import Rates
from corral.tools.bench.messages import TurnTimes
from corral.tools.bench.turn_figures import (
    BareEnvCost,
    CallerTimeSplit,
    burnt_by,
    limits_of,
    rates_of,
    ratio,
    split_of,
    unit_of,
)

State = Literal["measured", "failed", "stopped"]


@dataclass(slots=True)
class CandidateRecord:
    """What one candidate has shown so far; grows while the race runs."""

    candidate: Candidate
    turns: list[TurnTimes] = field(default_factory=list)
    startup: float | None = None
    memory: int | None = None
    auto: bool = False
    """It is what `backend="auto"` chooses."""
    error: CorralError | None = None


@dataclass(frozen=True, slots=True)
class CandidateResult:
    """One candidate, measured; named as in the JSON report."""

    candidate: Candidate
    state: State
    reason: str
    """Why it failed."""
    traceback: str
    auto: bool
    rates: Rates | None
    over_loop: float | None
    efficiency: float | None
    startup_seconds: float | None
    memory_bytes: int | None
    cpu_burnt: float | None
    time: CallerTimeSplit | None

    @property
    def steps_per_second(self) -> float | None:
        """The middle round."""
        return self.rates.median if self.rates else None

    @property
    def ours(self) -> bool:
        """Whether it is one of Corral's layouts."""
        return self.candidate.library == "corral"


@dataclass(frozen=True, slots=True)
class SizeResults:
    """All candidates with the same number of envs; the loop is first."""

    num_envs: int
    rows: tuple[CandidateResult, ...]
    limit: float | None
    """Steps per second."""
    step_seconds: float | None
    """Of one bare step."""
    cpu_share: float | None
    """Of a core, that one env takes."""
    auto: str = ""
    """What `backend="auto"` chose, and why."""


@dataclass(frozen=True, slots=True)
class LayoutRecommendation:
    """The layout to use."""

    num_envs: int
    backend: str
    workers: int
    sentence: str
    code: str


@dataclass(frozen=True, slots=True)
class BenchSettings:
    """The settings of a benchmark."""

    env: str
    kwargs: dict[str, Any]
    num_envs: tuple[int, ...]
    backends: tuple[str, ...] | None
    """None: those that make sense."""
    workers: tuple[int, ...]
    against: tuple[str, ...]
    policy_ms: float
    rounds: int
    seconds: float
    seed: int
    deadline: float


@dataclass(frozen=True, slots=True)
class BenchReport:
    """Everything, also when it ended early."""

    settings: BenchSettings
    groups: tuple[SizeResults, ...]
    missing: tuple[Peer, ...]
    recommendation: LayoutRecommendation | None
    observation_space: str
    action_space: str
    machine: dict[str, Any]
    versions: dict[str, str]
    interrupted: bool = False
    agents: str = ""
    """How several act, as in `BuildOrder`."""
    left_out: tuple[str, ...] = ()
    """Peers that cannot run such agents."""

    @property
    def rows(self) -> list[tuple[SizeResults, CandidateResult]]:
        """Every row with its group."""
        return [(group, row) for group in self.groups for row in group.rows]

    @property
    def faulty(self) -> bool:
        """Whether the env, or a layout of ours, failed; a peer may."""
        ours = [row for _, row in self.rows if row.ours or row.candidate.kind == "loop"]
        return any(row.state == "failed" for row in ours)


def group_of(
    num_envs: int, cores: int, entries: list[CandidateRecord], auto: str = ""
) -> SizeResults:
    """Turn what the race has shown into figures; the loop's entry is the first."""
    turns = entries[0].turns
    unit = unit_of(turns) if turns else None
    limits = limits_of(turns, num_envs, cores) if turns else Rates(())
    loop = rates_of(turns)
    return SizeResults(
        num_envs,
        tuple(_row(entry, unit, loop, limits) for entry in entries),
        limits.median if turns else None,
        unit.step if unit else None,
        unit.share if unit else None,
        auto,
    )


def _row(
    entry: CandidateRecord, unit: BareEnvCost | None, loop: Rates, limits: Rates
) -> CandidateResult:
    candidate, turns = entry.candidate, entry.turns
    fault = entry.error.fault if isinstance(entry.error, FaultError) else None
    per_row = unit.steps_per_row if unit and candidate.fillers else 1.0
    rates = rates_of(turns, per_row)
    return CandidateResult(
        candidate,
        "failed" if entry.error else "measured" if turns else "stopped",
        str(entry.error or ""),
        fault.traceback or "" if fault else "",
        entry.auto,
        rates if turns else None,
        ratio(rates, loop),
        ratio(rates, limits),
        entry.startup,
        entry.memory,
        burnt_by(turns, unit, per_row) if unit and turns else None,
        split_of(turns, candidate.workers or 1),
    )
