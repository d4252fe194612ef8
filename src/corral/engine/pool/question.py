"""A question to many envs: one to each worker that has any, one answer per slot."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from corral.engine.executors.assign import worker_and_index
from corral.engine.worker.commands import Ask
from corral.engine.worker.letters import Reply


@dataclass(frozen=True, slots=True)
class Question:
    """Something asked and not yet answered."""

    slots: list[int]
    """In the order of the answers."""
    by_worker: dict[int, list[int]]
    """Those of the slots that each worker runs."""
    shards: Sequence[range]
    verb: str
    payload: Callable[[list[int]], Any]
    """Makes what a worker is told from its slots."""

    @classmethod
    def about(
        cls,
        slots: list[int],
        shards: Sequence[range],
        verb: str,
        payload: Callable[[list[int]], Any],
    ) -> Question:
        """A question to the workers of these slots."""
        by_worker: dict[int, list[int]] = {}
        for slot in slots:
            worker, _ = worker_and_index(slot, shards)
            by_worker.setdefault(worker, []).append(slot)
        return cls(slots, by_worker, shards, verb, payload)

    def messages(self) -> dict[int, Ask]:
        """What each worker is told."""
        return {
            worker: Ask(self.verb, self._indexes(worker), self.payload(slots))
            for worker, slots in self.by_worker.items()
        }

    def question_to(self, slot: int | None) -> tuple[str, Any] | None:
        """What one slot was asked."""
        return None if slot is None else (self.verb, self.payload([slot]))

    def _indexes(self, worker: int) -> tuple[int, ...]:
        first = self.shards[worker].start
        return tuple(slot - first for slot in self.by_worker[worker])

    def answers(self, replies: dict[int, Reply]) -> tuple[Any, ...]:
        """One answer per slot, if no worker had a fault to tell of."""
        answers = {
            slot: value
            for worker, slots in self.by_worker.items()
            for slot, value in zip(slots, replies[worker].values, strict=True)
        }
        return tuple(answers[slot] for slot in self.slots)
