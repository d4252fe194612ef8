"""Seeds are made in one place, and what they are for has a name there."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

import corral
from corral.engine.worker import seeds
from corral.engine.worker.seeds import (
    EvaluationSeed,
    RunGenerator,
    SeedDomain,
    episode_seed,
)

NINE = range(9)
HOME = Path(corral.__file__).parent


def test_domains_keep_their_numbers() -> None:
    # Runs, saved faults and results of users were made with these.
    assert {one.name: int(one) for one in SeedDomain} == {
        "TASKS": 1,
        "WORKERS": 2**62 + 2,
        "RESTARTS": 3,
        "NUMBERED": 4,
        "RETRIES": 5,
        "COPIES": 6,
        "UNSEEDED": 2**62 + 7,
    }
    assert [int(one) for one in EvaluationSeed] == [1, 2, 3]
    found = {one.name: int(one) for one in RunGenerator}
    assert found == {"REPLAY": 1, "TASK_TABLE": 7}


def test_a_domain_is_hashed_as_its_number() -> None:
    assert episode_seed(7, 1, 0, SeedDomain.RESTARTS, 2) == episode_seed(7, 1, 0, 3, 2)


def test_workers_and_policies_draw_from_no_seed_of_an_episode() -> None:
    episodes = {episode_seed(0, slot, number) for slot in range(9) for number in NINE}
    tasks = {episode_seed(0, 0, number, SeedDomain.TASKS) for number in NINE}
    for domain in (SeedDomain.WORKERS, SeedDomain.UNSEEDED):
        assert not episodes & {episode_seed(0, slot, domain) for slot in range(9)}
    replaced = {episode_seed(0, 0, SeedDomain.WORKERS, number) for number in NINE}
    sites = {episode_seed(0, SeedDomain.WORKERS, number) for number in NINE}
    assert not (replaced | sites) & (episodes | tasks)


def test_a_workers_generator_is_no_episodes() -> None:
    def drawn(env: Any) -> float:
        return float(corral.this_worker().rng.random())

    with corral.Pool("CartPole-v1", 1, seed=0, backend="serial") as pool:
        (worker,) = pool.apply(drawn)
        seeds = [int(pool.reset().seed[0]) for _ in range(9)]
    assert worker not in [np.random.default_rng(seed).random() for seed in seeds]


def test_no_caller_of_episode_seed_has_a_number_of_its_own() -> None:
    bare = [
        f"{path.relative_to(HOME)}:{call.lineno}"
        for path in sorted(HOME.rglob("*.py"))
        if path != Path(seeds.__file__)
        for call in _calls(ast.parse(path.read_text()))
        if any(isinstance(one, ast.Constant) for one in call.args[1:])
    ]
    assert not bare, f"these belong to SeedDomain: {bare}"


def _calls(tree: ast.AST) -> Iterator[ast.Call]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and getattr(node.func, "id", "") == (
            "episode_seed"
        ):
            yield node
