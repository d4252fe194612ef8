"""Turns and reports made by hand, for the tests of this room."""

from __future__ import annotations

from corral.errors import Fault, FaultError
from corral.tools.bench.candidates import LOOP, PEERS, EnvsBuilt, TurnTimes, layout
from corral.tools.bench.recommend import recommend
from corral.tools.bench.results import (
    BenchReport,
    BenchSettings,
    CandidateResult,
    group_of,
)

SYNC, ASYNC = PEERS["gymnasium"].candidates


def named(expression: str = '"X"', import_line: str = "") -> EnvsBuilt:
    """An env by the name that a program gives it."""
    return EnvsBuilt(0.0, 0, "", "", expression, import_line)


def turn(rate: float, steps: int = 1000, **times: float) -> TurnTimes:
    """A turn with that many steps per second, of one busy core unless told."""
    seconds = steps / rate
    return TurnTimes(
        steps, seconds, times.pop("policy", 0.0), times.pop("cpu", seconds), **times
    )


def entry(candidate, *rates: float, **times: float) -> CandidateResult:
    turns = [turn(rate, **times) for rate in rates]
    return CandidateResult(candidate, turns, startup_seconds=0.5, memory_bytes=3 << 20)


def settings(**changes) -> BenchSettings:
    values = {
        "env": "Sample-v0",
        "kwargs": {},
        "num_envs": (8,),
        "backends": None,
        "workers": (),
        "against": ("gymnasium",),
        "policy_ms": 0.0,
        "rounds": 2,
        "seconds": 0.1,
        "seed": 0,
        "deadline": 60.0,
    }
    return BenchSettings(**{**values, **changes})


def failed(candidate, text: str) -> CandidateResult:
    fault = Fault("raised", "step", traceback="Traceback: the inside of it")
    return CandidateResult(candidate, error=FaultError(text, fault))


def group(num_envs: int = 8, cores: int = 2, *more: CandidateResult):
    times = {"env": 0.5, "busy": 0.6, "waiting": 0.7}
    entries = [
        entry(LOOP, 1000.0, 1000.0, episodes=0),
        entry(layout("serial"), 900.0, 900.0, **times),
        entry(layout("process", 2), 1800.0, 1800.0, **times),
        entry(SYNC, 800.0, 800.0),
        *more,
    ]
    entries[2].auto = True
    return group_of(num_envs, cores, entries, auto="8 slots, 2 processes: a reason")


def report(*groups, **changes) -> BenchReport:
    groups = groups or (group(),)
    values = {
        "settings": settings(),
        "groups": groups,
        "missing": (),
        "recommendation": recommend(groups, named('"Sample-v0"'), {}),
        "observation_space": "Box(4,)",
        "action_space": "Discrete(2)",
        "machine": {
            "cores": 2,
            "processor": "a processor",
            "memory_bytes": 8 << 30,
            "platform": "a platform",
            "python": "3.11",
            "compiled": True,
        },
        "versions": {"corral": "1", "gymnasium": "2"},
    }
    return BenchReport(**{**values, **changes})
