"""What PPO learns from rows of copies in workers is what it learns from its own."""

from __future__ import annotations

from typing import Any, ClassVar

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces

import corral
from corral.learners.ppo import PPO, PPOConfig

ROWS, SLOTS = 9, 5
NETS: dict[str, dict[str, Any]] = {
    "gru": {"memory": "gru", "memory_size": 7, "hidden": (9,)},
    "lstm": {"memory": "lstm", "memory_size": 20, "hidden": (6,)},
    "dict": {"hidden": (10,), "activation": "silu"},
    "wide": {"hidden": (101, 5)},
}


class Wanders(gymnasium.Env[Any, Any]):
    """A random walk of 7 numbers that the actions push."""

    plain: ClassVar[Any] = spaces.Box(-np.inf, np.inf, (7,), np.float32)
    named: ClassVar[Any] = spaces.Dict(at=plain, kind=spaces.Discrete(3))

    def __init__(self, nested: bool = False) -> None:
        self._nested = nested
        self.observation_space = self.named if nested else self.plain
        self.action_space = spaces.Box(-1.0, 1.0, (5,), np.float32)

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        self._at = self.np_random.normal(size=7).astype(np.float32)
        return self._seen(), {}

    def step(self, action: Any) -> Any:
        self._at += 0.1 * self.np_random.normal(size=7).astype(np.float32)
        self._at[:5] += action
        over = bool(self.np_random.random() < 0.1)
        return self._seen(), -float(abs(self._at).sum()), over, False, {}

    def _seen(self) -> Any:
        if not self._nested:
            return self._at.copy()
        return {"at": self._at.copy(), "kind": int(abs(self._at[0])) % 3}


def learned(kind: str, act_in: str, backend: str, workers: int) -> list[Any]:
    """Weights after each of two updates, and what was collected before."""
    make = lambda: Wanders(kind == "dict")  # noqa: E731
    with corral.Pool(make, SLOTS, backend=backend, workers=workers, seed=3) as pool:
        spec, config = pool.spec, PPOConfig(batch_size=ROWS, n_epochs=2, **NETS[kind])
        learner = PPO(spec.observation_space, spec.action_space, config, seed=1)
        policy = learner.policy.exact()
        collector = corral.Collector(pool, policy, act_in=act_in)
        found: list[Any] = []
        for _ in range(2):
            rollout = collector.collect(ROWS)
            learner.update(rollout)
            found += [rollout.action, *rollout.extras.values()]
            found += [array.copy() for array in policy.weights().values()]
        return found


@pytest.mark.parametrize("kind", NETS)
def test_learning_is_the_same_in_caller_and_workers(kind: str) -> None:
    """The copies have their weights elsewhere, and other numbers of rows."""
    caller = learned(kind, "caller", "serial", 1)
    there = learned(kind, "workers", "process" if kind == "gru" else "thread", 2)
    assert len(caller) == len(there)
    assert all(map(np.array_equal, caller, there))
