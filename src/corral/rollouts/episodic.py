"""Whole episodes, each run in the next free slot.

    items  0 1 2 3 4 5 6 ──►  slot 0   0 ────── 3 ── 4 ─────────
                              slot 1   1 ── 2 ──────── 5 ── 6 ──  ──► results 0 1 2 ...

The result of an item depends on its seed and task alone. Slots are reset by this loop,
without autoreset: when an episode ends, its slot starts the next item.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from corral.core import NO_TASK, Policy, Step
from corral.engine.keywords import check_count, checked_keywords
from corral.engine.pool import Pool
from corral.engine.worker.seeds import SeedDomain, episode_seed
from corral.errors import Fault, FaultError, OptionError
from corral.rollouts.actor import Actor, check_pool
from corral.rollouts.normalise import ObsNorm
from corral.rollouts.space_rows import SpaceParts, some_of
from corral.rollouts.trajectories import Trajectories, Trajectory

ROW_FIELDS = ("obs", "action", "reward", "extras", "final_obs")


@dataclass(frozen=True, slots=True)
class Episode:
    """One item: what was asked for, and the result.

    `obs`, `action`, `reward` and `extras` have one row per step and own their memory.
    They are None, and {}, if rows were not kept or the item failed.
    """

    item: int
    """Its index among the items asked for."""
    seed: int
    task: Any = NO_TASK
    """`core.NO_TASK` if it has none."""
    return_: float = float("nan")
    """The sum of its rewards; nan if it failed."""
    length: int = 0
    terminated: bool = False
    truncated: bool = False
    info: dict[str, Any] = field(default_factory=dict)
    """The info of its last step."""
    obs: Any = None
    action: Any = None
    reward: NDArray[np.float64] | None = None
    extras: dict[str, NDArray[Any]] = field(default_factory=dict)
    final_obs: Any = None
    """(1, ...): the last observation."""
    faults: tuple[Fault, ...] = ()
    """Faults on the way; after each the item was run again with the same seed."""
    failed: bool = False
    """Whether Corral gave up after the last of these faults."""

    @property
    def fault(self) -> Fault | None:
        """Why the item failed, if it did."""
        return self.faults[-1] if self.failed else None

    def __len__(self) -> int:
        return self.length


@checked_keywords(pool=Pool)
def run_episodes(
    pool: Pool,
    policy: Policy,
    *,
    episodes: int | None = None,
    tasks: Sequence[Any] | None = None,
    seeds: Sequence[int] | None = None,
    seed: int | None = None,
    rows: bool = True,
    max_restarts: int = 3,
    max_length: int | None = None,
    min_slots: int | None = None,
    obs_norm: ObsNorm | None = None,
    repeat: int = 1,
) -> list[Episode]:
    """Run whole episodes; results are in the order of the items.

        trials = corral.run_episodes(pool, policy, tasks=tasks)

    Args:
        pool: any pool, whatever its autoreset. Episodes that are running in it are
            dropped.
        policy: see `corral.Policy`.
        episodes: number of episodes; not needed with tasks or seeds.
        tasks: one per episode (default: drawn by the pool's `sample_task`, if any).
        seeds: one per episode (default: made from `seed` and the item's index).
        seed: root of the seeds (default: the pool's).
        rows: whether to keep observations, actions, rewards and extras.
        max_restarts: how often an item is run again after its own faults, if the pool
            restarts; after that it is returned as failed.
        max_length: steps after which an episode is truncated (default: no limit).
        min_slots: number of results to wait for (default: half of those running).
        obs_norm: normalises the policy's observations; it is not updated here.
        repeat: run each episode this often, with the same seed and task; only the
            policy's draws differ. The copies follow each other in the result.

    Raises:
        FaultError: an env or worker failed in a pool with on_fault="raise"; episodes
            that were finished by then are in its `episodes`.
    """
    check_pool(pool)
    check_count("max_restarts", max_restarts, least=0)
    check_count("repeat", repeat)
    root = pool.seed if seed is None else seed
    items = _items(pool, episodes, tasks, seeds, root, repeat)
    if max_length is not None and max_length < 1:
        raise OptionError(f"max_length is {max_length!r}; it must be None or >= 1")
    if not items:
        return []
    pool.drain()
    run = _EpisodesRun(pool, policy, items, rows, max_restarts, max_length, obs_norm)
    try:
        while pool.waiting:
            run.advance(min_slots)
    except FaultError as error:
        error.episodes = tuple(run.done[number] for number in sorted(run.done))
        raise
    return [run.done[item.number] for item in items]


@dataclass(slots=True)
class _EpisodeItem:
    """One episode asked for."""

    number: int
    seed: int
    task: Any
    draws: int
    """Seed of the policy's draws."""
    faults: list[Fault] = field(default_factory=list)


class _EpisodesRun:
    """The items that wait, run and are done."""

    def __init__(
        self,
        pool: Pool,
        policy: Policy,
        items: Sequence[_EpisodeItem],
        rows: bool,
        max_restarts: int,
        max_length: int | None,
        norm: ObsNorm | None,
    ) -> None:
        self._obs_space = SpaceParts(pool.spec.observation_space)
        self._action_space = SpaceParts(pool.spec.action_space)
        self._pool = pool
        self._actor = Actor(policy, self._action_space, pool.num_envs, norm)
        self._trajectories = Trajectories(pool) if rows else None
        self._max_restarts = max_restarts
        self._max_length = max_length
        self._queue = deque(items)
        self._at: dict[int, _EpisodeItem] = {}  # by slot
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
        if self._max_length is None:
            return step
        long = (step.episode_length >= self._max_length) & step.valid & ~step.ended
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
        chosen = list(slots)[: len(self._queue)]
        if not chosen:
            return
        items = [self._queue.popleft() for _ in chosen]
        self._at.update(zip(chosen, items, strict=True))
        seeds = [item.seed for item in items]
        self._actor.start(chosen, [item.draws for item in items])
        self._pool.send_reset(chosen, seeds=seeds, tasks=[item.task for item in items])

    def _conclude(self, step: Step, position: int, rows: dict[int, Trajectory]) -> None:
        slot = step.slots.item(position)
        item = self._at.pop(slot)
        info = step.infos.of(position) if step.infos else {}
        result: dict[str, Any] = {"failed": True}
        if step.valid[position]:
            result = {
                "return_": step.episode_return.item(position),
                "length": step.episode_length.item(position),
                "terminated": step.terminated.item(position),
                "truncated": step.truncated.item(position),
                "info": info,
            }
            if slot in rows:
                result |= {name: getattr(rows[slot], name) for name in ROW_FIELDS}
        else:
            item.faults.append(info["fault"])
            own = sum(fault.kind != "shardmate" for fault in item.faults)
            if own <= self._max_restarts:
                self._queue.appendleft(item)  # it runs again, with the same seed
                return
        self.done[item.number] = Episode(
            item.number, item.seed, item.task, faults=tuple(item.faults), **result
        )


def _items(
    pool: Pool,
    episodes: int | None,
    tasks: Sequence[Any] | None,
    seeds: Sequence[int] | None,
    seed: int,
    repeat: int,
) -> list[_EpisodeItem]:
    given = {"tasks": tasks, "seeds": seeds}
    counts = {name: len(each) for name, each in given.items() if each is not None}
    if episodes is not None:
        counts["episodes"] = episodes
    if not counts:
        raise OptionError(
            "the number of episodes is missing; pass episodes, tasks or seeds"
        )
    if len(set(counts.values())) > 1:
        said = ", ".join(f"{count} {name}" for name, count in counts.items())
        raise OptionError(f"the numbers do not agree: {said}")
    (count,) = set(counts.values())
    if count < 0:
        raise OptionError(f"episodes is {episodes!r}; it must be >= 0")
    items = []
    for number in range(count):
        own = episode_seed(seed, number) if seeds is None else int(seeds[number])
        task = drawn_task(pool, seed, number) if tasks is None else tasks[number]
        for copy in range(repeat):
            draws = episode_seed(own, copy, SeedDomain.COPIES) if copy else own
            items.append(_EpisodeItem(number * repeat + copy, own, task, draws))
    return items


def drawn_task(pool: Pool, seed: int, number: int) -> Any:
    """The task of an item without one; it depends on the number, not on the slot."""
    if pool.sample_task is None:
        return NO_TASK
    rng = np.random.default_rng(episode_seed(seed, number, SeedDomain.TASKS))
    return pool.sample_task(number, 0, rng)
