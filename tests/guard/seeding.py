"""The numbers that envs are seeded with, in the open: no hash, so that one can see."""

from __future__ import annotations

from typing import Any

import numpy as np

import corral
from tests.guard import envs
from tests.guard.faulty import RESTART
from tests.guard.leading import Plain

SERIAL = {"backend": "serial"}
PROCESS = {"backend": "process", "workers": 2, "isolation": "shared"}


def seeds() -> dict[str, Any]:
    """Where a seed comes from -> the seeds that envs were given."""
    return {
        "Pool(seed=7): slot -> episodes": _episodes(7),
        "Pool(seed=0): slot -> episodes": _episodes(0),
        "pool.reset(seed=8): slot -> episodes": _episodes(7, reset=8),
        "Pool(seed=7), after restarts: slot -> episodes": _restarted(),
        "run_episodes(seed=9): item -> seed": _items(9),
        "evaluate(seed=9): item -> seed": _evaluated(9),
        "Collector.end_episodes(4), seed=7: slot -> seed": _numbered(),
        "make.reset(seed=5): slot -> episodes": _made(),
        "make_multi.reset(seed=5): slot -> seed": _multi(),
        "make_shared_policy.reset(seed=5): env -> episodes": _shared(),
        "sample_task's rng, seed=7: slot -> draws": _tasks(),
        "run_episodes, sample_task's rng, seed=7: item -> draw": _item_tasks(),
        "policy's rng, episode seeds 3 and 4: row -> draws": _policy_draws(),
        "isolate_rng, seed=7: slot -> draws of random, numpy": _global_draws(),
        "this_worker().rng, seed=7: worker -> slots, draws": _worker_draws(),
    }


def _episodes(seed: int, reset: int | None = None) -> Any:
    with corral.Pool(envs.Walk, 3, seed=seed, **SERIAL) as pool:
        pool.reset() if reset is None else pool.reset(seed=reset)
        for _ in range(25):
            pool.step(np.zeros(3, int))
        return [given[:4] for given in pool.get_attr("seeds")]


def _restarted() -> Any:
    seen: dict[int, list[int]] = {0: [], 1: []}
    with corral.Pool(envs.Fragile, 2, seed=7, **RESTART, **PROCESS) as pool:
        step = pool.reset()
        for time in range(12):
            for slot in range(2):
                if step.started[slot]:
                    seen[slot].append(int(step.seed[slot]))
            step = pool.step(np.array([8 if time in (2, 3, 4) else 1, 1]))
    return [seen[0][:6], seen[1][:3]]


def _items(seed: int) -> Any:
    with corral.Pool(envs.Walk, 2, seed=1, **SERIAL) as pool:
        return [
            one.seed
            for one in corral.run_episodes(pool, Plain(), episodes=5, seed=seed)
        ]


def _evaluated(seed: int) -> Any:
    return list(corral.evaluate(Plain(), envs.Walk, 5, seed=seed, **SERIAL).seeds)


def _numbered() -> Any:
    with corral.Pool(envs.Walk, 3, seed=7, **SERIAL) as pool:
        collector = corral.Collector(pool, Plain())
        collector.collect(3, end_episodes=4)
        collector.collect(1)
        return [given[-1] for given in pool.get_attr("seeds")]


def _made() -> Any:
    made = corral.make(envs.Walk, 3, **SERIAL)
    made.reset(seed=5)
    for _ in range(12):
        made.step(np.zeros(3, int))
    given = [list(one)[:3] for one in made.get_attr("seeds")]
    made.close()
    return given


def _multi() -> Any:
    made = corral.make_multi(envs.Crowd, 3, **SERIAL)
    made.reset(seed=5)
    given = list(made.pool.get_attr("seed"))
    for _ in range(8):
        zeros = {agent: np.zeros(3, int) for agent in envs.EYES}
        made.step({**zeros, "hand_0": np.zeros((3, 2), np.float32)})
    later = list(made.pool.get_attr("seed"))
    made.close()
    return [given, later]


def _shared() -> Any:
    made = corral.make_shared_policy(envs.Pair, 2, **SERIAL)
    found = []
    made.reset(seed=5)
    for _ in range(9):
        found.append(list(made.get_attr("seed")))
        made.step(np.zeros(4, int))
    made.close()
    return [found[0], found[-1]]


def _draw(slot: int, episode: int, rng: Any) -> int:
    return int(rng.integers(2**40))


class _Told(envs.Walk):
    """Keeps its tasks; they say nothing about how long it goes on."""

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        self.tasks = [*getattr(self, "tasks", []), (options or {}).get("task")]
        return super().reset(seed=seed, options=None)


def _tasks() -> Any:
    with corral.Pool(_Told, 2, seed=7, sample_task=_draw, **SERIAL) as pool:
        pool.reset()
        for _ in range(15):
            pool.step(np.zeros(2, int))
        return [given[:3] for given in pool.get_attr("tasks")]


def _item_tasks() -> Any:
    with corral.Pool(_Told, 2, seed=7, sample_task=_draw, **SERIAL) as pool:
        return [
            one.task for one in corral.run_episodes(pool, Plain(), episodes=4, seed=7)
        ]


class _Drawing:
    """Writes down what its generators gave."""

    def __init__(self) -> None:
        self.draws: list[Any] = []

    def act(self, step: Any, carry: Any, rng: Any) -> corral.Decision:
        both = [rng.random(2).tolist(), np.round(rng.normal(1), 9).tolist()]
        own = [int(rng[row].integers(2**40)) for row in range(len(step))]
        self.draws.append([*both, own])
        return corral.Decision(np.zeros(len(step), np.int64))


def _policy_draws() -> Any:
    policy = _Drawing()
    with corral.Pool(envs.Walk, 1, seed=1, **SERIAL) as pool:
        corral.run_episodes(pool, policy, seeds=[3, 4])
    return policy.draws[:5]


def _global_draws() -> Any:
    with corral.Pool(envs.Dice, 2, seed=7, isolate_rng=True, **SERIAL) as pool:
        pool.reset()
        step = pool.step(np.zeros(2, int))
        return [list(step.infos.of(slot).values()) for slot in range(2)]


def _worker_draws() -> Any:
    with corral.Pool(envs.Counted, 3, seed=7, **PROCESS) as pool:
        pool.reset()
        step = pool.step(np.zeros(3, int))
        return [step.infos.of(slot)["drawn"] for slot in range(3)]
