"""A question to many envs: one to each worker that has any, one answer per slot."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from corral.executors.assign import place_of
from corral.supervision.report import one_error_for
from corral.workers.commands import Ask
from corral.workers.letters import Reply


@dataclass(frozen=True, slots=True)
class Question:
    """Something asked and not yet answered."""

    slots: list[int]
    """In the order of the answers."""
    by_worker: dict[int, list[int]]
    """Those of the slots that each worker runs."""
    shards: Sequence[range]

    @classmethod
    def about(cls, slots: list[int], shards: Sequence[range]) -> Question:
        """A question to whoever runs these slots."""
        by_worker: dict[int, list[int]] = {}
        for slot in slots:
            worker, _ = place_of(slot, shards)
            by_worker.setdefault(worker, []).append(slot)
        return cls(slots, by_worker, shards)

    def asks(self, verb: str, payload: Callable[[list[int]], Any]) -> dict[int, Ask]:
        """What each worker is told; `payload` makes it from the worker's slots."""
        return {
            worker: Ask(verb, self._indexes(worker), payload(slots))
            for worker, slots in self.by_worker.items()
        }

    def _indexes(self, worker: int) -> tuple[int, ...]:
        first = self.shards[worker].start
        return tuple(slot - first for slot in self.by_worker[worker])

    def answers(self, replies: dict[int, Reply]) -> tuple[Any, ...]:
        """One answer per slot, or the error of those that have none."""
        faults = [fault for reply in replies.values() for fault in reply.faults]
        if faults:
            raise one_error_for(faults)
        answers = {
            slot: value
            for worker, slots in self.by_worker.items()
            for slot, value in zip(slots, replies[worker].values, strict=True)
        }
        return tuple(answers[slot] for slot in self.slots)
