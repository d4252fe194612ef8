"""Envs that raise and workers that die, restarted: the rows that say so."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np

import corral
import corral.testing
from tests.guard import envs
from tests.guard.case import Case, Played
from tests.guard.digest import Digest
from tests.guard.leading import Drawing, note_episode, note_rollout
from tests.guard.pools import discrete, note

RESTART = {"on_fault": "restart", "restarts_per_minute": 100}
PROCESSES = ("process",)
OWN = ("own processes",)


def faulty(slots: Any, step: int) -> Any:
    """Now and then one raises, or takes its process down."""
    actions = discrete(slots, step)
    if step in (2, 9):
        actions[1] = 8
    if step == 5:
        actions[2] = 9
    return actions


def raised_only(slots: Any, step: int) -> Any:
    return np.where(faulty(slots, step) == 9, 1, faulty(slots, step))


def pool(mode: str, actions: Any, options: dict[str, Any]) -> Played:
    digest = Digest()
    with corral.Pool(
        envs.Fragile, 3, seed=61, autoreset=mode, **RESTART, **options
    ) as made:
        note(digest, made.reset())
        for step in range(14):
            result = made.step(actions(range(3), step))
            note(digest, result)
            if mode == "off" and result.ended.any():
                note(digest, made.reset(slots=np.flatnonzero(result.ended)))
        digest.add(faults=[fault for fault in made.faults])
    return {mode: digest.result()}


def shardmates(options: dict[str, Any]) -> Played:
    """Slot 0 takes down the one worker that all three are in."""
    digest = Digest()
    with corral.Pool(envs.Fragile, 3, seed=62, **RESTART, **options) as made:
        note(digest, made.reset())
        for step in range(8):
            actions = discrete(range(3), step)
            actions[0] = 9 if step == 3 else actions[0]
            note(digest, made.step(actions))
    return {"all": digest.result()}


def vector_env(options: dict[str, Any]) -> Played:
    digest = Digest()
    made = corral.make(envs.Fragile, 3, **RESTART, **options)
    made.reset(seed=63)
    for step in range(12):
        obs, reward, terminated, truncated, infos = made.step(faulty(range(3), step))
        digest.add(obs=obs, reward=reward, terminated=terminated, truncated=truncated)
        digest.add(infos=infos, valid=made.valid, started=made.started)
    made.close()
    return {"next_step": digest.result()}


def rollouts(options: dict[str, Any]) -> Played:
    """Collected, and as whole episodes that are run again, up to a limit."""
    rows, whole = Digest(), Digest()
    with corral.Pool(envs.Unlucky, 3, seed=64, **RESTART, **options) as made:
        rollout = corral.collect(made, Drawing(), 8)
        note_rollout(rows, rollout)
        rows.add(faults=sorted((one.slot, one.seed) for one in rollout.faults))
        for one in corral.run_episodes(made, Drawing(), episodes=4, max_restarts=1):
            note_episode(whole, one)
    return {"collect": rows.result(), "run_episodes": whole.result()}


def reported(options: dict[str, Any]) -> Played:
    """Not restarted: the error, its fault, and the rows of the others."""
    digest = Digest()
    with corral.Pool(envs.Fragile, 3, seed=66, **options) as made:
        made.reset()
        made.step(discrete(range(3), 0))
        try:
            made.step(np.array([1, 8, 2]))
        except corral.errors.EnvError as error:
            digest.add(fault=error.fault, faults=list(error.faults))
            note(digest, error.step)
        note(digest, made.reset(slots=[1]))
        note(digest, made.step(discrete(range(3), 1)))
    return {"all": digest.result()}


def mapped(options: dict[str, Any]) -> Played:
    options.pop("isolation")
    digest = Digest()
    kept = {"on_fault": "restart", "max_restarts": 1}
    results = corral.map(_at_times, range(5), **kept, **options)
    for one in results:
        stable = isinstance(one, corral.errors.Fault)
        digest.add(results=(one.item, one.error_type, one.kind) if stable else one)
    return {"all": digest.result()}


def _at_times(item: int) -> int:
    if item == 3:
        raise ArithmeticError("not this one")
    return item * item


def known(options: dict[str, Any]) -> Played:
    """The public envs for tests, with answers that can be worked out."""
    digest = Digest()
    doomed = functools.partial(corral.testing.Crashing, "raise", after=5)
    slots = [corral.testing.KnownAnswers, doomed]
    with corral.Pool(slots, seed=67, **RESTART, **options) as made:
        note(digest, made.reset())
        for step in range(12):
            note(digest, made.step(np.array([step % 8, step * 3 % 8])))
    return {"all": digest.result()}


CASES = {
    **{
        f"faults/{mode}": Case(functools.partial(pool, mode, faulty), OWN)
        for mode in ("same_step", "next_step", "off")
    },
    "faults/raised": Case(
        functools.partial(pool, "same_step", raised_only), ("process of 1",)
    ),
    "faults/shardmates": Case(shardmates, ("process of 1",)),
    "faults/make": Case(vector_env, OWN),
    "faults/rollouts": Case(rollouts, PROCESSES),
    "faults/reported": Case(reported, ("serial", "thread", "process")),
    "faults/map": Case(mapped, PROCESSES),
    "faults/known answers": Case(known, PROCESSES),
}
