"""A policy leads a pool: rollouts, episodes, evaluations, trajectories; and `map`."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np

import corral
from tests.guard import envs
from tests.guard.case import PROCESS, SERIAL, THREE, TWO, Case, Played
from tests.guard.digest import Digest
from tests.guard.pools import discrete


class Drawing:
    """Draws some actions, remembers how old its episode is, and expects the place."""

    def initial_carry(self, rows: int) -> Any:
        return {"age": np.zeros(rows, np.int64)}

    def act(self, step: Any, carry: Any, rng: Any) -> corral.Decision:
        age = carry["age"] + 1
        draws = rng.random(2)
        drawn = (draws[:, 1] * 4).astype(np.int64)
        own = np.array([rng[row].integers(4) for row in range(len(step))])
        seen = np.rint(np.asarray(step.obs)[:, 0]).astype(np.int64)
        previous = np.asarray(step.previous_action).astype(np.int64)
        action = np.where(draws[:, 0] < 0.5, drawn, (own + seen + previous) % 4)
        extras = {"value": self.value(step.obs, carry), "age": age, "own": own}
        return corral.Decision(action, {"age": age}, extras)

    def value(self, obs: Any, carry: Any) -> Any:
        return np.asarray(obs)[:, 0] / 4 + carry["age"]


class Plain:
    """Remembers nothing."""

    def act(self, step: Any, carry: Any, rng: Any) -> corral.Decision:
        normal = (np.abs(rng.normal(1)[:, 0]) * 64).astype(np.int64)
        seen = np.rint(np.asarray(step.obs)[:, 0]).astype(np.int64)
        return corral.Decision((normal + seen) % 4)


def note_rollout(digest: Digest, rollout: Any) -> None:
    for name in ("obs", "action", "reward", "terminated", "truncated", "started"):
        digest.add(**{name: getattr(rollout, name)})
    for name in ("valid", "extras", "final_obs", "next_obs", "next_started"):
        digest.add(**{name: getattr(rollout, name)})
    for name in ("first_carry", "next_carry", "bootstrap", "next_value"):
        digest.add(**{name: getattr(rollout, name)})
    for episode in sorted(rollout.episodes, key=lambda one: (one.slot, one.seed)):
        digest.add(
            episodes=(episode.slot, episode.return_, episode.length, episode.seed),
            episode_infos=episode.info,
        )


def collected(mode: str, options: dict[str, Any]) -> Played:
    digest = Digest()
    with corral.Pool(envs.Walk, 4, seed=51, **options) as pool:
        for _ in range(2):
            rollout = corral.collect(pool, Drawing(), 12, mode=mode)
            note_rollout(digest, rollout)
    return {"all": digest.result()}


def collector(options: dict[str, Any]) -> Played:
    """Scales, ends for a checkpoint, and the same again from a saved state."""
    played = {}
    for autoreset in ("same_step", "next_step"):
        digest = Digest()
        saved = _collect_scaled(digest, autoreset, options, None)
        _collect_scaled(digest, autoreset, options, saved)
        played[autoreset] = digest.result()
    return played


def _collect_scaled(digest: Digest, autoreset: str, options: Any, saved: Any) -> Any:
    with corral.Pool(envs.Walk, 4, seed=52, autoreset=autoreset, **options) as pool:
        made = corral.Collector(
            pool,
            Drawing(),
            obs_norm=corral.ObsNorm(pool.spec.observation_space),
            reward_norm=corral.RewardNorm(gamma=0.5),
        )
        if saved is not None:
            made.load_state_dict(saved)
            made.end_episodes(3)
        note_rollout(digest, made.collect(8))
        note_rollout(digest, made.collect(8, end_episodes=3))
        state: Any = made.state_dict()
        digest.add(state=state)
        return state


def episodes(options: dict[str, Any]) -> Played:
    played = {}
    asked: dict[str, dict[str, Any]] = {
        "counted": {"episodes": 9},
        "seeded": {"seeds": [5, 6, 2**40]},
        "tasks": {"tasks": [2, 3, 4, 5], "seed": 9, "max_length": 3},
        "no rows": {"episodes": 5, "rows": False},
    }
    with corral.Pool(envs.Walk, 3, seed=53, **options) as pool:
        for name, wanted in asked.items():
            digest = Digest()
            for one in corral.run_episodes(pool, Drawing(), **wanted):
                note_episode(digest, one)
            played[name] = digest.result()
    return played


def note_episode(digest: Digest, one: Any) -> None:
    for name in ("item", "seed", "return_", "length", "terminated", "truncated"):
        digest.add(**{name: getattr(one, name)})
    for name in ("info", "obs", "action", "reward", "extras", "final_obs", "failed"):
        digest.add(**{name: getattr(one, name)})
    digest.add(faults=list(one.faults))


def evaluated(options: dict[str, Any]) -> Played:
    digest = Digest()
    result = corral.evaluate(Plain(), envs.Walk, 11, seed=54, num_envs=4, **options)
    for name in ("returns", "lengths", "seeds", "infos", "failed"):
        digest.add(**{name: getattr(result, name)})
    return {"all": digest.result()}


def trajectories(options: dict[str, Any]) -> Played:
    played = {}
    for length in (5, None):
        fragments: dict[int, list[Any]] = {slot: [] for slot in range(3)}
        with corral.Pool(envs.Walk, 3, seed=55, **options) as pool:
            kept = corral.Trajectories(pool, length)
            step = pool.reset()
            for time in range(16):
                for one in kept.received(step):
                    fragments[one.slot].append(one)
                action = discrete(step.slots, time)
                pool.send(action)
                kept.sent(action, value=step.obs[:, 0])
                step = pool.recv()
        digest = Digest()
        for one in [one for slot in range(3) for one in fragments[slot]]:
            digest.add(obs=one.obs, action=one.action, reward=one.reward)
            digest.add(ends=(one.terminated, one.truncated), started=one.started)
            digest.add(valid=one.valid, final_obs=one.final_obs, extras=one.extras)
            digest.add(next_obs=one.next_obs)
        played[f"length {length}"] = digest.result()
    return played


def mapped(options: dict[str, Any]) -> Played:
    options.pop("isolation")
    digest = Digest()
    digest.add(results=list(corral.map(_square, range(7), **options)))
    given = {"per_worker": _table, "shared": {"row": np.arange(4.0)}}
    digest.add(given=list(corral.map(_looked_up, [1, 2, 3], **given, **options)))
    return {"all": digest.result()}


def _square(item: int) -> int:
    return item * item


def _table() -> dict[str, int]:
    return {"scale": 3}


def _looked_up(item: int) -> float:
    worker = corral.this_worker()
    return float(worker.resource["scale"] * worker.shared["row"][item])


def batched(options: dict[str, Any]) -> Played:
    digest, again = Digest(), Digest()
    with corral.Pool(envs.Fleet, 4, batched=True, seed=56, **options) as pool:
        note_rollout(digest, corral.collect(pool, Drawing(), 9))
        for one in corral.run_episodes(pool, Drawing(), episodes=6):
            note_episode(again, one)
    return {"collect": digest.result(), "run_episodes": again.result()}


CASES = {
    "collect/sync": Case(functools.partial(collected, "sync")),
    "collect/two_groups": Case(functools.partial(collected, "two_groups"), TWO),
    "collect/first_ready": Case(functools.partial(collected, "first_ready"), PROCESS),
    "Collector": Case(collector, SERIAL),
    "collect/batched": Case(batched, TWO),
    "run_episodes": Case(episodes, THREE),
    "evaluate": Case(evaluated, TWO),
    "Trajectories": Case(trajectories, SERIAL),
    "map": Case(mapped, THREE),
}
