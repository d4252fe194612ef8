"""The truth, slowly: one env after the other, in plain loops written by hand."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np
from gymnasium import spaces

from corral import Pool, Step
from corral.engine.worker.seeds import episode_seed, seed_globals


@dataclass
class Row:
    """All that a Step says of one slot."""

    obs: Any
    reward: float
    terminated: bool
    truncated: bool
    started: bool
    valid: bool
    final_obs: Any
    """None where no episode ended."""
    episode_return: float
    episode_length: int
    seed: int
    info: dict[str, Any]
    final_info: dict[str, Any] | None = None


class ReferenceSlot:
    """One env, reset and stepped as the contract says."""

    def __init__(
        self, make: Callable[[], Any], slot: int, root: int, isolated: bool = False
    ) -> None:
        self._isolated = isolated
        if isolated:
            seed_globals(episode_seed(root, slot))
        self._env = make()
        self._space = self._env.observation_space
        self._slot = slot
        self._root = root
        self._episode = -1
        self._seed = -1
        self.over = False

    def reset(self) -> Row:
        """An explicit reset."""
        obs, info = self._begin()
        return Row(obs, 0.0, False, False, True, True, None, 0.0, 0, self._seed, info)

    def _begin(self) -> tuple[Any, dict[str, Any]]:
        self._episode += 1
        self._seed = episode_seed(self._root, self._slot, self._episode)
        if self._isolated:
            seed_globals(episode_seed(self._seed))
        obs, info = self._env.reset(seed=self._seed)
        self.over = False
        self._total = 0.0
        self._length = 0
        return stored(self._space, obs), info

    def step(self, action: Any, mode: str) -> Row:
        """A step under an autoreset mode."""
        if self.over and mode == "hold":
            return replace(self._last, reward=0.0, valid=False, info={})
        if self.over:
            assert mode != "off", "the test wants what the contract forbids"
            row = self.reset()
            row.valid = False
            return row
        obs, reward, terminated, truncated, info = self._env.step(action)
        obs = stored(self._space, obs)
        reward = float(np.asarray(reward).reshape(()))
        self._total += reward
        self._length += 1
        row = Row(
            obs=obs,
            reward=reward,
            terminated=bool(terminated),
            truncated=bool(truncated),
            started=False,
            valid=True,
            final_obs=None,
            episode_return=self._total,
            episode_length=self._length,
            seed=self._seed,
            info=info,
        )
        if terminated or truncated:
            row.final_obs = obs
            if mode == "same_step":
                row.final_info = info
                row.obs, row.info = self._begin()
                row.seed = self._seed
                row.started = True
            else:
                self.over, self._last = True, row
        return row

    def close(self) -> None:
        self._env.close()


def stored(space: spaces.Space[Any], value: Any) -> Any:
    """A private copy of a value, in the dtypes of its space."""
    if isinstance(space, spaces.Dict):
        return {key: stored(part, value[key]) for key, part in space.spaces.items()}
    if isinstance(space, spaces.Tuple):
        parts = zip(space.spaces, value, strict=True)
        return tuple(stored(part, item) for part, item in parts)
    return np.array(value, dtype=space.dtype)


def row_of(space: spaces.Space[Any], step: Step, position: int) -> Row:
    """What a Step says of the slot at this position."""
    ended = bool(step.ended[position])
    return Row(
        obs=part_of(space, step.obs, position),
        reward=step.reward[position].item(),
        terminated=step.terminated[position].item(),
        truncated=step.truncated[position].item(),
        started=step.started[position].item(),
        valid=step.valid[position].item(),
        final_obs=part_of(space, step.final_obs, position) if ended else None,
        episode_return=step.episode_return[position].item(),
        episode_length=step.episode_length[position].item(),
        seed=step.seed[position].item(),
        info=step.infos.of(position),
        final_info=step.final_infos.get(position),
    )


def part_of(space: spaces.Space[Any], batch: Any, position: int) -> Any:
    """One slot's value out of a batch."""
    if isinstance(space, spaces.Dict):
        assert list(batch) == list(space.spaces)
        parts = space.spaces.items()
        return {key: part_of(part, batch[key], position) for key, part in parts}
    if isinstance(space, spaces.Tuple):
        parts = zip(space.spaces, batch, strict=True)
        return tuple(part_of(part, values, position) for part, values in parts)
    return np.array(batch[position])


def assert_same_rows(got: Sequence[Row], expected: Sequence[Row], what: str) -> None:
    """Bit for bit, types too."""
    assert len(got) == len(expected), what
    for number, (ours, truth) in enumerate(zip(got, expected, strict=True)):
        for field in fields(Row):
            pair = getattr(ours, field.name), getattr(truth, field.name)
            assert same(*pair), f"{what}, row {number}: {field.name} {pair}"


def same(one: Any, other: Any) -> bool:
    """Whether two values are of the same type and have the same bits."""
    if type(one) is not type(other):
        return False
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(same(one[k], other[k]) for k in one)
    if isinstance(one, (list, tuple)):
        return len(one) == len(other) and all(map(same, one, other))
    if isinstance(one, (np.ndarray, np.generic)):
        return (
            one.dtype == other.dtype
            and one.shape == other.shape
            and one.tobytes() == other.tobytes()
        )
    if isinstance(one, float):
        return np.float64(one).tobytes() == np.float64(other).tobytes()
    return bool(one == other)


def drive(
    pool: Pool,
    actions: Sequence[Sequence[Any]],
    min_slots: int | None,
    mode: str,
    **reset: Any,
) -> list[list[Row]]:
    """Reset and step every slot through its actions, `min_slots` results at a time."""
    steps = len(actions[0])
    rows: list[list[Row]] = [[] for _ in actions]
    space = pool.spec.observation_space
    pool.send_reset(**reset)
    while pool.waiting:
        step = pool.recv(None if min_slots is None else min(min_slots, pool.waiting))
        slots = step.slots.tolist()
        assert slots == sorted(slots)
        for position, slot in enumerate(slots):
            rows[slot].append(row_of(space, step, position))
        again = [slot for slot in slots if len(rows[slot]) <= steps]
        if again:
            chosen = [actions[slot][len(rows[slot]) - 1] for slot in again]
            whole = len(again) == pool.num_envs
            slots = None if whole else again
            pool.send(batched(pool, chosen), slots, autoreset=mode)  # type: ignore[arg-type]
    return rows


def batched(pool: Pool, actions: list[Any]) -> Any:
    """Actions as a learner has them: arrays where the space is one array."""
    if isinstance(pool.spec.action_space, (spaces.Box, spaces.Discrete)):
        return np.stack(actions)
    return actions
