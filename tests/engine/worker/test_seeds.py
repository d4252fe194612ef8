"""Seeds are made in one place, and what they are for has a name there."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import corral
from corral.engine.worker import seeds
from corral.engine.worker.seeds import (
    EvaluationSeed,
    RunGenerator,
    SeedDomain,
    episode_seed,
)

HOME = Path(corral.__file__).parent


def test_domains_keep_their_numbers() -> None:
    # Runs, saved faults and results of users were made with these.
    assert {one.name: int(one) for one in SeedDomain} == {
        "TASKS": 1,
        "WORKERS": 2,
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


def test_policies_without_seeds_draw_from_no_seed_of_an_episode() -> None:
    numbers = range(9)
    episodes = {episode_seed(0, slot, number) for slot in numbers for number in numbers}
    assert not episodes & {episode_seed(0, one, SeedDomain.UNSEEDED) for one in numbers}


def test_no_caller_of_episode_seed_has_a_number_of_its_own() -> None:
    bare = [
        f"{path.relative_to(HOME)}:{call.lineno}"
        for path in sorted(HOME.rglob("*.py"))
        if path != Path(seeds.__file__) and "episode_seed" in (text := path.read_text())
        for call in _calls(ast.parse(text))
        if any(isinstance(one, ast.Constant) for one in call.args[1:])
    ]
    assert not bare, f"these belong to SeedDomain: {bare}"


def _calls(tree: ast.AST) -> Iterator[ast.Call]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and getattr(node.func, "id", "") == (
            "episode_seed"
        ):
            yield node
