"""Drives one pool in one style, with orders to fail among its actions.

A turn sends to some of the idle slots, receives some of what is under way, and has the
referee look at it.
"""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from corral.core import Autoreset, Step
from corral.engine.pool import Pool
from corral.engine.worker.compared_values import difference
from corral.errors import Fault, FaultError
from corral.tools.testing.answers import ACTIONS
from corral.tools.testing.referee import Referee
from tests.soak.explanations import Explanations
from tests.soak.orders import ORDERS

HANG_SECONDS = 60.0
"""Seconds without a result after which a pool is said to hang."""
ORDER_CHANCE = 1 / 60
"""That a step has an order."""
WHIM_CHANCE = 1 / 60
"""That something else is done: a reset, a question, a task."""
CALM_TURNS = 60
"""Turns without orders at the end, in which what was ordered comes out."""


@dataclass(frozen=True, slots=True)
class Style:
    """How a pool is used."""

    name: Literal["all", "first", "named"]
    """All slots together; the first that are ready; chosen ones."""
    modes: tuple[Autoreset, ...]
    copy: bool = True


class Drive:
    """Uses a pool until it is told that it is enough."""

    def __init__(
        self,
        pool: Pool,
        referee: Referee,
        explanations: Explanations,
        style: Style,
        orders: Sequence[int],
        seed: int,
    ) -> None:
        self.mistakes: list[str] = []
        self._pool, self._referee, self._explanations = pool, referee, explanations
        self._style = style
        self._random = random.Random(seed)
        self._orders, self._deck = orders, list[int]()
        self._seen = 0
        self._kept: tuple[Any, Any] = (None, None)
        """Views of the step before, and what they showed."""
        self._turn_of = {"all": self._all, "first": self._first, "named": self._named}

    def run(self, enough: Callable[[], bool]) -> None:
        """Drive with orders until it is enough, then a while without."""
        self._send_resets(list(range(self._pool.num_envs)), root=self._draw(1 << 40))
        self._receive()
        turn = self._turn_of[self._style.name]
        while not enough() and not self._lost_track():
            turn(ORDER_CHANCE)
        for _ in range(CALM_TURNS):
            turn(0.0)
        while self._pool.waiting:
            self._receive()
        self._send_resets(list(range(self._pool.num_envs)))
        self._receive()

    def _lost_track(self) -> bool:
        """One mistake leads to others: the first ones tell the story."""
        return len(self.mistakes) + len(self._referee.mistakes) > 20

    def _draw(self, count: int) -> int:
        return self._random.randrange(count)

    def _has_a_whim(self) -> bool:
        return self._random.random() < WHIM_CHANCE

    # Turns ----------------------------------------------------------------------------

    def _all(self, chance: float) -> None:
        """Step all slots, as a training loop does."""
        slots = self._referee.idle
        if self._has_a_whim():
            self._do_something_else(slots)
        if self._has_a_whim():
            self._send_resets(slots, root=self._draw(1 << 40))
        else:
            self._send(slots, self._style.modes[0], chance)
        self._receive()

    def _first(self, chance: float) -> None:
        """Send to whoever is idle, and take the first that are ready."""
        self._send_each(self._referee.idle, chance)
        self._receive(min_slots=1 + self._draw(self._pool.waiting))

    def _named(self, chance: float) -> None:
        """Send to some in any order, and wait for some of them by name."""
        idle = self._referee.idle
        if idle:
            self._send_each(
                self._random.sample(idle, 1 + self._draw(len(idle))), chance
            )
        busy = sorted(set(range(self._pool.num_envs)) - set(self._referee.idle))
        chosen = self._random.sample(busy, 1 + self._draw(len(busy)))
        if self._draw(4) == 0:
            try:
                self._take(self._pool.recv(slots=chosen, timeout=0.0005))
            except TimeoutError:
                pass  # they stay under way
            else:
                return
        self._receive(slots=chosen)

    # Sending --------------------------------------------------------------------------

    def _send_each(self, slots: Sequence[int], chance: float) -> None:
        """Each slot in a mode of its own, or reset."""
        if self._has_a_whim():
            self._do_something_else(slots)
        over = self._referee.over
        groups = defaultdict[str, list[int]](list)
        for slot in slots:
            kind: str = self._random.choice(self._style.modes)
            if self._has_a_whim() or (kind == "off" and slot in over):
                kind = "reset"
            groups[kind].append(slot)
        self._send_resets(groups.pop("reset", []))
        for mode, chosen in groups.items():
            self._send(chosen, mode, chance)

    def _send(self, slots: Sequence[int], mode: Any, chance: float) -> None:
        over = self._referee.over
        actions = []
        for slot in slots:
            order = 0
            if self._random.random() < chance and slot not in over:
                order = self._next_order()
                self._explanations.ordered(slot, ORDERS[order])
            actions.append(order * ACTIONS + self._draw(ACTIONS))
        self._referee.sent(slots, actions, mode)
        whole = list(slots) == list(range(self._pool.num_envs))
        self._pool.send(np.array(actions), None if whole else slots, autoreset=mode)

    def _next_order(self) -> int:
        """All of them equally often, in any order."""
        if not self._deck:
            self._deck = self._random.sample(list(self._orders), len(self._orders))
        return self._deck.pop()

    def _send_resets(self, slots: list[int], root: int | None = None) -> None:
        if not slots:
            return
        seeds: list[int | None] | None = None
        if root is None and self._draw(3) == 0:
            seeds = [self._draw(1 << 60) if self._draw(2) else None for _ in slots]
        self._referee.sent_reset(slots, root, seeds)
        self._pool.send_reset(slots, seed=root, seeds=seeds)

    def _do_something_else(self, slots: Sequence[int]) -> None:
        """A question, or a task for an episode to come."""
        if not slots:
            return
        slot = self._random.choice(slots)
        if self._draw(2):
            task = self._draw(1000)
            self._referee.assigned(slot, task)
            self._pool.assign(slot, task)
            return
        try:
            self._pool.call("length", slots=[slot])
        except FaultError as error:
            # A question goes unanswered when its worker ends; the pool goes on.
            self._look_at(error.fault)

    # Receiving ------------------------------------------------------------------------

    def _receive(self, **which: Any) -> None:
        self._take(self._pool.recv(timeout=HANG_SECONDS, **which))

    def _take(self, step: Step) -> None:
        faults = self._pool.faults
        for fault in faults[self._seen :]:
            self._look_at(fault)
            wrong = self._explanations.explain(fault)
            if wrong is not None:
                self.mistakes.append(f"{wrong}: {fault}")
        self._seen = len(faults)
        told = dict(self._referee.check(step))
        for slot, fault in told.items():
            wrong = self._explanations.explanation_of(fault)
            if wrong is not None:
                self.mistakes.append(f"slot {slot}: {wrong}: {fault}")
        for slot, valid in zip(step.slots.tolist(), step.valid.tolist(), strict=True):
            self._explanations.answered(slot, valid)
        self._compare_views(step)

    def _look_at(self, fault: Fault) -> None:
        if fault.worker is not None:
            self._referee.shaken(self._pool.shards[fault.worker])

    def _compare_views(self, step: Step) -> None:
        """What was returned stays as it was while the next step runs."""
        if self._style.copy:
            return
        views, values = self._kept
        if views is not None and difference("", views, values):
            self.mistakes.append("what views showed has changed under the caller")
        self._kept = step.obs, _copied(step.obs)


def _copied(batch: Any) -> Any:
    if isinstance(batch, dict):
        return {key: _copied(value) for key, value in batch.items()}
    if isinstance(batch, tuple):
        return tuple(_copied(value) for value in batch)
    return batch.copy() if isinstance(batch, np.ndarray) else batch
