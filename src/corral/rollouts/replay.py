"""Replay buffers: a ring of transitions to sample batches or sequences from.

    rows     ┌─ episode 7 ─┐┌──── episode 8 ────┐┌ 9 ┐ . . free . . ┌─ episode 6 ─┐
    columns  obs | action | reward | terminated | next_obs  (float32)

The columns of a row lie next to each other, so a batch is one gather. A `Replay`
samples single rows; a `SequenceReplay` holds whole episodes and samples windows of
them, with a mask. Both count rows from the beginning: row `n` is at `n % capacity`.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from corral.errors import OptionError

Array = NDArray[np.float32]
# Largest buffer that is allocated unless the caller raises the limit.
MAX_GIB = 16.0


class Replay:
    """A ring of transitions; old ones are overwritten.

    Args:
        capacity: number of transitions.
        columns: name -> width of each column.
        max_gib: refuse to allocate more memory than this.
    """

    def __init__(
        self, capacity: int, columns: Mapping[str, int], max_gib: float = MAX_GIB
    ) -> None:
        if capacity < 1:
            raise OptionError(f"the replay's capacity is {capacity}; it must be >= 1")
        self.capacity = capacity
        self.columns = dict(columns)
        self.width = sum(columns.values())
        self.gib = capacity * self.width * 4 / 2**30
        if self.gib > max_gib:
            raise OptionError(
                f"a replay of {capacity:,} transitions of {self.width} numbers takes "
                f"{self.gib:.1f} GiB, and the limit is {max_gib:g} GiB; choose a "
                "smaller capacity or a higher limit"
            )
        ends = np.cumsum([0, *columns.values()]).tolist()
        self._slices = dict(zip(columns, map(slice, ends, ends[1:]), strict=False))
        # Number of rows ever added.
        self.total = 0

    @cached_property
    def _rows(self) -> Array:
        """Allocated at first use; memory is used only for rows that were written."""
        return np.zeros((self.capacity, self.width), np.float32)

    def __len__(self) -> int:
        return min(self.total, self.capacity)

    def add(self, columns: Mapping[str, NDArray[Any]]) -> None:
        """Append rows, one array of `(rows, width)` or `(rows,)` per column."""
        self._append(self._joined(columns))

    def sample(self, count: int, rng: np.random.Generator) -> dict[str, Array]:
        """Draw rows uniformly, with replacement; arrays of `(count, width)`."""
        if not self.total:
            raise OptionError("the replay is empty; add transitions before sampling")
        return self._read(rng.integers(len(self), size=count))

    # Storage --------------------------------------------------------------------------

    def rows(self, first: int, last: int) -> Array:
        """Return a copy of rows `first` to `last - 1`, counted from the beginning."""
        assert self.total - len(self) <= first <= last <= self.total
        return self._rows[np.arange(first, last) % self.capacity]

    def restore(self, first: int, rows: Array) -> None:
        """Put rows back that `rows(first, ...)` returned."""
        self._rows[np.arange(first, first + len(rows)) % self.capacity] = rows

    def state_dict(self) -> dict[str, Any]:
        """Return all but the rows themselves."""
        return {"total": self.total}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue with the state; `restore` brings the rows."""
        self.total = int(state["total"])

    def _joined(self, columns: Mapping[str, NDArray[Any]]) -> Array:
        if columns.keys() != self.columns.keys():
            raise OptionError(
                f"the replay has the columns {list(self.columns)}, got {list(columns)}"
            )
        count = len(next(iter(columns.values())))
        joined = np.empty((count, self.width), np.float32)
        for name, part in self._slices.items():
            joined[:, part] = np.asarray(columns[name]).reshape(
                count, self.columns[name]
            )
        return joined

    def _append(self, rows: Array) -> None:
        kept = rows[-self.capacity :]
        self.restore(self.total + len(rows) - len(kept), kept)
        self.total += len(rows)

    def _read(self, places: NDArray[np.intp]) -> dict[str, Array]:
        batch = self._rows.take(places, axis=0)
        return {name: batch[..., part] for name, part in self._slices.items()}


class SequenceReplay(Replay):
    """Whole episodes, sampled as windows of consecutive rows.

    A window starts at any row after which it fits into its episode; all of these starts
    are equally likely. An episode shorter than the window has one start, its first row,
    and the rest of its window, up to the longest in the sample, repeats the last row
    with mask 0.

    Args:
        capacity: number of transitions; the oldest episodes make room for new ones.
        columns: name -> width of each column.
        window: rows of a sampled window; None for whole episodes.
        max_gib: refuse to allocate more memory than this.
    """

    def __init__(
        self,
        capacity: int,
        columns: Mapping[str, int],
        window: int | None = None,
        max_gib: float = MAX_GIB,
    ) -> None:
        super().__init__(capacity, columns, max_gib)
        if window is not None and window < 1:
            raise OptionError(f"the window is {window}; it must be >= 1, or None")
        self.window = window
        # (first row, length) of each stored episode, oldest first.
        self._episodes: NDArray[np.int64] = np.empty((0, 2), np.int64)
        # Windows in each episode and all before it; None until they are counted.
        self._ends: NDArray[np.int64] | None = None

    @property
    def episodes(self) -> int:
        """Number of stored episodes."""
        return len(self._episodes)

    def add(self, columns: Mapping[str, NDArray[Any]]) -> None:
        """Append one episode."""
        rows = self._joined(columns)
        if not len(rows):
            return
        if len(rows) > self.capacity:
            raise OptionError(
                f"an episode of {len(rows)} steps does not fit into a replay of "
                f"{self.capacity} transitions; choose a larger one"
            )
        self._episodes = np.concatenate([self._episodes, [[self.total, len(rows)]]])
        self._append(rows)
        firsts = self._episodes[:, 0]
        self._episodes = self._episodes[firsts >= self.total - self.capacity]
        self._ends = None

    def sample(self, count: int, rng: np.random.Generator) -> dict[str, Array]:
        """Draw windows; arrays of `(steps, count, width)`, and "mask" with width 1.

        The longest window drawn has `steps` rows.
        """
        if not self.episodes:
            raise OptionError("the replay is empty; add episodes before sampling")
        starts, left = self._drawn(count, rng)
        steps = np.arange(left.max())[:, None]
        places = (starts + np.minimum(steps, left - 1)) % self.capacity
        mask = (steps < left).astype(np.float32)[..., None]
        return {**self._read(places), "mask": mask}

    def _drawn(self, count: int, rng: np.random.Generator) -> tuple[Any, Any]:
        """Draw windows: the first row and the number of rows of each."""
        if self._ends is None:
            lengths = self._episodes[:, 1]
            window = lengths if self.window is None else self.window
            self._ends = np.cumsum(np.maximum(lengths - window + 1, 1))
        drawn = rng.integers(self._ends[-1], size=count)
        chosen = np.searchsorted(self._ends, drawn, side="right")
        firsts, lengths = self._episodes[chosen].T
        rows = lengths if self.window is None else np.minimum(lengths, self.window)
        windows = lengths - rows + 1
        return firsts + drawn - (self._ends[chosen] - windows), rows

    def state_dict(self) -> dict[str, Any]:
        """Return all but the rows themselves."""
        return {**super().state_dict(), "episodes": self._episodes.copy()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue with the state; `restore` brings the rows."""
        super().load_state_dict(state)
        self._episodes = np.array(state["episodes"], np.int64).reshape(-1, 2)
        self._ends = None
