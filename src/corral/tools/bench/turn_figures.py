"""From turns to figures: rates, the limit, what was burnt, where the time went.

    one env     seconds and CPU of one bare step, resets shared out over the steps
    limit       batch = policy + N × step / width     width = min(N, cores / CPU share)
    efficiency  rate / limit
    burnt       CPU of the candidate − env's own − policy's, per second

Pure arithmetic: no clock, no process.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from corral.tools.bench.measure import Rates
from corral.tools.bench.messages import TurnTimes

CPU_SHARE_NOISE = (0.9, 1.1)
"""A CPU share in between is noise around an env that computes all the time."""


@dataclass(frozen=True, slots=True)
class BareEnvCost:
    """One bare env, by the loop's turns."""

    step: float
    """Seconds of a step, with its share of the resets."""
    cpu: float
    """CPU seconds of the same."""
    queued: float
    """Seconds of the same in which other programs had the cores."""
    resets: float
    """Episodes that end per step."""

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


@dataclass(frozen=True, slots=True)
class CallerTimeSplit:
    """Where a second of the caller's goes; the four add up to 1."""

    env: float
    policy: float
    waiting: float
    copying: float


def unit_of(turns: Sequence[TurnTimes]) -> BareEnvCost:
    """What one env takes, from the loop's turns."""
    steps = sum(turn.steps for turn in turns)
    policy = sum(turn.policy for turn in turns)
    return BareEnvCost(
        step=(sum(turn.seconds for turn in turns) - policy) / steps,
        cpu=max(0.0, sum(turn.cpu for turn in turns) - policy) / steps,
        queued=sum(turn.queued for turn in turns) / steps,
        resets=sum(turn.episodes or 0 for turn in turns) / steps,
    )


def rates_of(turns: Sequence[TurnTimes], steps_per_row: float = 1.0) -> Rates:
    """Steps per second, turn by turn."""
    return Rates(tuple(turn.steps * steps_per_row / turn.seconds for turn in turns))


def width(num_envs: int, cores: int, share: float) -> float:
    """How many envs can be stepped at the same time."""
    at_once = cores / share if share > 0 else num_envs
    return min(num_envs, max(1.0, at_once))


def limits_of(turns: Sequence[TurnTimes], num_envs: int, cores: int) -> Rates:
    """The highest possible steps per second, by the loop's turns.

    A batch is the policy, then all steps on as many cores as can help, with nothing
    in between. Taken turn by turn, so that a round is held against its own limit.
    """
    side_by_side = width(num_envs, cores, unit_of(turns).share)
    limits = []
    for turn in turns:
        unit = unit_of([turn])
        policy = turn.policy * num_envs / turn.steps
        limits.append(num_envs / (policy + num_envs * unit.step / side_by_side))
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
