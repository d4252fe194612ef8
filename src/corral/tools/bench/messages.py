"""Messages between the benchmark and its candidate processes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from corral.tools.bench.candidates import Candidate


@dataclass(frozen=True, slots=True)
class BuildOrder:
    """What a candidate process has to build: the first message to it."""

    candidate: Candidate
    env: str
    kwargs: dict[str, Any]
    num_envs: int
    seed: int
    policy_iterations: int
    """How much the simulated policy computes; see `simulated_policy`."""
    agents: str = ""
    """How several agents act: "at once" or "in turns"; "" if there is one alone."""


@dataclass(frozen=True, slots=True)
class EnvsBuilt:
    """The envs are there and were reset."""

    startup: float
    """Seconds it took; imports came before."""
    memory: int
    """Bytes that came with it, children included."""
    observation_space: str
    action_space: str
    expression: str
    """How a program names the env; see `adapters.env_names`."""
    import_line: str
    backend: str | None = None
    workers: int | None = None
    reason: str = ""
    """Of our layouts: what was chosen and why."""
    agents: str = ""
    """As in `BuildOrder`; found out by the bare loop's process."""


@dataclass(frozen=True, slots=True)
class TurnTimes:
    """What one turn took, in seconds where nothing else is said."""

    steps: int
    seconds: float
    policy: float
    cpu: float
    """Of the candidate process and all its children."""
    queued: float = 0.0
    """The caller was ready to run, and other programs had the cores."""
    episodes: int | None = None
    env: float | None = None
    """In the envs' own step and reset, all workers together."""
    busy: float | None = None
    """Of the workers, obeying commands, all of them together."""
    waiting: float | None = None
    """Of the caller."""


@dataclass(frozen=True, slots=True)
class CandidateFailure:
    """The candidate failed; its process ends after this message."""

    text: str
    traceback: str
    usage: bool = False
    """Whether it is a mistake in the command line, which every candidate would meet."""
