"""The truth, slowly: each slot in a plain loop of its own, rows written by hand.

And a policy that looks at everything it is given, row by row, so that a wrong carry, a
generator of another slot or an action of another episode would show.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from contracts.envs import sampled
from contracts.reference import ReferenceSlot, Row, part_of, same, stored
from gymnasium import spaces

from corral import Decision, Pool, Rollout, Step
from corral.core import Generators
from corral.rollouts.policy_rng import SlotGenerators

MEMORY = 2


# One row ------------------------------------------------------------------------------


@dataclass
class Thought:
    """What comes of one row."""

    action: Any
    carry: dict[str, Any]
    extras: dict[str, Any]


def zeros() -> dict[str, Any]:
    """What one slot starts an episode with."""
    return {"trace": np.zeros(MEMORY), "pair": (np.zeros(()), np.zeros((), np.int64))}


def number_of(value: Any) -> float:
    """One number for an observation or action, whatever its structure."""
    if isinstance(value, dict):
        value = tuple(value.values())
    if isinstance(value, (tuple, list)):
        return sum((place + 1) * number_of(part) for place, part in enumerate(value))
    array = np.asarray(value, np.float64).ravel()
    return float(sum((place + 1) * part for place, part in enumerate(array.tolist())))


def think(
    space: spaces.Space[Any],
    obs: Any,
    carry: dict[str, Any],
    generator: np.random.Generator,
    before: tuple[Any, float],
) -> Thought:
    """Decide about one row; `before` is the action and the reward that led here."""
    seen, (last, reward) = number_of(obs), before
    trace = 0.5 * carry["trace"] + seen
    level, count = carry["pair"]
    level, count = level + reward, count + 1
    drawn = generator.random()
    seed = hash((round(seen, 6), round(float(trace[0]), 6), drawn, number_of(last)))
    after = {"trace": trace, "pair": (np.asarray(level), np.asarray(count))}
    extras = {
        "drawn": np.float64(drawn),
        "value": np.float32(worth(obs, carry)),
        "last": np.float64(number_of(last)),
        "trace": trace,
    }
    return Thought(sampled(space, seed), after, extras)


def worth(obs: Any, carry: dict[str, Any]) -> float:
    """What is expected of an observation, with what is remembered."""
    return number_of(obs) - float(carry["trace"][0]) + float(carry["pair"][1])


# All rows of a step -------------------------------------------------------------------


class Thinker:
    """The same for a batch, one row after the other."""

    def __init__(self, pool: Pool) -> None:
        self.spec = pool.spec
        self.batches: list[list[int]] = []
        """The slots of each batch that it was asked about."""

    def initial_carry(self, rows: int) -> Any:
        return stacked([zeros() for _ in range(rows)])

    def act(self, step: Step, carry: Any, rng: Generators) -> Decision:
        assert len(rng) == len(step)
        self.batches.append(step.slots.tolist())
        spec, thoughts = self.spec, []
        for row in range(len(step)):
            started = bool(step.started[row])
            last = part_of(spec.action_space, step.previous_action, row)
            before = last, 0.0 if started else float(step.reward[row])
            obs = part_of(spec.observation_space, step.obs, row)
            one = at(carry, row)
            thoughts.append(think(spec.action_space, obs, one, rng[row], before))
        extras = {
            name: np.stack([thought.extras[name] for thought in thoughts])
            for name in thoughts[0].extras
        }
        return Decision(
            batched(spec.action_space, [thought.action for thought in thoughts]),
            stacked([thought.carry for thought in thoughts]),
            extras,
        )

    def value(self, obs: Any, carry: Any) -> Any:
        space = self.spec.observation_space
        rows = len(carry["trace"])
        pairs = [(part_of(space, obs, row), at(carry, row)) for row in range(rows)]
        return np.array([worth(*pair) for pair in pairs])


def stacked(carries: list[dict[str, Any]]) -> Any:
    return {
        "trace": np.stack([one["trace"] for one in carries]),
        "pair": tuple(np.stack([one["pair"][k] for one in carries]) for k in (0, 1)),
    }


def at(carry: Any, row: int) -> dict[str, Any]:
    level, count = carry["pair"]
    return {"trace": carry["trace"][row], "pair": (level[row], count[row])}


def batched(space: spaces.Space[Any], actions: list[Any]) -> Any:
    if isinstance(space, (spaces.Dict, spaces.Tuple)):
        return actions
    return np.stack(actions)


# A slot in a plain loop ---------------------------------------------------------------


@dataclass
class TrueRow:
    """One row of a rollout, and what follows it."""

    before: Row
    thought: Thought
    after: Row
    bootstrap: float
    seed: int
    """Of the episode that it belongs to."""


class PlainLoop:
    """One env, led by the policy, a row at a time."""

    def __init__(
        self, make: Callable[[], Any], slot: int, root: int, autoreset: str
    ) -> None:
        self._reference = ReferenceSlot(make, slot, root)
        self._space = make().action_space
        self._autoreset = autoreset
        self._generators = SlotGenerators(1)
        self.now = self._reference.reset()
        self._start()

    def _start(self) -> None:
        self._generators.start([0], [self.now.seed])
        self.carry = zeros()
        self._last = zero_action(self._space)

    def row(self) -> TrueRow:
        now = self.now
        before = self._last, 0.0 if now.started else now.reward
        generator = self._generators.of(0)
        thought = think(self._space, now.obs, self.carry, generator, before)
        after = self._reference.step(thought.action, self._autoreset)
        bootstrap = 0.0
        if after.valid and after.truncated and not after.terminated:
            bootstrap = worth(after.final_obs, thought.carry)
        row = TrueRow(now, thought, after, bootstrap, now.seed)
        self.now, self.carry = after, thought.carry
        self._last = stored(self._space, thought.action)
        if after.started:
            self._start()
        return row


def zero_action(space: spaces.Space[Any]) -> Any:
    if isinstance(space, spaces.Dict):
        return {key: zero_action(part) for key, part in space.spaces.items()}
    if isinstance(space, spaces.Tuple):
        return tuple(map(zero_action, space.spaces))
    return np.zeros(space.shape or (), space.dtype)


# Comparing ----------------------------------------------------------------------------


def assert_same_rollout(
    pool: Pool, got: Rollout, rows: list[list[TrueRow]], loops: list[PlainLoop]
) -> None:
    """Bit for bit; `rows[slot][row]`, and where each slot's loop has got to."""
    assert got.slots == len(rows) and len(got) == len(rows[0])
    for slot, one in enumerate(rows):
        for number, truth in enumerate(one):
            assert_same_row(pool, got, number, slot, truth)
    assert_same_ends(pool, got, rows)
    space = pool.spec.observation_space
    for slot, loop in enumerate(loops):
        assert same(part_of(space, got.next_obs, slot), loop.now.obs)
        assert got.next_started[slot] == loop.now.started
        assert same(at(got.next_carry, slot)["trace"], loop.carry["trace"])
        assert got.next_value[slot] == worth(loop.now.obs, loop.carry)


def assert_same_row(
    pool: Pool, got: Rollout, row: int, slot: int, truth: TrueRow
) -> None:
    what, place = f"row {row}, slot {slot}", (row, slot)
    obs_space, action_space = pool.spec.observation_space, pool.spec.action_space
    assert same(part_of(obs_space, got.obs, place), truth.before.obs), what
    action = stored(action_space, truth.thought.action)
    assert same(part_of(action_space, got.action, place), action), what
    for name, value in truth.thought.extras.items():
        assert same(got.extras[name][place], value), f"{what} {name}"
    assert got.started[place] == truth.before.started, what
    for name in ("reward", "terminated", "truncated", "valid"):
        pair = getattr(got, name)[place].item(), getattr(truth.after, name)
        assert same(*pair), f"{what} {name}: {pair}"
    assert got.bootstrap[place] == truth.bootstrap, what


def assert_same_ends(pool: Pool, got: Rollout, rows: list[list[TrueRow]]) -> None:
    space, episodes, finals = pool.spec.observation_space, [], []
    for number in range(len(rows[0])):
        for slot, one in enumerate(rows):
            after = one[number].after
            if after.final_obs is None:
                continue
            finals.append(after.final_obs)
            info = after.info if after.final_info is None else after.final_info
            told = after.episode_return, after.episode_length, after.terminated
            episodes.append((slot, number, one[number].seed, *told, info))
    for place, final in enumerate(finals):
        assert same(part_of(space, got.final_obs, place), final)
    assert len(finals) == got.ended.sum()
    summaries = [
        (e.slot, e.row, e.seed, e.return_, e.length, e.terminated, e.info)
        for e in got.episodes
    ]
    assert same(summaries, episodes)
