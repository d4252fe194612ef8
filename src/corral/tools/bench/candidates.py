"""The candidates: one bare env, our layouts, and the requested peers.

Also the messages between the benchmark and the process of a candidate.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from importlib.util import find_spec
from typing import Any

from corral.engine.executors.assign import MAX_PROCESSES, Placement, enough_workers
from corral.engine.keywords import check_choice

BACKEND_WORDS = {"serial": "serial", "thread": "threads", "process": "processes"}
# No layout of ours has more threads than this unless --workers says so.
MAX_THREADS = 128


@dataclass(frozen=True, slots=True)
class Candidate:
    """One way of stepping the envs.

    Attributes:
        library: See `libraries.BUILDERS`.
        kind: For us the backend; for a peer, which of its ways.
        fillers: Whether one row per episode is a reset and no step, as in next-step
            mode.
    """

    library: str
    kind: str
    title: str
    workers: int | None = None
    fillers: bool = True


@dataclass(frozen=True, slots=True)
class Peer:
    """A library to be measured against.

    Attributes:
        package: What is imported.
        agents: Whether it takes envs whose agents act at once.
    """

    name: str
    package: str
    candidates: tuple[Candidate, ...]
    agents: bool = False

    @property
    def install(self) -> str:
        """The line that installs it."""
        return f"pip install {self.package.replace('_', '-')}"

    def candidates_for(self, agents: str) -> tuple[Candidate, ...]:
        """Its candidates for an env whose agents act so, see `BuildOrder`."""
        if not agents:
            return self.candidates
        takes = self.agents and agents == "at once"
        return tuple(replace(one, fillers=False) for one in self.candidates * takes)


LOOP = Candidate("loop", "loop", "one bare env", fillers=False)
AUTO = Candidate("corral", "auto", "Corral, auto")
_GYMNASIUM = (
    Candidate("gymnasium", "sync", "Gymnasium Sync"),
    Candidate("gymnasium", "async", "Gymnasium Async"),
)
_SB3 = (
    Candidate("sb3", "dummy", "SB3 DummyVecEnv", fillers=False),
    Candidate("sb3", "subproc", "SB3 SubprocVecEnv", fillers=False),
)
_SUPERSUIT = (
    Candidate("supersuit", "sync", "SuperSuit serial"),
    Candidate("supersuit", "async", "SuperSuit processes"),
)
_AGILERL = (Candidate("agilerl", "async", "AgileRL async"),)
PEERS = {
    "gymnasium": Peer("gymnasium", "gymnasium", _GYMNASIUM),
    "sb3": Peer("sb3", "stable_baselines3", _SB3),
    "agilerl": Peer("agilerl", "agilerl", _AGILERL, agents=True),
    "supersuit": Peer("supersuit", "supersuit", _SUPERSUIT, agents=True),
}


def layout(backend: str, workers: int = 1) -> Candidate:
    """One of ours."""
    if backend == "auto":
        return AUTO
    if backend == "serial":
        return Candidate("corral", "serial", "Corral, serial", 1)
    title = f"Corral, {workers_text(backend, workers)}"
    return Candidate("corral", backend, title, workers)


def workers_text(backend: str, workers: int) -> str:
    """How many threads or processes."""
    return f"{workers} {BACKEND_WORDS[backend] if workers > 1 else backend}"


def layouts(
    num_envs: int,
    cores: int,
    backends: Sequence[str] | None = None,
    workers: Sequence[int] = (),
    waits: bool = False,
) -> list[Candidate]:
    """Ours for so many envs: the requested ones, else all that it allows.

    Args:
        num_envs: how many envs.
        cores: how many of them can compute at the same time.
        backends: None for all; no threads or processes for one env.
        workers: how many threads or processes; as many as cores if empty.
        waits: the env waits more than it computes: a worker for each may pay.
    """
    several = ("thread", "process") if num_envs > 1 else ()
    chosen = backends or ("serial", *several, "auto")
    counts = workers or [enough_workers(num_envs, cores)]
    found = [layout(one, min(n, num_envs)) for one in chosen for n in counts]
    if waits and not (backends or workers):
        most = {"thread": MAX_THREADS, "process": MAX_PROCESSES}
        found += [layout(one, min(num_envs, most[one])) for one in several]
    # `auto` comes last: it has its own row only if no other row is what it chooses.
    found.sort(key=lambda one: one is AUTO)
    return list(dict.fromkeys(found))


def peers(names: Sequence[str]) -> tuple[list[Peer], list[Peer]]:
    """Those that are installed, and those that are not."""
    for name in names:
        check_choice("--against", name, PEERS)
    chosen = [PEERS[name] for name in dict.fromkeys(names)]
    there = [peer for peer in chosen if find_spec(peer.package)]  # imports nothing
    return there, [peer for peer in chosen if peer not in there]


# Messages -----------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class BuildOrder:
    """What a candidate process has to build: the first message to it.

    Attributes:
        policy_iterations: How much the simulated policy computes; see
            `simulated_policy`.
        agents: How several agents act: "at once" or "in turns"; "" if there is one
            alone.
    """

    candidate: Candidate
    env: str
    kwargs: dict[str, Any]
    num_envs: int
    seed: int
    policy_iterations: int
    agents: str = ""


@dataclass(frozen=True, slots=True)
class EnvsBuilt:
    """The envs are there and were reset.

    Attributes:
        startup: Seconds it took; imports came before.
        memory: Bytes that came with it, children included.
        expression: How a program names the env; see `adapters.env_names`.
        layout: Of our layouts: what was chosen and why.
        agents: As in `BuildOrder`; found out by the bare loop's process.
    """

    startup: float
    memory: int
    observation_space: str
    action_space: str
    expression: str
    import_line: str
    layout: Placement | None = None
    agents: str = ""


@dataclass(frozen=True, slots=True)
class TurnTimes:
    """What one turn took, in seconds where nothing else is said.

    Attributes:
        cpu: Of the candidate process and all its children.
        queued: The caller was ready to run, and other programs had the cores.
        env: In the envs' own step and reset, all workers together.
        busy: Of the workers, obeying commands, all of them together.
        waiting: Of the caller.
    """

    steps: int
    seconds: float
    policy: float
    cpu: float
    queued: float = 0.0
    episodes: int | None = None
    env: float | None = None
    busy: float | None = None
    waiting: float | None = None
