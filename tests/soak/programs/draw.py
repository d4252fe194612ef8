"""Programs are drawn: which traits, APIs, executors and options go together."""

from __future__ import annotations

import random
from dataclasses import replace
from importlib.util import find_spec

from tests.soak.programs.infos import STYLES
from tests.soak.programs.kinds import (
    DEADLY,
    FORKS,
    HANGING,
    RAISING,
    REPLACEMENTS,
    SHARED_STATES,
    Kind,
    some_of,
)
from tests.soak.programs.program import Program
from tests.soak.programs.shapes import FIXED, MAILED, SB3_ACTIONS, SB3_OBS

APIS = {
    "pool": 6,
    "make": 5,
    "AsyncVectorEnv": 5,
    "SyncVectorEnv": 3,
    "make_async": 3,
    "make_sb3": 3,
    "SubprocVecEnv": 4,
    "DummyVecEnv": 2,
    "batched": 3,
    "make_multi": 3,
    "turns": 2,
    "shared policy": 2,
    "collect": 3,
    "run_episodes": 2,
    "evaluate": 1,
    "map": 2,
}
"""APIs, with how often each is drawn."""
if find_spec("agilerl") is not None:
    APIS["AsyncPettingZooVecEnv"] = 2
ALWAYS_PROCESSES = ("AsyncVectorEnv", "SubprocVecEnv", "AsyncPettingZooVecEnv")
ALWAYS_HERE = ("SyncVectorEnv", "DummyVecEnv")
SB3 = ("make_sb3", "SubprocVecEnv", "DummyVecEnv")
GYMNASIUM = ("make", "AsyncVectorEnv", "SyncVectorEnv")
TEAMS = ("make_multi", "turns", "shared policy", "AsyncPettingZooVecEnv")
NEED_SB3 = (*SB3, "shared policy")
if find_spec("stable_baselines3") is None:
    APIS = {name: often for name, often in APIS.items() if name not in NEED_SB3}
WHOLE_EPISODES = ("run_episodes", "evaluate")
"""Whose episodes go to whichever slot is free: none may know of those before it."""
ROLLOUTS = ("collect", "run_episodes", "evaluate")
CALM = ("batched", "map", *TEAMS)
"""APIs whose environments are their own, without the traits of most."""
POOLS = ("pool", "make_async")
BACKENDS = {"serial": 5, "thread": 4, "process": 7, "auto": 3}


def draw(seed: int, apis: dict[str, int] | None = None) -> Program:
    """The program of a seed."""
    rng = random.Random(seed)
    chosen = APIS if apis is None else apis
    (api,) = rng.choices(list(chosen), list(chosen.values()))
    kind = _special(rng, api, _plain(rng, api))
    program = Program(
        seed=seed,
        api=api,
        kind=kind,
        slots=rng.randint(1, 6),
        autoreset=rng.choice(("same_step", "next_step", "off")),
        steps=rng.randint(5, 40),
        style=rng.choice(("all", "some", "first", "named")),
        copy=rng.random() < 0.7,
    )
    return _placed(rng, _with_options(rng, program))


def _plain(rng: random.Random, api: str) -> Kind:
    """A kind that may run anywhere."""
    observations, actions = (*FIXED, *MAILED), (*FIXED, *MAILED)
    if api in SB3:
        observations, actions = SB3_OBS, SB3_ACTIONS
    if api in ROLLOUTS:
        observations, actions = tuple(FIXED), tuple(FIXED)
    if api == "batched":  # Gymnasium cannot put empty Dicts together
        full = tuple(name for name in FIXED if name != "nested")
        observations, actions = full, full
    infos = tuple(STYLES)
    if api == "batched":
        infos = ("scalars", "arrays")
    return Kind(
        obs=some_of(rng, "vector", observations),
        action=some_of(rng, "choice", actions),
        infos=some_of(rng, "none", infos),
        mean_length=rng.choice((1, 2, 4, 8, 20)),
        reuses_buffer=rng.random() < 0.25,
        waits=0.003 if rng.random() < 0.1 else 0.0,
        wrapped=rng.random() < 0.25,
        numbers=rng.choice(("python", "numpy")),
    )


def _special(rng: random.Random, api: str, kind: Kind) -> Kind:
    """One trait that asks more of whoever runs it, half of the time."""
    trait = rng.choice(("", "", "", "state", "forks", "replaces", "fault"))
    if api in CALM or (api in ROLLOUTS and trait == "fault"):
        return kind
    if api in WHOLE_EPISODES and trait in ("state", "replaces"):
        return replace(kind, replaces="step by reset")
    if trait == "state":
        return replace(kind, state=rng.choice((*SHARED_STATES, "drawn")))
    if trait == "forks":
        return replace(kind, forks=rng.choice(FORKS), reaps=rng.random() < 0.25)
    if trait == "replaces":
        return replace(kind, replaces=rng.choice(REPLACEMENTS))
    if trait == "fault":
        return _faulty(rng, kind)
    return kind


def _faulty(rng: random.Random, kind: Kind) -> Kind:
    (sort,) = rng.choices((RAISING, DEADLY, (HANGING,)), (6, 3, 0.5))
    fault = rng.choice(sort)
    if fault in ("four", "shape", "no number"):
        kind = replace(kind, obs="vector")
    moment = "step"
    if fault in ("raise", "unpicklable", "exit"):
        moment = rng.choice(("construct", "reset", "step", "step", "close"))
    return replace(kind, fault=fault, moment=moment, rarity=rng.choice((5, 15)))


def _with_options(rng: random.Random, program: Program) -> Program:
    kind, api = program.kind, program.api
    changes: dict[str, object] = {}
    if kind.state == "drawn" or (kind.is_plain and rng.random() < 0.05):
        changes["isolate_rng"] = api not in CALM
    if rng.random() < 0.2 and api not in CALM:
        some = "whole,marks,word,a,sometimes"
        changes["infos"] = rng.choice(("final", "none", some))
    if api in ("pool", "make_async", "collect") and rng.random() < 0.25:
        changes["samples_tasks"] = True
    if api in (*SB3, "shared policy", "AsyncPettingZooVecEnv", *ROLLOUTS, "batched"):
        changes["autoreset"] = "same_step"
    if api == "collect" and rng.random() < 0.4:
        changes["autoreset"] = "next_step"
    if kind.moment == "step" and kind.fault != "none" and rng.random() < 0.5:
        changes["on_fault"] = "restart"
    return replace(program, **changes)  # type: ignore[arg-type]


def _placed(rng: random.Random, program: Program) -> Program:
    """Where it runs: wherever its kind is safe."""
    kind, api = program.kind, program.api
    (backend,) = rng.choices(list(BACKENDS), list(BACKENDS.values()))
    if api in ALWAYS_HERE:
        return _here(program)
    alone = kind.dies or program.on_fault == "restart"
    if api in ALWAYS_PROCESSES or alone or not kind.is_plain:
        backend = "process"
    if kind.state not in ("own", "drawn") and rng.random() < 0.3:
        backend = "auto" if api not in ALWAYS_PROCESSES else "process"
    program = replace(program, backend=backend)
    if kind.dies:
        return replace(program, isolation="slot", slots=min(program.slots, 3))
    # Envs that share state and a number of workers are refused, but by the drop-ins.
    may_share = kind.state in ("own", "drawn") or api in ALWAYS_PROCESSES
    if backend in ("thread", "process") and may_share and rng.random() < 0.6:
        return replace(program, workers=rng.randint(1, program.slots))
    if backend == "process" and rng.random() < 0.2 and program.slots <= 3:
        return replace(program, isolation="slot")
    if kind.is_plain and backend == "process" and rng.random() < 0.15:
        return replace(program, isolation="shared")
    return program


def _here(program: Program) -> Program:
    """In the caller: without what would end or fork it."""
    kind = program.kind
    if kind.dies or kind.forks != "never":
        kind = replace(kind, fault="none", forks="never")
    return replace(program, kind=kind, backend="serial", on_fault="raise")
