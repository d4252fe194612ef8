"""What a benchmark found out, as values."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
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
    """One candidate, measured."""

    candidate: Candidate
    state: State
    reason: str = ""
    """Why it failed."""
    traceback: str = ""
    rates: Rates | None = None
    over_loop: float | None = None
    efficiency: float | None = None
    startup: float | None = None
    memory: int | None = None
    burnt: float | None = None
    split: CallerTimeSplit | None = None
    auto: bool = False

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
    step: float | None
    """Seconds that one bare step takes."""
    share: float | None
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
    """What was asked for."""

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
    """Peers that have no way with such agents."""

    @property
    def faulty(self) -> bool:
        """Whether the env, or a layout of ours, failed; a peer may."""
        rows = [row for group in self.groups for row in group.rows]
        own = [row for row in rows if row.candidate.library in ("loop", "corral")]
        return any(row.state == "failed" for row in own)


def group_of(
    num_envs: int, cores: int, entries: list[CandidateRecord], auto: str = ""
) -> SizeResults:
    """Turn what the race has shown into figures; the loop's entry is the first."""
    turns = entries[0].turns
    unit = unit_of(turns) if turns else None
    limits = limits_of(turns, num_envs, cores) if turns else None
    loop = rates_of(turns)
    return SizeResults(
        num_envs,
        tuple(_row(entry, unit, loop, limits) for entry in entries),
        limits.median if limits else None,
        unit.step if unit else None,
        unit.share if unit else None,
        auto,
    )


def _row(
    entry: CandidateRecord, unit: BareEnvCost | None, loop: Rates, limits: Rates | None
) -> CandidateResult:
    candidate, turns = entry.candidate, entry.turns
    state: State = "failed" if entry.error else "measured" if turns else "stopped"
    fault = entry.error.fault if isinstance(entry.error, FaultError) else None
    row = CandidateResult(
        candidate,
        state,
        str(entry.error or ""),
        fault.traceback or "" if fault else "",
        startup=entry.startup,
        memory=entry.memory,
        auto=entry.auto,
    )
    if not turns:
        return row
    per_row = unit.steps_per_row if unit and candidate.fillers else 1.0
    rates = rates_of(turns, per_row)
    return replace(
        row,
        rates=rates,
        over_loop=ratio(rates, loop),
        efficiency=ratio(rates, limits) if limits else None,
        burnt=burnt_by(turns, unit, per_row) if unit else None,
        split=split_of(turns, candidate.workers or 1),
    )
