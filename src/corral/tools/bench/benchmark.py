"""The whole benchmark: one comparison per number of envs; partial results are kept.

    build, one after the other ─► time in turns ─► close all

Candidates are closed before the next comparison builds its own: 64 processes of one
library are enough at a time.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from corral.engine.executors.assign import usable_cores
from corral.engine.executors.placement import BACKENDS
from corral.engine.keywords import check_choice
from corral.errors import CorralError, FaultError
from corral.tools.bench.candidate_process import CandidateProcess, close_all
from corral.tools.bench.candidates import (
    AUTO,
    LOOP,
    BuildOrder,
    Candidate,
    EnvsBuilt,
    Peer,
    layout,
    layouts,
    peers,
)
from corral.tools.bench.measure import batches_for, iterations_for, take_turns
from corral.tools.bench.recommend import recommend
from corral.tools.bench.results import (
    BareEnvCost,
    BenchReport,
    BenchSettings,
    CandidateResult,
    SizeResults,
    group_of,
)
from corral.train.run import machine

if TYPE_CHECKING:
    from corral.train.sinks.console import ProgressBar

# Seconds that candidates have to close after Ctrl-C.
INTERRUPTED_CLOSE_SECONDS = 2.0
# An env that takes less of a core than this may gain by more threads than cores.
WAITING_CPU_SHARE = 0.5


def run(settings: BenchSettings, watcher: ProgressBar) -> BenchReport:
    """Run the whole benchmark.

    Ctrl-C ends it early, with what is known by then. Raises if the env cannot be
    found or built at all.
    """
    for backend in settings.backends or ():
        check_choice("--backend", backend, BACKENDS)
    there, _ = peers(settings.against)
    policy_iterations = iterations_for(settings.policy_ms * 1e-3)
    comparisons = [
        Comparison(
            settings, num_envs, usable_cores(), there, policy_iterations, watcher
        )
        for num_envs in settings.num_envs
    ]
    groups: list[SizeResults] = []
    built: EnvsBuilt | None = None
    interrupted = False
    for comparison in comparisons:
        try:
            interrupted = _run_comparison(comparison)
        except FaultError:
            if not groups:
                raise
        built = built or comparison.built
        groups += comparison.groups()
        if interrupted or comparison.hopeless:
            break
    return _report(settings, groups, built, interrupted)


def _run_comparison(comparison: Comparison) -> bool:
    """Run it and close its candidates; returns whether Ctrl-C was pressed.

    Ctrl-C while they close ends them at once; what was measured is kept.
    """
    interrupted, timeout = False, 10.0
    try:
        comparison.run()
    except KeyboardInterrupt:
        interrupted, timeout = True, INTERRUPTED_CLOSE_SECONDS
    finally:
        try:
            comparison.close(timeout)
        except KeyboardInterrupt:
            comparison.close(0.0)
            interrupted = True
    return interrupted


def _report(
    settings: BenchSettings,
    groups: list[SizeResults],
    built: EnvsBuilt | None,
    interrupted: bool,
) -> BenchReport:
    there, missing = peers(settings.against)
    agents = built.agents if built else ""
    left_out = [peer.name for peer in there if not peer.candidates_for(agents)]
    return BenchReport(
        settings,
        groups,
        missing,
        recommend(groups, built, settings.kwargs) if built else None,
        built.observation_space if built else "",
        built.action_space if built else "",
        machine.facts(),
        machine.versions(peer.name for peer in there if peer.name not in left_out),
        interrupted,
        agents,
        left_out,
    )


@dataclass(slots=True)
class Comparison:
    """The candidates of one size, from building to closing.

    Attributes:
        built: What the bare loop's process reported about the env.
    """

    settings: BenchSettings
    num_envs: int
    cores: int
    peers: Sequence[Peer]
    policy_iterations: int
    watcher: ProgressBar
    built: EnvsBuilt | None = None
    _rows: dict[str, CandidateResult] = field(default_factory=dict)
    _processes: dict[str, CandidateProcess] = field(default_factory=dict)
    _auto: str = ""

    def __post_init__(self) -> None:
        self._expect(1 + len(self._candidates()))

    def _expect(self, candidates: int) -> None:
        """So many more candidates are to be built and timed; fewer, if negative."""
        self.watcher.expect(candidates * (1 + self.settings.rounds))

    def _candidates(self, waits: bool = False) -> list[Candidate]:
        asked = self.settings
        ours = layouts(self.num_envs, self.cores, asked.backends, asked.workers, waits)
        agents = self.built.agents if self.built else ""
        return ours + [
            one for peer in self.peers for one in peer.candidates_for(agents)
        ]

    def run(self) -> None:
        """Build all candidates and race; raises if not even one env can be built."""
        expected = len(self._candidates())
        waits = self._try_loop()
        if self.hopeless:
            return
        candidates = self._candidates(waits)
        self._expect(len(candidates) - expected)
        for candidate in candidates:
            self._build(candidate)
        take_turns(
            self._processes,
            rounds=self.settings.rounds,
            turn_seconds=self.settings.seconds,
            on_turn=self._note_turn,
            on_fault=self._note_fault,
        )

    @property
    def hopeless(self) -> bool:
        """One bare env failed before the others began: so would all of them."""
        row = self._rows.get(LOOP.title)
        return len(self._rows) == 1 and row is not None and bool(row.error)

    def _try_loop(self) -> bool:
        """Whether the env leaves its core to others most of the time.

        The first process finds out whether the env can be built at all.
        """
        self.built = self._build(LOOP)
        if self.built is None:
            error = self._rows[LOOP.title].error
            assert isinstance(error, FaultError)
            text = f"{self.settings.env} could not be built: {error}"
            raise FaultError(text, error.fault) from error
        loop = self._processes[LOOP.title]
        self.watcher.show_status(f"×{self.num_envs} {LOOP.title}")
        try:
            batches_for(loop, self.settings.seconds)
        except FaultError as error:
            self._note_fault(LOOP.title, error)
            return False
        return BareEnvCost.of(loop.turns).share < WAITING_CPU_SHARE

    def _build(self, candidate: Candidate) -> EnvsBuilt | None:
        title, settings = candidate.title, self.settings
        self.watcher.show_status(f"×{self.num_envs} building {title}")
        row = self._rows[title] = CandidateResult(candidate)
        order = BuildOrder(
            candidate,
            settings.env,
            settings.kwargs,
            self.num_envs,
            settings.seed,
            self.policy_iterations,
            self.built.agents if self.built else "",
        )
        process = CandidateProcess(order, settings.deadline)
        self._processes[title] = process
        try:
            built = process.build()
        except FaultError as error:
            self._note_fault(title, error)
            return None
        row.startup_seconds, row.memory_bytes = built.startup, built.memory
        self.watcher.turn()
        if candidate is AUTO:
            self._place_auto(built)
        return built

    def _place_auto(self, built: EnvsBuilt) -> None:
        """Mark the row that `auto` chose; give it one if there is none."""
        placed = built.layout
        assert placed is not None
        self._auto = str(placed)
        row, process = self._rows.pop(AUTO.title), self._processes.pop(AUTO.title)
        row.candidate = chosen = layout(placed.backend, placed.workers)
        if chosen.title in self._rows:
            process.close()
            self.watcher.expect(-self.settings.rounds)
        else:
            self._processes[chosen.title] = process
        self._rows.setdefault(chosen.title, row).auto = True

    def _note_turn(self, title: str, rate: float) -> None:
        self._rows[title].turns.append(self._processes[title].turns[-1])
        self.watcher.show_status(f"×{self.num_envs} {title}")
        self.watcher.turn()

    def _note_fault(self, title: str, error: CorralError) -> None:
        row = self._rows[title]
        row.error = error
        self._processes.pop(title).close(2.0)
        self._expect(-1)
        self.watcher.expect(len(row.turns) + (row.startup_seconds is not None))

    def close(self, timeout: float = 10.0) -> None:
        """End every candidate process; idempotent."""
        close_all(self._processes.values(), timeout)
        self._processes.clear()

    def groups(self) -> list[SizeResults]:
        """The figures so far; none before the first candidate."""
        if not self._rows:
            return []
        rows = list(self._rows.values())
        return [group_of(self.num_envs, self.cores, rows, self._auto)]
