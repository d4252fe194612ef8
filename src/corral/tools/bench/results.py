"""What a benchmark found out, as values: from turns to figures.

    one env     seconds and CPU of one bare step, resets shared out over the steps
    limit       batch = policy + N × step / width     width = min(N, cores / CPU share)
    efficiency  rate / limit
    burnt       CPU of the candidate − env's own − policy's, per second

Pure arithmetic: no clock, no process.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from corral.errors import CorralError, FaultError
from corral.tools.bench.candidates import Candidate, Peer, TurnTimes
from corral.tools.bench.measure import Rates

# A CPU share in between is noise around an env that computes all the time.
CPU_SHARE_NOISE = (0.9, 1.1)


@dataclass(frozen=True, slots=True)
class BenchSettings:
    """The settings of a benchmark.

    Attributes:
        backends: None for all.
    """

    env: str
    kwargs: dict[str, Any]
    num_envs: tuple[int, ...]
    backends: tuple[str, ...] | None
    workers: tuple[int, ...]
    against: tuple[str, ...]
    policy_ms: float
    rounds: int
    seconds: float
    seed: int
    deadline: float


@dataclass(frozen=True, slots=True)
class CallerTimeSplit:
    """Where a second of the caller's goes; the four add up to 1."""

    env: float
    policy: float
    waiting: float
    copying: float


@dataclass(slots=True)
class CandidateResult:
    """One candidate, named as in the JSON report; grows while the race runs.

    Attributes:
        auto: It is what `backend="auto"` chooses.
        rates: This and what follows: see `group_of`.
    """

    candidate: Candidate
    turns: list[TurnTimes] = field(default_factory=list)
    num_envs: int = 0
    startup_seconds: float | None = None
    memory_bytes: int | None = None
    auto: bool = False
    error: CorralError | None = None
    rates: Rates | None = None
    over_loop: float | None = None
    efficiency: float | None = None
    cpu_burnt: float | None = None
    time: CallerTimeSplit | None = None

    @property
    def state(self) -> Literal["measured", "failed", "stopped"]:
        """How it ended."""
        return "failed" if self.error else "measured" if self.turns else "stopped"

    @property
    def reason(self) -> str:
        """Why it failed."""
        return str(self.error or "")

    @property
    def traceback(self) -> str:
        """Where it failed, if it raised."""
        fault = self.error.fault if isinstance(self.error, FaultError) else None
        return (fault and fault.traceback) or ""

    @property
    def speed(self) -> float:
        """Steps per second in the middle round; 0 if there was none."""
        return self.rates.median if self.rates else 0.0

    @property
    def ours(self) -> bool:
        """Whether it is one of Corral's layouts."""
        return self.candidate.library == "corral"


@dataclass(frozen=True, slots=True)
class SizeResults:
    """All candidates with the same number of envs; the loop is first.

    Attributes:
        limit: Steps per second.
        step_seconds: Of one bare step.
        cpu_share: Of a core, that one env takes.
        auto: What `backend="auto"` chose, and why.
    """

    num_envs: int
    rows: list[CandidateResult]
    limit: float | None
    step_seconds: float | None
    cpu_share: float | None
    auto: str = ""


@dataclass(frozen=True, slots=True)
class LayoutRecommendation:
    """The layout to use."""

    num_envs: int
    backend: str
    workers: int
    sentence: str
    code: str


@dataclass(frozen=True, slots=True)
class BenchReport:
    """Everything, also when it ended early.

    Attributes:
        agents: How several act, as in `BuildOrder`.
        left_out: Peers that cannot run such agents.
    """

    settings: BenchSettings
    groups: Sequence[SizeResults]
    missing: Sequence[Peer]
    recommendation: LayoutRecommendation | None
    observation_space: str
    action_space: str
    machine: dict[str, Any]
    versions: dict[str, str]
    interrupted: bool = False
    agents: str = ""
    left_out: Sequence[str] = ()

    @property
    def rows(self) -> list[CandidateResult]:
        """Every row of every group."""
        return [row for group in self.groups for row in group.rows]

    @property
    def faulty(self) -> bool:
        """Whether the env, or a layout of ours, failed; a peer may."""
        ours = [row for row in self.rows if row.ours or row.candidate.kind == "loop"]
        return any(row.state == "failed" for row in ours)


def group_of(
    num_envs: int, cores: int, rows: list[CandidateResult], auto: str = ""
) -> SizeResults:
    """Fill in the figures of what the race has shown; the loop's row is the first."""
    turns = rows[0].turns
    unit = BareEnvCost.of(turns) if turns else None
    limits = limits_of(turns, num_envs, cores) if turns else Rates(())
    loop = rates_of(turns)
    for row in rows:
        row.num_envs = num_envs
        per_row = unit.steps_per_row if unit and row.candidate.fillers else 1.0
        rates = rates_of(row.turns, per_row)
        row.over_loop, row.efficiency = ratio(rates, loop), ratio(rates, limits)
        row.time = split_of(row.turns, row.candidate.workers or 1)
        if row.turns:
            row.rates = rates
            row.cpu_burnt = burnt_by(row.turns, unit, per_row) if unit else None
    return SizeResults(
        num_envs,
        rows,
        limits.median if turns else None,
        unit.step if unit else None,
        unit.share if unit else None,
        auto,
    )


# Arithmetic ---------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class BareEnvCost:
    """One bare env, by the loop's turns.

    Attributes:
        step: Seconds of a step, with its share of the resets.
        cpu: CPU seconds of the same.
        queued: Seconds of the same in which other programs had the cores.
        resets: Episodes that end per step.
    """

    step: float
    cpu: float
    queued: float
    resets: float

    @classmethod
    def of(cls, turns: Sequence[TurnTimes]) -> BareEnvCost:
        """What one env takes, from the loop's turns."""
        steps = sum(turn.steps for turn in turns)
        policy = sum(turn.policy for turn in turns)
        return cls(
            step=(sum(turn.seconds for turn in turns) - policy) / steps,
            cpu=max(0.0, sum(turn.cpu for turn in turns) - policy) / steps,
            queued=sum(turn.queued for turn in turns) / steps,
            resets=sum(turn.episodes or 0 for turn in turns) / steps,
        )

    @property
    def share(self) -> float:
        """How much of a core a step takes: 1 if it computes, 0 if it only waits."""
        share = self.cpu / max(self.step - self.queued, 1e-12)
        low, high = CPU_SHARE_NOISE
        return 1.0 if low <= share <= high else share

    @property
    def steps_per_row(self) -> float:
        """In next-step mode the reset at the end of an episode is a row, no step."""
        return 1 / (1 + self.resets)


def rates_of(turns: Sequence[TurnTimes], steps_per_row: float = 1.0) -> Rates:
    """Steps per second, turn by turn."""
    return Rates(tuple(turn.steps * steps_per_row / turn.seconds for turn in turns))


def width(num_envs: int, cores: int, share: float) -> float:
    """How many envs can be stepped at the same time."""
    return min(num_envs, max(1.0, cores / share)) if share > 0 else num_envs


def limits_of(turns: Sequence[TurnTimes], num_envs: int, cores: int) -> Rates:
    """The highest possible steps per second, by the loop's turns.

    A batch is the policy, then all steps on as many cores as can help, with nothing
    in between. Taken turn by turn, so that a round is held against its own limit.
    """
    side_by_side = width(num_envs, cores, BareEnvCost.of(turns).share)
    limits = []
    for turn in turns:
        policy = turn.policy * num_envs / turn.steps
        steps = num_envs * BareEnvCost.of([turn]).step / side_by_side
        limits.append(num_envs / (policy + steps))
    return Rates(tuple(limits))


def burnt_by(
    turns: Sequence[TurnTimes], unit: BareEnvCost, steps_per_row: float = 1.0
) -> float:
    """Cores that were kept busy by something else than the envs and the policy."""
    own = sum(turn.steps * steps_per_row * unit.cpu + turn.policy for turn in turns)
    spent = sum(turn.cpu for turn in turns)
    return max(0.0, spent - own) / sum(turn.seconds for turn in turns)


def split_of(turns: Sequence[TurnTimes], workers: int) -> CallerTimeSplit | None:
    """Where the time went, by what a pool counted; None for other candidates.

    The envs' time is shared out over the workers. Of the caller's waiting, what the
    workers were busy with beside the envs is copying; what is left is waiting: for the
    slowest of them, and to be woken.
    """
    seconds = sum(turn.seconds for turn in turns)
    counted = [(turn.env, turn.busy, turn.waiting) for turn in turns]
    if not seconds or any(None in times for times in counted):
        return None
    env, busy, waiting = (sum(times) for times in zip(*counted, strict=True))
    policy = sum(turn.policy for turn in turns)
    left = seconds - policy
    stepping = min(env / workers, left)
    idle = min(max(0.0, waiting - busy / workers), left - stepping)
    parts = (stepping, policy, idle, max(0.0, left - stepping - idle))
    return CallerTimeSplit(*(part / seconds for part in parts))


def ratio(ours: Rates, theirs: Rates) -> float | None:
    """How many times faster, in the rounds both of them finished; None if in none."""
    return ours.over(theirs) if ours.rounds and theirs.rounds else None
