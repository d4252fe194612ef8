"""Which faults were caused, so that any other is a mistake of ours."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Sequence

from corral.errors import Fault
from tests.soak.orders import Effect, Order

ERRORS = ("OnPurpose", "SystemExit", "SpaceMismatch")
"""What an env raises that was ordered to."""
EXITS = (3, -6, -9, -11)
"""How a worker ends that was: os._exit(3), abort, SIGKILL, SIGSEGV."""


class Explanations:
    """Counts what was ordered, and has faults explained by it.

    Args:
        shards: the slots of each worker.
        attacked: the process ids of workers that were attacked from outside; grows.
    """

    def __init__(self, shards: Sequence[range], attacked: Collection[int]) -> None:
        self.confirmed: Counter[str] = Counter()
        """Orders that were seen to be carried out, by name."""
        self._shards = shards
        self._attacked = attacked
        self._orders: dict[int, list[Order]] = defaultdict(list)
        """By slot: what its env was told, and may yet do."""
        self._gone: set[int] = set()
        """Slots whose env is gone with its worker; it does nothing more."""
        self._explained: set[int] = set()

    def ordered(self, slot: int, order: Order) -> None:
        """A slot was given an order."""
        self._orders[slot].append(order)

    def answered(self, slot: int, valid: bool) -> None:
        """A slot's row came: what its action ordered is over, but for a next reset."""
        for order in self._orders.pop(slot, []):
            if order.effect is Effect.FINE and valid:
                self.confirmed[order.name] += 1
            if order.effect is Effect.LATER and valid and slot not in self._gone:
                self._orders[slot].append(order)
        self._gone.discard(slot)

    def explain(self, fault: Fault) -> str | None:
        """What is wrong with a fault that a pool has mended; None if nothing is."""
        if fault.kind == "start":
            return None if fault.error_type == "OnPurpose" else "it should have started"
        if fault.kind == "raised":
            return self._explain(fault, Effect.RAISES)
        if fault.pid in self._attacked:
            self._gone.update(self._shards[fault.worker or 0])
            return None
        return self._explain(fault, Effect.KILLS)

    def _explain(self, fault: Fault, effect: Effect) -> str | None:
        slot = -1 if fault.slot is None else fault.slot
        guilty = self._guilty(fault, effect)
        for order in self._orders[slot]:
            if effect in (order.effect, order.later):
                self.confirmed[order.name] += 1
                self._orders[slot].remove(order)
                return self._ending(fault)
        if guilty:
            return f"slot {fault.slot} is blamed for what one of {guilty} has done"
        return f"nobody told slot {fault.slot} of worker {fault.worker} to do so"

    def _guilty(self, fault: Fault, effect: Effect) -> list[int]:
        """Whoever of the worker's slots was told to have this effect."""
        assert fault.worker is not None
        return [
            slot
            for slot in self._shards[fault.worker]
            if any(effect in (o.effect, o.later) for o in self._orders[slot])
        ]

    def _ending(self, fault: Fault) -> str | None:
        """Whether it is an error, or the end of a worker, that can be ordered."""
        if fault.kind == "raised":
            known = fault.error_type in ERRORS
            return None if known else f"nobody told it to raise {fault.error_type}"
        self._gone.update(self._shards[fault.worker or 0])
        if fault.pid is not None:
            self._explained.add(fault.pid)
        if fault.kind == "hung" and not fault.stack:
            return "it does not say where it hung"
        if fault.kind == "died" and fault.exit_code not in EXITS:
            return f"nobody told it to end with {fault.exit_code}"
        return None

    def explanation_of(self, fault: Fault) -> str | None:
        """What is wrong with the fault in the info of a row."""
        if fault.kind == "raised":
            return None  # `explain` saw it too
        if fault.pid in self._explained or fault.pid in self._attacked:
            return None
        return f"worker {fault.worker} had no fault with pid {fault.pid}"
