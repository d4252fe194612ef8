"""Envs whose state is their process's, on Corral's drop-ins and on what they replace.

    python -m conformance.stateful          Gymnasium, Stable-Baselines3 and AgileRL,
                                            those that are installed

The replaced classes give every env a process of its own. Ours have to return the same
numbers, bit for bit, with 1, 2 and 8 workers asked for. Exits with 1 if they do not.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from typing import Any

import numpy as np

from corral.zoo.bullet_pendulum import BulletPendulum
from tests.stateful_envs import STATEFUL, Plain

SLOTS = 8
STEPS = 40
WORKERS = (1, 2, 8)
CLEAN = "forkserver"
"""How theirs are started: a fork would find what a first env has left in the parent."""
Rows = list[Any]


class DefaultClient(BulletPendulum):
    """The wheeled pendulum as many write it: no call says which simulator it is for."""

    metadata = {  # noqa: RUF012
        key: value
        for key, value in BulletPendulum.metadata.items()
        if key != "corral.isolation"
    }

    def connect(self) -> Any:
        return Nameless()


class Nameless:
    """PyBullet itself; a call without a client goes to the first one."""

    def __init__(self) -> None:
        import pybullet

        self._bullet = pybullet
        pybullet.connect(pybullet.DIRECT)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._bullet, name)

    def close(self) -> None:
        if self._bullet.isConnected():
            self._bullet.disconnect()


def kinds() -> list[Callable[[], Any]]:
    """The envs; a safe one among them, since that has to stay equal as well."""
    return [Plain, *STATEFUL, DefaultClient]


# The loops ----------------------------------------------------------------------------


def gymnasium_rows(envs: Any) -> Rows:
    envs.action_space.seed(3)
    rows: Rows = [envs.reset(seed=5)[0]]
    for _ in range(STEPS):
        rows += envs.step(envs.action_space.sample())[:4]
    envs.close()
    return rows


def sb3_rows(envs: Any) -> Rows:
    envs.seed(5)
    envs.action_space.seed(3)
    rows: Rows = [envs.reset()]
    for _ in range(STEPS):
        actions = np.array([envs.action_space.sample() for _ in range(SLOTS)])
        obs, rewards, dones, _ = envs.step(actions)
        # Theirs are of float64 here, and of float32 with DummyVecEnv, as ours are.
        rows += [obs, rewards.astype(np.float32), dones]
    envs.close()
    return rows


def agilerl_rows(envs: Any) -> Rows:
    generator = np.random.default_rng(3)
    rows: Rows = [*envs.reset(seed=5)[0].values()]
    for _ in range(STEPS):
        actions = {
            agent: generator.integers(0, 3, SLOTS) for agent in envs.possible_agents
        }
        for part in envs.step(actions)[:4]:
            rows += part.values()
    envs.close()
    return rows


# The classes --------------------------------------------------------------------------

Make = Callable[[Callable[[], Any], int | None], Any]


def gymnasium_classes() -> tuple[Make, Callable[[Any], Rows]]:
    from gymnasium.vector import AsyncVectorEnv

    from corral.dropin import AsyncVectorEnv as Ours

    def make(kind: Callable[[], Any], workers: int | None) -> Any:
        if workers is None:
            return AsyncVectorEnv([kind] * SLOTS, context=CLEAN)
        return Ours([kind] * SLOTS, max_concurrency=workers)

    return make, gymnasium_rows


def sb3_classes() -> tuple[Make, Callable[[Any], Rows]]:
    from stable_baselines3.common.vec_env import SubprocVecEnv

    from corral.dropin import SubprocVecEnv as Ours

    def make(kind: Callable[[], Any], workers: int | None) -> Any:
        if workers is None:
            return SubprocVecEnv([kind] * SLOTS, start_method=CLEAN)
        return Ours([kind] * SLOTS, workers=workers)

    return make, sb3_rows


def agilerl_classes() -> tuple[Make, Callable[[Any], Rows]]:
    from agilerl.vector import AsyncPettingZooVecEnv

    from corral.dropin import AsyncPettingZooVecEnv as Ours

    def make(kind: Callable[[], Any], workers: int | None) -> Any:
        factory = functools.partial(two_agents, kind)
        if workers is None:
            return AsyncPettingZooVecEnv([factory] * SLOTS, context=CLEAN)
        return Ours([factory] * SLOTS, workers=workers)

    return make, agilerl_rows


def two_agents(kind: Callable[[], Any]) -> Any:
    """The env as PettingZoo has them: both agents see it, the first one moves it."""
    from pettingzoo import ParallelEnv

    class TwoAgents(ParallelEnv):  # type: ignore[misc, type-arg]
        metadata = {"name": "two_agents"}  # noqa: RUF012
        possible_agents = ["a", "b"]  # noqa: RUF012

        def __init__(self) -> None:
            self.env = kind()
            self.render_mode = None

        def observation_space(self, agent: str) -> Any:
            return self.env.observation_space

        def action_space(self, agent: str) -> Any:
            return self.env.action_space

        def reset(self, seed: int | None = None, options: Any = None) -> Any:
            self.agents = list(self.possible_agents)
            obs, _ = self.env.reset(seed=seed)
            return {agent: obs for agent in self.agents}, {a: {} for a in self.agents}

        def step(self, actions: dict[str, Any]) -> Any:
            obs, reward, terminated, truncated, _ = self.env.step(actions["a"])
            agents = self.agents
            if terminated or truncated:
                self.agents = []
            values = (obs, float(reward), bool(terminated), bool(truncated))
            told = tuple({agent: value for agent in agents} for value in values)
            return *told, {agent: {} for agent in agents}

        def close(self) -> None:
            self.env.close()

    return TwoAgents()


PEERS = {
    "Gymnasium": ("gymnasium", gymnasium_classes),
    "Stable-Baselines3": ("stable_baselines3", sb3_classes),
    "AgileRL": ("agilerl", agilerl_classes),
}


# What came of it ----------------------------------------------------------------------


def compared(peer: str) -> Iterator[tuple[str, int, bool, str]]:
    """Env, workers, whether all rows were equal, and where ours ran."""
    make, rows_of = PEERS[peer][1]()
    for kind in kinds():
        if peer == "AgileRL" and kind is DefaultClient:
            continue  # its actions are no integers
        theirs = rows_of(make(kind, None))
        for workers in WORKERS:
            envs = make(kind, workers)
            layout = str(envs.layout)
            ours = rows_of(envs)
            equal = len(ours) == len(theirs) and all(
                np.array_equal(one, other, equal_nan=True)
                for one, other in zip(ours, theirs, strict=True)
            )
            yield kind.__name__, workers, equal, layout


def main() -> int:
    failures = 0
    for peer, (package, _) in PEERS.items():
        if find_spec(package) is None:
            print(f"{peer}: not installed")
            continue
        for name, workers, equal, layout in compared(peer):
            failures += not equal
            word = "equal" if equal else "DIFFERENT"
            print(f"{peer}, {name}, {workers} workers: {word}   {layout}", flush=True)
    print("all equal" if not failures else f"{failures} were not equal")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
