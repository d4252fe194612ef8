"""Seeds never change, and a slot's global streams do not depend on its neighbours."""

from __future__ import annotations

import random
import subprocess
import sys
import threading
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from corral.engine.worker.isolated_rng import IsolatedRng
from corral.engine.worker.seeds import episode_seed, seed_globals

torch = pytest.importorskip("torch")

HELD, normal, held_random = np.random.mtrand._rand, np.random.normal, random.random

DRAWS: dict[str, Any] = {
    "nothing": lambda: None,
    "random": random.random,
    "random.gauss": lambda: random.gauss(0.0, 1.0),
    "numpy.rand": lambda: float(np.random.rand()),
    "numpy.randn": lambda: float(np.random.randn()),
    "numpy.random.mtrand._rand": lambda: float(HELD.standard_normal()),
    "from numpy.random import normal": lambda: float(normal()),
    "from random import random": lambda: held_random(),
    "numpy.binomial": lambda: int(np.random.binomial(40, 0.3)),
    "torch.rand": lambda: float(torch.rand(())),
    "torch.randn": lambda: float(torch.randn(())),
}
draws = st.lists(st.sampled_from(sorted(DRAWS)), max_size=6)


def isolation_of(root: int = 0, lock: Any = None, **named: Any) -> IsolatedRng:
    return IsolatedRng(lambda slot: episode_seed(root, slot), lock, **named)


def outside_state() -> tuple[Any, ...]:
    numpy_state: Any = np.random.get_state()
    return (
        random.getstate(),
        numpy_state[1].tobytes(),
        numpy_state[2:],
        torch.get_rng_state().tolist(),
    )


def run_alone(slot: int, steps: list[list[str]]) -> list[list[Any]]:
    isolation = isolation_of()
    lived = []
    for step in steps:
        with isolation.of(slot):
            lived.append([DRAWS[name]() for name in step])
    return lived


def test_episode_seeds_are_the_same_for_ever() -> None:
    assert episode_seed(0) == 910613037939515762
    assert episode_seed(0, 3, 7) == 7539468385876650386
    assert episode_seed(-1, 2**200) == 2890900612884640386


def test_episode_seeds_take_numpy_integers_as_their_value() -> None:
    assert episode_seed(np.int64(5), np.uint8(7)) == episode_seed(5, 7)


@given(st.lists(st.lists(st.integers(), min_size=1, max_size=4), max_size=20))
def test_different_parts_give_different_seeds(lists: list[list[int]]) -> None:
    distinct = {tuple(parts) for parts in lists}
    seeds = {episode_seed(*parts) for parts in distinct}
    assert len(seeds) == len(distinct)
    assert all(0 <= seed < 2**63 for seed in seeds)


def test_seed_globals_repeats_all_three() -> None:
    for seed in (0, -5, 2**70):
        seed_globals(seed)
        first = [draw() for draw in DRAWS.values()]
        seed_globals(seed)
        assert [draw() for draw in DRAWS.values()] == first


def test_python_and_numpy_do_not_draw_the_same_stream() -> None:
    seed_globals(2**40)
    assert random.random() != np.random.rand()


@settings(max_examples=60, deadline=None)
@given(
    lives=st.lists(st.lists(draws, max_size=5), min_size=1, max_size=4),
    chaos=st.randoms(use_true_random=True),
    outside=draws,
)
def test_interleaved_slots_live_as_if_alone(
    lives: list[list[list[str]]], chaos: random.Random, outside: list[str]
) -> None:
    turns = [slot for slot, steps in enumerate(lives) for _ in steps]
    chaos.shuffle(turns)
    isolation = isolation_of()
    lived: list[list[list[Any]]] = [[] for _ in lives]
    for slot in turns:
        for name in outside:
            DRAWS[name]()
        step = lives[slot][len(lived[slot])]
        with isolation.of(slot):
            lived[slot].append([DRAWS[name]() for name in step])
    assert lived == [run_alone(slot, steps) for slot, steps in enumerate(lives)]


@settings(max_examples=40, deadline=None)
@given(
    lives=st.lists(st.lists(draws, max_size=5), min_size=1, max_size=4),
    chaos=st.randoms(use_true_random=True),
    lingers=st.booleans(),
)
def test_slots_in_a_row_live_as_if_alone_and_outside_comes_back(
    lives: list[list[list[str]]], chaos: random.Random, lingers: bool
) -> None:
    turns = [slot for slot, steps in enumerate(lives) for _ in steps]
    chaos.shuffle(turns)
    isolation, state = isolation_of(lingers=lingers), outside_state()
    lived: list[list[list[Any]]] = [[] for _ in lives]
    with isolation:
        for slot in turns:
            step = lives[slot][len(lived[slot])]
            with isolation.of(slot):
                lived[slot].append([DRAWS[name]() for name in step])
            if chaos.random() < 0.2:
                isolation.restore_outside()
                assert outside_state() == state
    assert lived == [run_alone(slot, steps) for slot, steps in enumerate(lives)]
    isolation.restore_outside()
    assert outside_state() == state


def test_a_bit_generator_that_a_slot_sets_stays_its_own() -> None:
    isolation, state = isolation_of(), outside_state()
    mine = np.random.PCG64(7)
    with isolation.of(0):
        np.random.set_bit_generator(mine)
        first = np.random.randn()
    assert outside_state() == state
    with isolation.of(1):
        np.random.randn()
    with isolation.of(0):
        assert np.random.get_bit_generator() is mine
        second = np.random.randn()
    alone = np.random.RandomState(np.random.PCG64(7))
    assert [first, second] == [alone.randn(), alone.randn()]


@settings(max_examples=30, deadline=None)
@given(before=draws, inside=draws)
def test_outside_state_is_untouched(before: list[str], inside: list[str]) -> None:
    isolation = isolation_of()
    for name in before:
        DRAWS[name]()
    state = outside_state()
    for slot in (0, 1, 0):
        with isolation.of(slot):
            for name in inside:
                DRAWS[name]()
    assert outside_state() == state


def test_outside_state_is_restored_when_the_env_raises() -> None:
    isolation, state = isolation_of(), outside_state()
    with pytest.raises(ZeroDivisionError), isolation.of(0):
        random.random()
        _ = 1 / 0
    assert outside_state() == state
    with isolation.of(0):
        pass


def test_reseeding_inside_stays_inside() -> None:
    isolation, state = isolation_of(), outside_state()
    with isolation.of(0):
        seed_globals(1)
        np.random.randn()
    with isolation.of(1):
        np.random.set_state(np.random.RandomState(9).get_state())
    assert outside_state() == state
    with isolation.of(0):
        second = np.random.randn()
    seed_globals(1)
    np.random.randn()
    assert second == np.random.randn()


def test_first_use_late_in_life_is_exact() -> None:
    quiet: list[list[str]] = [["nothing"]] * 50
    loud = [*quiet, ["random.gauss", "numpy.randn", "torch.randn"]]
    alone = run_alone(1, loud)[-1]
    isolation = isolation_of()
    for _ in range(50):
        for slot in (0, 1, 2):
            with isolation.of(slot):
                if slot != 1:
                    [draw() for draw in DRAWS.values()]
    with isolation.of(1):
        assert [DRAWS[name]() for name in loud[-1]] == alone


def test_slots_differ_and_forgetting_starts_over() -> None:
    isolation = isolation_of()
    firsts = []
    for slot in (0, 1):
        with isolation.of(slot):
            firsts.append([draw() for name, draw in DRAWS.items() if name != "nothing"])
    assert all(a != b for a, b in zip(*firsts, strict=True) if not isinstance(a, int))
    isolation.forget(0)
    with isolation.of(0):
        again = [draw() for name, draw in DRAWS.items() if name != "nothing"]
    assert again == firsts[0]


def test_a_lock_keeps_threads_apart() -> None:
    isolation = isolation_of(lock=threading.Lock())
    lived: dict[int, list[float]] = {slot: [] for slot in range(4)}

    def live(slot: int) -> None:
        for _ in range(200):
            with isolation.of(slot):
                lived[slot] += [random.gauss(0, 1), float(np.random.randn())]

    threads = [threading.Thread(target=live, args=(slot,)) for slot in lived]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for slot, numbers in lived.items():
        alone = run_alone(slot, [["random.gauss", "numpy.randn"]] * 200)
        assert numbers == [number for step in alone for number in step]


ARRIVAL = """
import sys
from corral.engine.worker.isolated_rng import IsolatedRng
from corral.engine.worker.seeds import generator_seeds
def seed(slot):
    return 100 + slot
isolation, finders, lived = IsolatedRng(seed), len(sys.meta_path), {}
for slot in map(int, sys.argv[1]):
    with isolation.of(slot):
        import torch
        lived.setdefault(slot, []).append(float(torch.rand(())))
assert torch.initial_seed() not in {generator_seeds(seed(one))[2] for one in lived}
assert len(sys.meta_path) == finders
print(sorted(lived.items()))
"""


def test_a_slot_that_imports_torch_draws_its_own_numbers_at_once() -> None:
    def lived(order: str) -> str:
        return subprocess.run(
            [sys.executable, "-c", ARRIVAL, order],
            capture_output=True,
            text=True,
            check=True,
        ).stdout

    assert lived("0011") == lived("1010")


def test_a_failing_import_of_torch_is_only_a_failing_import() -> None:
    code = (
        "import sys, types; sys.modules['torch'] = None\n"
        "from corral.engine.worker.isolated_rng import IsolatedRng\n"
        "isolation, finders = IsolatedRng(int), len(sys.meta_path)\n"
        "for _ in range(2):\n"
        "    with isolation.of(0):\n"
        "        try:\n"
        "            import torch\n"
        "        except ImportError:\n"
        "            pass\n"
        "assert len(sys.meta_path) == finders\n"
    )
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0
