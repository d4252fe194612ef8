"""All candidates with the same number of envs, each in its own process.

    build, one after the other ─► time in turns ─► close all

Candidates are closed before the next comparison builds its own: 64 processes of one
library are enough at a time.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from corral.errors import CorralError, FaultError
from corral.tools.bench.candidate_process import CandidateProcess, close_all
from corral.tools.bench.candidates import (
    AUTO,
    LOOP,
    Candidate,
    Peer,
    layout,
    layouts,
)
from corral.tools.bench.measure import batches_for, take_turns
from corral.tools.bench.messages import BuildOrder, EnvsBuilt
from corral.tools.bench.results import (
    BenchSettings,
    CandidateRecord,
    SizeResults,
    group_of,
)
from corral.tools.bench.turn_figures import unit_of

if TYPE_CHECKING:
    from corral.train.sinks.progress import ProgressBar

WAITING_CPU_SHARE = 0.5
"""An env that takes less of a core than this may gain by more threads than cores."""


class Comparison:
    """The candidates of one size, from building to closing."""

    def __init__(
        self,
        settings: BenchSettings,
        num_envs: int,
        *,
        cores: int,
        peers: Sequence[Peer],
        policy_iterations: int,
        watcher: ProgressBar,
    ) -> None:
        self.settings = settings
        self.num_envs = num_envs
        self.built: EnvsBuilt | None = None
        """What the bare loop's process reported about the env."""
        self._cores = cores
        self._peers = peers
        self._policy_iterations = policy_iterations
        self._watcher = watcher
        self._entries: dict[str, CandidateRecord] = {}
        self._processes: dict[str, CandidateProcess] = {}
        self._auto = ""

    def run(self) -> None:
        """Build all candidates and race; raises if not even one env can be built."""
        expected = self.expected_turns()
        self._build_loop()
        waits = self._try_loop()
        if self.hopeless:
            return
        candidates = self._candidates(waits)
        self._watcher.expect(
            sum(self._turns(one) for one in (LOOP, *candidates)) - expected
        )
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
        entry = self._entries.get(LOOP.title)
        return len(self._entries) == 1 and entry is not None and bool(entry.error)

    def expected_turns(self) -> int:
        """The number of turns, as far as it is known before the start."""
        return sum(self._turns(one) for one in (LOOP, *self._candidates(waits=False)))

    def _candidates(self, waits: bool) -> list[Candidate]:
        asked = self.settings
        ours = layouts(self.num_envs, self._cores, asked.backends, asked.workers, waits)
        agents = self.built.agents if self.built else ""
        return ours + [
            one for peer in self._peers for one in peer.candidates_for(agents)
        ]

    def _turns(self, candidate: Candidate) -> int:
        """Building counts as one; auto is mostly built and not raced."""
        return 1 if candidate is AUTO else 1 + self.settings.rounds

    def _try_loop(self) -> bool:
        """Whether the env leaves its core to others most of the time."""
        loop = self._processes[LOOP.title]
        self._watcher.show_status(f"×{self.num_envs} {LOOP.title}")
        try:
            batches_for(loop, self.settings.seconds)
        except FaultError as error:
            self._note_fault(LOOP.title, error)
            return False
        return unit_of(loop.turns).share < WAITING_CPU_SHARE

    # Building -------------------------------------------------------------------------

    def _build_loop(self) -> None:
        """The first process: it finds out whether the env can be built at all."""
        self.built = self._build(LOOP)
        if self.built is None:
            error = self._entries[LOOP.title].error
            assert isinstance(error, FaultError)
            text = f"{self.settings.env} could not be built: {error}"
            raise FaultError(text, error.fault) from error

    def _build(self, candidate: Candidate) -> EnvsBuilt | None:
        title = candidate.title
        self._watcher.show_status(f"×{self.num_envs} building {title}")
        entry = self._entries[title] = CandidateRecord(candidate)
        order = BuildOrder(
            candidate,
            self.settings.env,
            self.settings.kwargs,
            self.num_envs,
            self.settings.seed,
            self._policy_iterations,
            self.built.agents if self.built else "",
        )
        process = self._processes[title] = CandidateProcess(
            order, self.settings.deadline
        )
        try:
            built = process.build()
        except FaultError as error:
            self._note_fault(title, error)
            return None
        entry.startup, entry.memory = built.startup, built.memory
        self._watcher.turn()
        if candidate is AUTO:
            self._place_auto(built)
        return built

    def _place_auto(self, built: EnvsBuilt) -> None:
        """Mark the row that `auto` chose; give it one if there is none."""
        assert built.backend is not None and built.workers is not None
        self._auto = built.reason
        entry, process = self._entries.pop(AUTO.title), self._processes.pop(AUTO.title)
        chosen = layout(built.backend, built.workers)
        if chosen.title in self._entries:
            self._entries[chosen.title].auto = True
            process.close()
            return
        entry.candidate, entry.auto = chosen, True
        self._entries[chosen.title] = entry
        self._processes[chosen.title] = process
        self._watcher.expect(self.settings.rounds)

    # Racing ---------------------------------------------------------------------------

    def _note_turn(self, title: str, rate: float) -> None:
        entry, process = self._entries[title], self._processes[title]
        entry.turns.append(process.turns[-1])
        self._watcher.show_status(f"×{self.num_envs} {title}")
        self._watcher.turn()

    def _note_fault(self, title: str, error: CorralError) -> None:
        entry = self._entries[title]
        entry.error = error
        self._processes.pop(title).close(2.0)
        done = len(entry.turns) + (entry.startup is not None)
        self._watcher.expect(done - self._turns(entry.candidate))

    # Ending ---------------------------------------------------------------------------

    def close(self, timeout: float = 10.0) -> None:
        """End every candidate process; idempotent."""
        close_all(self._processes.values(), timeout)
        self._processes.clear()

    def groups(self) -> list[SizeResults]:
        """The figures so far; none before the first candidate."""
        if not self._entries:
            return []
        entries = list(self._entries.values())
        return [group_of(self.num_envs, self._cores, entries, self._auto)]
