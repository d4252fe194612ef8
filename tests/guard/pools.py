"""Pools over every kind of env and space, in every autoreset mode."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np

import corral
from tests.guard import envs
from tests.guard.case import (
    EXECUTORS,
    MODES,
    PROCESS,
    SERIAL,
    THREE,
    TWO,
    Case,
    Played,
)
from tests.guard.digest import Digest

SLOTS, STEPS = 5, 20


# Actions ------------------------------------------------------------------------------


def discrete(slots: Any, step: int) -> Any:
    return (np.asarray(slots) * 3 + step * 7) % 4


def rooms(slots: Any, step: int) -> Any:
    push = np.stack([discrete(slots, step) / 8, discrete(slots, step + 1) / 4], axis=1)
    return ({"push": push.astype(np.float32)}, discrete(slots, step))


def letters(slots: Any, step: int) -> Any:
    return tuple("x" * int(n) for n in discrete(slots, step))


def wide(slots: Any, step: int) -> Any:
    """As float64, which a float32 space hands on as they are."""
    return (discrete(slots, step) / 3 + 0.1)[:, None]


KINDS: dict[str, tuple[Any, Any, dict[str, Any]]] = {
    "walk": (envs.Walk, discrete, {}),
    "rooms": (envs.Rooms, rooms, {}),
    "letters": (envs.Letters, letters, {}),
    "steered": (envs.Steered, wide, {}),
    "batched": (envs.Fleet, discrete, {"batched": True}),
}


# Rows ---------------------------------------------------------------------------------


def note(digest: Digest, step: Any) -> None:
    """Everything that a Step says, except times."""
    digest.add(
        slots=step.slots,
        obs=step.obs,
        reward=step.reward,
        terminated=step.terminated,
        truncated=step.truncated,
        started=step.started,
        valid=step.valid,
        episode_return=step.episode_return,
        episode_length=step.episode_length,
        seed=step.seed,
        infos=[step.infos.of(place) for place in range(len(step))],
        vector_infos=step.infos.to_vector(len(step)),
        final_infos=dict(step.final_infos),
        final_obs=finals(step),
    )


def finals(step: Any) -> list[Any]:
    """The last observations, where episodes ended; the rest of the array is free."""
    return [row_of(step.final_obs, place) for place in np.flatnonzero(step.ended)]


def row_of(batch: Any, place: int) -> Any:
    if isinstance(batch, dict):
        return {key: row_of(part, place) for key, part in batch.items()}
    if isinstance(batch, tuple) and len(batch) and not isinstance(batch[0], str):
        parts = [row_of(part, place) for part in batch if isinstance(part, np.ndarray)]
        return tuple(parts) if len(parts) == len(batch) else batch[place]
    return batch[place]


def drive(pool: Any, actions: Any, mode: str | None = None) -> dict[str, str]:
    """Steps of all slots; with "off" what ended is reset, as a caller would."""
    digest = Digest()
    note(digest, pool.reset(seed=11))
    for step in range(STEPS):
        if mode is None:
            result = pool.step(actions(range(SLOTS), step))
        else:
            pool.send(actions(range(SLOTS), step), autoreset=mode)
            result = pool.recv()
        note(digest, result)
        if mode == "off" and result.ended.any():
            note(digest, pool.reset(slots=np.flatnonzero(result.ended)))
    return digest.result()


def kind(name: str, options: dict[str, Any]) -> Played:
    env, actions, own = KINDS[name]
    with corral.Pool(env, SLOTS, seed=3, **own, **options) as pool:
        return {mode: drive(pool, actions, mode) for mode in MODES}


def constructed(name: str, options: dict[str, Any]) -> Played:
    """The mode said once, to the constructor."""
    env, actions, own = KINDS[name]
    played = {}
    for mode in MODES:
        with corral.Pool(env, SLOTS, seed=3, autoreset=mode, **own, **options) as pool:
            played[mode] = drive(pool, actions, mode if mode == "off" else None)
    return played


# Other ways to use one ----------------------------------------------------------------


def first_ready(options: dict[str, Any]) -> Played:
    """The first two that are ready; what a slot saw does not depend on the order."""
    rows: dict[int, Digest] = {slot: Digest() for slot in range(SLOTS)}
    counts = dict.fromkeys(range(SLOTS), 0)
    with corral.Pool(envs.Walk, SLOTS, seed=4, **options) as pool:
        pool.send_reset()
        while running := [slot for slot in range(SLOTS) if counts[slot] < STEPS]:
            step = pool.recv(min_slots=min(2, len(running)))
            for place, slot in enumerate(step.slots.tolist()):
                rows[slot].add(
                    obs=step.obs[place],
                    reward=step.reward[place],
                    flags=(step.ended[place], step.started[place], step.valid[place]),
                    seed=step.seed[place],
                    info=step.infos.of(place),
                )
                counts[slot] += 1
            going = [slot for slot in step.slots.tolist() if counts[slot] < STEPS]
            if going:
                times = [counts[slot] for slot in going]
                given = [
                    int(discrete([slot], time)[0])
                    for slot, time in zip(going, times, strict=True)
                ]
                pool.send(np.array(given), slots=going)
    return {f"slot {slot}": digest.result() for slot, digest in rows.items()}


def views(options: dict[str, Any]) -> Played:
    """Without copies; each is read before it is written over."""
    with corral.Pool(envs.Walk, SLOTS, seed=3, copy=False, **options) as pool:
        return {"same_step": drive(pool, discrete)}


def fewer_infos(options: dict[str, Any]) -> Played:
    played = {}
    for chosen in ("final", "none", ["place", "words"]):
        with corral.Pool(envs.Walk, SLOTS, seed=3, infos=chosen, **options) as pool:
            played[str(chosen)] = drive(pool, discrete)
    return played


def tasks_and_seeds(options: dict[str, Any]) -> Played:
    """Tasks given, assigned and drawn; seeds given; slots reset by themselves."""
    digest = Digest()
    with corral.Pool(envs.Walk, 3, seed=5, **options) as pool:
        note(digest, pool.reset(tasks=[3, 4, 5], seeds=[1, None, 2**40]))
        pool.assign(1, 2)
        for step in range(6):
            note(digest, pool.step(discrete(range(3), step)))
        note(digest, pool.reset(slots=[2], seeds=[9]))
        digest.add(call=pool.call("add", 5, twice=True), attr=pool.get_attr("time"))
        pool.set_attr("place", 100, slots=[0])
        digest.add(applied=pool.apply(_place), some=pool.call("add", 1, slots=[0, 2]))
        note(digest, pool.step(discrete(range(3), 7)))
    drawn = Digest()
    with corral.Pool(envs.Walk, 3, seed=5, sample_task=_drawn, **options) as pool:
        note(drawn, pool.reset())
        for step in range(9):
            note(drawn, pool.step(discrete(range(3), step)))
    return {"given": digest.result(), "drawn": drawn.result()}


def _place(env: Any) -> int:
    return int(env.unwrapped.place)


def _drawn(slot: int, episode: int, rng: Any) -> int:
    return int(rng.integers(1, 6)) + slot + episode % 2


def per_worker(options: dict[str, Any]) -> Played:
    """What workers are given: arrays, a resource, kwargs and wrappers."""
    digest = Digest()
    with corral.Pool(
        _Given,
        SLOTS,
        seed=6,
        env_kwargs={"added": 2},
        wrappers=[_Doubled],
        per_worker=_resource,
        shared={"table": np.arange(10.0)},
        **options,
    ) as pool:
        note(digest, pool.reset())
        for step in range(8):
            note(digest, pool.step(discrete(range(SLOTS), step)))
    return {"all": digest.result()}


def _resource() -> dict[str, int]:
    return {"scale": 3}


class _Given(envs.Walk):
    def __init__(self, added: int) -> None:
        super().__init__()
        self.added = added

    def told(self) -> dict[str, Any]:
        worker = corral.this_worker()
        entry = float(worker.shared["table"][self.time % 10])
        return {"given": entry * worker.resource["scale"] + self.added}


class _Doubled(envs.gymnasium.RewardWrapper):
    def reward(self, reward: Any) -> Any:
        return 2 * reward


def turns(options: dict[str, Any]) -> Played:
    """Two groups in turns; rows by slot, since the groups depend on the workers."""
    rows: dict[int, Digest] = {slot: Digest() for slot in range(SLOTS)}
    counts = dict.fromkeys(range(SLOTS), 0)
    with corral.Pool(envs.Walk, SLOTS, seed=3, **options) as pool:
        pool.send_reset()
        for step in corral.take_turns(pool):
            for place, slot in enumerate(step.slots.tolist()):
                if counts[slot] < 10:
                    rows[slot].add(obs=step.obs[place], reward=step.reward[place])
                counts[slot] += 1
            if min(counts.values()) == 10:
                break
            times = np.array([counts[slot] for slot in step.slots.tolist()])
            pool.send((step.slots * 3 + times * 7) % 4, slots=step.slots)
    return {f"slot {slot}": digest.result() for slot, digest in rows.items()}


CASES = {
    **{f"pool/{name}": Case(functools.partial(kind, name)) for name in KINDS},
    "pool/walk": Case(functools.partial(kind, "walk"), tuple(EXECUTORS)),
    **{
        f"pool/{name}, mode of the constructor": Case(
            functools.partial(constructed, name), SERIAL
        )
        for name in KINDS
    },
    "pool/first ready": Case(first_ready),
    "pool/views": Case(views, TWO),
    "pool/fewer infos": Case(fewer_infos, SERIAL),
    "pool/tasks and seeds": Case(tasks_and_seeds, TWO),
    "pool/given to workers": Case(per_worker, THREE),
    "pool/two groups": Case(turns, PROCESS),
}
