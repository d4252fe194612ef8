"""A run's training episodes: written as they end, averaged, and missed."""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from corral.rollouts.rollout import EpisodeSummary
from corral.train.run.directory import RECENT_EPISODES, RunDirectory
from corral.train.run.parts import means_of, row_of
from corral.train.sinks import jsonl


class EpisodeLog:
    """Writes episodes to a run's file, and notices slots in which none ends.

    Args:
        directory: of the run.
        slots: those whose running episodes every checkpoint ends.
        resumed: whether an earlier program began the run.

    Attributes:
        recent: Rows about the latest episodes.
    """

    def __init__(
        self, directory: RunDirectory, slots: Collection[int], resumed: bool
    ) -> None:
        self.recent: deque[Mapping[str, Any]] = deque(maxlen=RECENT_EPISODES)
        self._file = directory.episodes
        self._slots = frozenset(slots)
        # Slots in which no episode has ended since the last checkpoint. None at first
        # in a resumed run: its first checkpoint may come after fewer steps.
        self._unended = set() if resumed else set(self._slots)

    def add(self, episodes: Sequence[EpisodeSummary], step: int) -> None:
        """Write the episodes that ended in an update."""
        rows = [row_of(episode) for episode in episodes]
        self.recent.extend(rows)
        self._unended -= {episode.slot for episode in episodes}
        jsonl.append(self._file, rows, step)

    def means(self) -> dict[str, float]:
        """Return the means of the latest episodes."""
        return means_of(self.recent)

    def take_unended(self) -> Collection[int]:
        """Return the slots in which no episode has ended since the last call."""
        unended, self._unended = self._unended, set(self._slots)
        return unended
