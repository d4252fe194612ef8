"""The items of `run_episodes` while they wait, run and are done.

    items  0 1 2 3 4 5 6 ──►  slot 0   0 ────── 3 ── 4 ─────────
                              slot 1   1 ── 2 ──────── 5 ── 6 ──  ──► results 0 1 2 ...

Slots are reset by this loop, without autoreset: when an episode ends, its slot starts
the next item.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from corral.core import NO_TASK, Policy, Step
from corral.engine.pool import Pool
from corral.errors import Fault
from corral.rollouts.actor import Actor
from corral.rollouts.normalise import ObsNorm
from corral.rollouts.space_rows import SpaceParts, some_of
from corral.rollouts.trajectories import Trajectories, Trajectory

ROW_FIELDS = ("obs", "action", "reward", "extras", "final_obs")


@dataclass(frozen=True, slots=True)
class Episode:
    """One item: what was asked for, and the result.

    `obs`, `action`, `reward` and `extras` have one row per step and own their memory.
    They are None, and {}, if rows were not kept or the item failed.

    Attributes:
        item: Its index among the items asked for.
        task: `core.NO_TASK` if it has none.
        return_: The sum of its rewards; nan if it failed.
        info: The info of its last step.
        final_obs: (1, ...): the last observation.
        faults: Faults on the way; after each the item was run again with the same seed.
        failed: Whether Corral gave up after the last of these faults.
    """

    item: int
    seed: int
    task: Any = NO_TASK
    return_: float = float("nan")
    length: int = 0
    terminated: bool = False
    truncated: bool = False
    info: dict[str, Any] = field(default_factory=dict)
    obs: Any = None
    action: Any = None
    reward: NDArray[np.float64] | None = None
    extras: dict[str, NDArray[Any]] = field(default_factory=dict)
    final_obs: Any = None
    faults: tuple[Fault, ...] = ()
    failed: bool = False

    @property
    def fault(self) -> Fault | None:
        """Why the item failed, if it did."""
        return self.faults[-1] if self.failed else None

    def __len__(self) -> int:
        return self.length


@dataclass(slots=True)
class EpisodeItem:
    """One episode asked for.

    Attributes:
        draws: Seed of the policy's draws.
    """

    number: int
    seed: int
    task: Any
    draws: int
    faults: list[Fault] = field(default_factory=list)

    @property
    def own_faults(self) -> int:
        """Number of faults that were not another slot's."""
        return sum(fault.kind != "shardmate" for fault in self.faults)

    def can_run_again(self, max_restarts: int) -> bool:
        """Whether its own faults are few enough."""
        return self.own_faults <= max_restarts

    def result(self, **result: Any) -> Episode:
        """The episode that it has become."""
        faults = tuple(self.faults)
        return Episode(self.number, self.seed, self.task, faults=faults, **result)


@dataclass(frozen=True, slots=True)
class EpisodeOptions:
    """What `run_episodes` was asked for beside the items."""

    rows: bool
    max_restarts: int
    max_length: int | None


class Items(Protocol):
    """The items that wait."""

    def take(self, slots: Sequence[int]) -> list[EpisodeItem]:
        """An item for each of these slots, or for the first of them."""

    def put_back(self, item: EpisodeItem) -> None:
        """Run an item again, before the others."""

    def done(self, slot: int, item: EpisodeItem) -> None:
        """The item of a slot is done, or has a fault more."""


class ItemQueue:
    """Items in their order."""

    def __init__(self, items: Sequence[EpisodeItem]) -> None:
        self._items = deque(items)

    def take(self, slots: Sequence[int]) -> list[EpisodeItem]:
        """The next items."""
        count = min(len(slots), len(self._items))
        return [self._items.popleft() for _ in range(count)]

    def put_back(self, item: EpisodeItem) -> None:
        """Run an item again, before the others."""
        self._items.appendleft(item)

    def done(self, slot: int, item: EpisodeItem) -> None:
        """Nothing has to be told."""


class EpisodesRun:
    """The items that run and are done.

    Attributes:
        done: Episodes by their numbers.
    """

    def __init__(
        self,
        pool: Pool,
        policy: Policy,
        items: Items,
        options: EpisodeOptions,
        norm: ObsNorm | None,
        first_number: int = 0,
        mark: Callable[[int], None] | None = None,
    ) -> None:
        self._obs_space = SpaceParts(pool.spec.observation_space)
        self._action_space = SpaceParts(pool.spec.action_space)
        self._pool = pool
        self._actor = Actor(
            *(policy, self._action_space, pool.num_envs, norm),
            first_number=first_number,
            mark=mark,
        )
        self._trajectories = Trajectories(pool) if options.rows else None
        self._options = options
        self._items = items
        self._at: dict[int, EpisodeItem] = {}  # by slot
        self.done: dict[int, Episode] = {}
        self._hand_out(range(pool.num_envs))

    def advance(self, min_slots: int | None) -> None:
        """Receive some results, and send the next actions."""
        pool, kept = self._pool, self._trajectories
        count = min(min_slots or (pool.waiting + 1) // 2, pool.waiting)
        step = self._cut(pool.recv(min_slots=count))
        complete = [] if kept is None else kept.received(step)
        rows = {trajectory.slot: trajectory for trajectory in complete}
        over = step.ended
        for position in np.flatnonzero(over).tolist():
            self._conclude(step, position, rows)
        free = step.slots[over].tolist()
        if over.any():
            step = some_of(self._obs_space, step, ~over)
        if len(step):
            self._send(step)
        self._hand_out(free)

    def _cut(self, step: Step) -> Step:
        """Truncate episodes that have reached `max_length`."""
        limit = self._options.max_length
        if limit is None:
            return step
        long = (step.episode_length >= limit) & step.valid & ~step.ended
        # No reset followed, so `obs` is the last observation.
        truncated = step.truncated | long
        return (
            replace(step, truncated=truncated, final_obs=step.obs)
            if long.any()
            else step
        )

    def _send(self, step: Step) -> None:
        _, decision = self._actor.act(step)
        action, slots = decision.action, step.slots
        self._pool.send(action, slots, autoreset="off")
        self._actor.acted(slots, self._action_space.split(action, len(slots)))
        if self._trajectories is not None:
            self._trajectories.sent(action, slots, **decision.extras)

    # Items ----------------------------------------------------------------------------

    def _hand_out(self, slots: Sequence[int]) -> None:
        """Start the next item in each of these slots, while there are any."""
        items = self._items.take(slots) if slots else []
        if not items:
            return
        chosen = list(slots)[: len(items)]
        self._at.update(zip(chosen, items, strict=True))
        seeds = [item.seed for item in items]
        self._actor.start(chosen, [item.draws for item in items])
        self._pool.send_reset(chosen, seeds=seeds, tasks=[item.task for item in items])

    def _conclude(self, step: Step, position: int, rows: dict[int, Trajectory]) -> None:
        slot = step.slots.item(position)
        item, valid = self._at.pop(slot), step.valid[position]
        info = step.infos.of(position) if step.infos else {}
        if not valid:
            item.faults.append(info["fault"])
        self._items.done(slot, item)
        result: dict[str, Any] = {"failed": True}
        if valid:
            result = {
                "return_": step.episode_return.item(position),
                "length": step.episode_length.item(position),
                "terminated": step.terminated.item(position),
                "truncated": step.truncated.item(position),
                "info": info,
            }
            if slot in rows:
                result |= {name: getattr(rows[slot], name) for name in ROW_FIELDS}
        elif item.can_run_again(self._options.max_restarts):
            self._items.put_back(item)  # it runs again, with the same seed
            return
        self.done[item.number] = item.result(**result)
