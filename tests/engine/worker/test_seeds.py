"""Seeds are made in one place, and what they are for has a name there."""

from __future__ import annotations

import ast
import inspect
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

import corral
from corral.engine.worker import seeds
from corral.engine.worker.seeds import (
    EvaluationSeed,
    GlobalGenerator,
    RunGenerator,
    SeedDomain,
    acting_seeds,
    agent_seed,
    collection_root,
    copy_seed,
    disturbance_seed,
    episode_generators_seed,
    episode_seed,
    evaluation_root,
    generator_seeds,
    item_seed,
    noise_seed,
    route_order,
    run_generator,
    sampler_seed,
    slot_generators_seed,
    trial_rng,
    worker_globals_seed,
)

HOME = Path(corral.__file__).parent

# Calls that take no domain: of a slot's episode, of no seed at all (the numbers of the
# env with known answers, the chance of a failure, a large number).
PLAIN = {
    "engine/worker/episode_plan.py": {
        "episode_seed(root, self.options.group(slot), number)",
        "episode_seed(root, place, number)",
    },
    "tools/doctor/driver.py": {
        "episode_seed(self._seed, self._slot, self._episode)",
    },
    "tools/testing/referee.py": {
        "episode_seed(self._root, slot.index, number)",
        "episode_seed(self._root, slot.index, *parts)",
    },
    "tools/testing/answers.py": {
        "episode_seed(-1 if seed is None else seed, _number(task))",
        "episode_seed(self._state, action)",
    },
    "tools/testing/faulty_envs.py": {
        "episode_seed(self._seed, self._episode_seed, length)",
    },
    "tools/doctor/checks/api.py": {"episode_seed(LARGE_SEED)"},
}
# The functions that make seeds and generators.
NAMED = {name for name, one in vars(seeds).items() if inspect.isfunction(one)}
# What is seeded with the number it is called with.
SEEDED = {
    *("default_rng", "SeedSequence", "RandomState", "Random"),
    *("PCG64", "PCG64DXSM", "MT19937", "Philox", "SFC64"),
    *("manual_seed", "manual_seed_all", "seed", "np_random"),
}


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
    found = {one.name: int(one) for one in GlobalGenerator}
    assert found == {"PYTHON": 0, "NUMPY": 1, "TORCH": 2}


def test_named_seeds_keep_their_numbers() -> None:
    assert [item_seed(7, item) for item in range(2)] == [
        7988749200655024985,
        5917594624248438311,
    ]
    assert [collection_root(7, turn) for turn in range(2)] == [
        7988749200655024985,
        5917594624248438311,
    ]
    assert [evaluation_root(7, one) for one in EvaluationSeed] == [
        5917594624248438311,
        4490171829391786030,
        1250988323420626852,
    ]
    assert [agent_seed(3, agent) for agent in range(2)] == [
        1249328409220612829,
        4906420123947531380,
    ]
    assert [worker_globals_seed(7, 4, generation) for generation in (0, 1, 3)] == [
        3506704072685816941,
        3740542956016649749,
        6171344931092333012,
    ]
    assert slot_generators_seed(7, 5) == 4357609122256675079
    assert episode_generators_seed(9) == 1125109875506158355
    assert generator_seeds(9) == (
        1820977951801209834,
        [2955378760, 1528057961],
        8373129033984510431,
    )
    assert [sampler_seed(7, 2, number) for number in range(2)] == [
        1329722990465113178,
        889914674572157577,
    ]
    assert disturbance_seed(1, 2) == 4876125848157309423
    assert copy_seed(3142012158722910941, 1) == 2013294234241441440
    assert noise_seed(7) == 8
    assert list(acting_seeds(7, 3)) == [7, 8, 9]


def test_named_generators_keep_their_numbers() -> None:
    def first(generator: np.random.Generator) -> int:
        return int(generator.integers(2**40))

    assert [first(run_generator(7, one)) for one in RunGenerator] == [
        846778930654,
        185210434576,
    ]
    assert [first(route_order(7, turn)) for turn in range(3)] == [
        687299734001,
        846778930654,
        305631557448,
    ]
    assert route_order(7, 2).permutation(5).tolist() == [0, 2, 1, 3, 4]
    assert first(trial_rng(7988749200655024985, 3)) == 509263769463


def test_seeds_coincide_where_the_module_says_so() -> None:
    root = 11
    for number in range(4):
        hashed = episode_seed(root, number)
        assert {
            item_seed(root, number),
            collection_root(root, number),
            agent_seed(root, number),
            disturbance_seed(root, number),
            slot_generators_seed(root, number),
            worker_globals_seed(root, number),
        } == {hashed}
        assert sampler_seed(5, 6, number) == item_seed(episode_seed(5, 6), number)
        episodes = [episode_seed(root, number, episode) for episode in range(7)]
        assert episode_seed(root, number, SeedDomain.TASKS) == episodes[1]
        assert episode_seed(root, number, SeedDomain.WORKERS) == episodes[2]
        assert episode_seed(root, number, SeedDomain.RESTARTS) == episodes[3]
        assert episode_seed(root, number, SeedDomain.NUMBERED) == episodes[4]
        assert copy_seed(root, number) == (episodes[6] if number else root)
        generation = episode_seed(root, SeedDomain.WORKERS, number)
        assert generation == episode_seed(root, 2, number)
        task = episode_seed(root, number, 2, SeedDomain.TASKS)
        assert worker_globals_seed(root, number, 1) == task
    for purpose in EvaluationSeed:
        assert evaluation_root(root, purpose) == collection_root(root, int(purpose))
    assert episode_seed(root, SeedDomain.RETRIES) == item_seed(root, 5)
    python, _, torch = generator_seeds(root)
    assert (python, torch) == (item_seed(root, 0), item_seed(root, 2))
    assert noise_seed(root) == root + 1
    assert acting_seeds(root, 2)[1] == acting_seeds(root + 1, 2)[0]


def test_generators_coincide_where_the_module_says_so() -> None:
    seed = 11
    states = [route_order(seed, turn).bit_generator.state for turn in range(8)]
    for number, state in enumerate(states):
        assert state == trial_rng(seed, number).bit_generator.state
        same = np.random.default_rng(seed + number * 2**32)
        assert state == same.bit_generator.state
    large = np.random.default_rng(2**62 + 3 * 2**64).bit_generator.state
    assert trial_rng(2**62, 3).bit_generator.state == large
    for one in RunGenerator:
        assert states[one] == run_generator(seed, one).bit_generator.state


def test_a_domain_is_hashed_as_its_number() -> None:
    assert episode_seed(7, 1, 0, SeedDomain.RESTARTS, 2) == episode_seed(7, 1, 0, 3, 2)


def test_policies_without_seeds_draw_from_no_seed_of_an_episode() -> None:
    numbers = range(9)
    episodes = {episode_seed(0, slot, number) for slot in numbers for number in numbers}
    assert not episodes & {episode_seed(0, one, SeedDomain.UNSEEDED) for one in numbers}


def test_every_derivation_of_a_seed_has_a_name() -> None:
    found: dict[str, set[str]] = {}
    for path in sorted(HOME.rglob("*.py")):
        bare = set(_bare(path.read_text()))
        if bare and path != Path(seeds.__file__):
            found[path.relative_to(HOME).as_posix()] = bare
    assert found == PLAIN, "name the others in engine/worker/seeds.py"


@pytest.mark.parametrize(
    "text",
    [
        "episode_seed(root, slot)",
        "episode_seed(root, 3, SeedDomain.TASKS)",
        "seeds.episode_seed(root)",
        "item_seed(root, 3)",
        "route_order(seed, turn=3)",
        "episode_seed(root, *parts)",
        "np.random.default_rng((seed, turn))",
        "default_rng([seed, RunGenerator.REPLAY])",
        "default_rng(seed=[seed, 4])",
        "default_rng([*parts])",
        "np.random.SeedSequence(entropy=(seed, 1))",
        "np.random.SeedSequence(seed, spawn_key=(1,))",
        "torch.Generator().manual_seed(seed + 1)",
        "torch.manual_seed((seed ^ 5) % LIMIT)",
        "random.seed(hash((seed, 1)))",
        "space.seed(int(seed) * 3 & LIMIT)",
    ],
)
def test_a_bare_derivation_is_found(text: str) -> None:
    assert list(_bare(text)) == [text]


@pytest.mark.parametrize(
    "text",
    [
        "episode_seed(root, number, SeedDomain.NUMBERED)",
        "episode_seed(root, SeedDomain.WORKERS, generation)",
        "np.random.default_rng(seed)",
        "np.random.default_rng()",
        "space.seed(0)",
        "torch.Generator().manual_seed(seed % 2**63)",
        "torch.manual_seed(int(rng[row].integers(2**62)))",
        "space.seed(sampler_seed(seed, slot, number) & 0x7FFFFFFF)",
    ],
)
def test_a_seed_of_its_own_and_a_named_one_are_no_bare_derivations(text: str) -> None:
    assert not list(_bare(text))


def _bare(text: str) -> Iterator[str]:
    """The calls in a module that make one seed from several numbers by themselves."""
    for node in ast.walk(ast.parse(text)):
        if not isinstance(node, ast.Call):
            continue
        name = _name(node.func)
        given = [*node.args, *(one.value for one in node.keywords)]
        if name == "episode_seed":
            domains = [one for one in given[1:] if _owner(one) == "SeedDomain"]
            bare = not domains or any(map(_is_number, given[1:]))
        elif name in NAMED:
            bare = any(map(_is_number, given[1:]))
        else:
            bare = name in SEEDED and any(map(_derived, given))
        if bare:
            yield ast.unparse(node)


def _derived(value: ast.expr) -> bool:
    """Whether this combines numbers; to cut one to size, or to draw it, does not."""
    match value:
        case ast.BinOp(left=left, op=ast.Mod() | ast.BitAnd()):
            return _derived(left)
        case ast.Call(func=ast.Name(id="int"), args=[inner]):
            return _derived(inner)
        case ast.Call(func=ast.Name(id="hash")):
            return True
    kinds = (ast.List, ast.Tuple, ast.ListComp, ast.GeneratorExp, ast.Starred)
    return isinstance(value, (*kinds, ast.BinOp))


def _is_number(value: ast.expr) -> bool:
    return isinstance(value, ast.Constant)


def _name(function: ast.expr) -> str:
    """The last part of a dotted name."""
    return getattr(function, "attr", getattr(function, "id", ""))


def _owner(value: ast.expr) -> str:
    """The class of a member, as in `SeedDomain.TASKS`."""
    return _name(value.value) if isinstance(value, ast.Attribute) else ""
