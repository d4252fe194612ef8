"""Values of every space go to the env and come back, in the block or by mail."""

from __future__ import annotations

import functools
import sys
import types
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from gymnasium import spaces

from corral import Pool

from .envs import Countdown, Echo, Points, Witness, Words, sampled
from .reference import part_of

MakePool = Callable[..., Pool]

SPACES: dict[str, spaces.Space[Any]] = {
    "Text": spaces.Text(8),
    "Sequence": spaces.Sequence(spaces.Box(-1, 1, (2,), np.float32)),
    "stacked Sequence": spaces.Sequence(spaces.Discrete(4), stack=True),
    "Graph": spaces.Graph(spaces.Box(-1, 1, (3,)), spaces.Discrete(4)),
    "OneOf": spaces.OneOf([spaces.Discrete(3), spaces.Text(4)]),
    "custom": Words(),
    "custom with a codec": Points(),
    "Dict of Box and Text": spaces.Dict(
        {"order": spaces.Text(8), "speed": spaces.Box(-1, 1, (2,), np.float64)}
    ),
    "Tuple of Graph and Discrete": spaces.Tuple(
        (spaces.Graph(spaces.Box(-1, 1, (1,)), None), spaces.Discrete(3, start=4))
    ),
    "nested with a codec": spaces.Dict(
        {"goal": Points(), "more": spaces.Tuple((spaces.Text(3), Points()))}
    ),
    "Box without dimensions": spaces.Box(-1, 1, (), np.float16),
    "empty Box": spaces.Box(-1, 1, (0, 3), np.int16),
    "MultiDiscrete": spaces.MultiDiscrete([[3, 4], [5, 6]]),
    "MultiBinary": spaces.MultiBinary((2, 2)),
}


def alike(one: Any, other: Any) -> bool:
    """Equal, whatever became of tuples, lists and scalar types on the way."""
    if isinstance(one, spaces.GraphInstance):
        return all(
            (a is None and b is None) or np.array_equal(a, b)
            for a, b in zip(one, other, strict=True)
        )
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(alike(one[k], other[k]) for k in one)
    if isinstance(one, (tuple, list)):
        return len(one) == len(other) and all(map(alike, one, other))
    return bool(np.array_equal(one, other))


def value_at(space: spaces.Space[Any], batch: Any, slot: int) -> Any:
    if isinstance(space, spaces.Dict):
        return {k: value_at(part, batch[k], slot) for k, part in space.spaces.items()}
    if isinstance(space, spaces.Tuple):
        pairs = zip(space.spaces, batch, strict=True)
        return tuple(value_at(part, values, slot) for part, values in pairs)
    return batch[slot]


@pytest.mark.parametrize("name", SPACES)
def test_actions_reach_the_env_and_observations_come_back(
    make_pool: MakePool, name: str
) -> None:
    space = SPACES[name]
    pool = make_pool(functools.partial(Echo, space, end_after=3), 3, workers=1)
    first = pool.reset()
    for slot in range(3):
        expected = sampled(space, int(first.seed[slot]))
        assert alike(value_at(space, first.obs, slot), expected)
    for number in range(1, 8):
        actions = [sampled(space, 100 * number + slot) for slot in range(3)]
        step = pool.step(actions)
        shown = step.final_obs if step.ended.all() else step.obs
        for slot in range(3):
            assert alike(value_at(space, shown, slot), actions[slot]), (number, slot)
    # Some slots; the others keep what they had.
    new = [sampled(space, 999), sampled(space, 998)]
    step = pool.step(new, slots=[2, 0])
    assert alike(value_at(space, step.obs, 0), new[1])
    assert alike(value_at(space, step.obs, 1), new[0])
    assert alike(value_at(space, pool.observe(), 1), actions[1])
    assert alike(value_at(space, pool.observe(), 2), new[0])


def test_mailed_values_that_are_not_of_the_space_pass_as_they_are(
    make_pool: MakePool,
) -> None:
    pool = make_pool(functools.partial(Echo, Words()), 2)
    pool.reset()
    assert pool.step([["a"], ["b", "c"]]).obs == (["a"], ["b", "c"])


NARROW = spaces.Box(-1, 1, (3,), np.float32)


@pytest.mark.parametrize("slots", [None, [0, 1]], ids=["all", "some"])
def test_wide_actions_reach_the_env_unchanged(
    make_pool: MakePool, slots: list[int] | None
) -> None:
    pool = make_pool(functools.partial(Witness, NARROW), 2)
    pool.reset()
    for dtype in (np.float64, np.float32, np.float64):
        actions = np.random.default_rng(0).normal(size=(2, 3)).astype(dtype)
        infos = pool.step(actions, slots=slots).infos
        for slot in range(2):
            info = infos.of(slot)
            assert info == {"dtype": actions.dtype.str, "raw": actions[slot].tobytes()}


def test_an_action_is_the_envs_own_to_keep_and_change(make_pool: MakePool) -> None:
    pool = make_pool(functools.partial(Echo, NARROW), 2)
    pool.reset()
    actions = np.ones((2, 3), np.float32)
    first = pool.step(actions)
    actions[:] = 5
    assert (first.obs == 1).all()


def test_out_of_bounds_values_and_nan_pass(make_pool: MakePool) -> None:
    pool = make_pool(functools.partial(Echo, NARROW), 2)
    pool.reset()
    actions = np.array([[np.nan, 9, -9], [np.inf, 0, 0]], np.float32)
    assert pool.step(actions).obs.tobytes() == actions.tobytes()


def test_a_factory_of_a_module_nobody_can_import_goes_by_value() -> None:
    module = types.ModuleType("made_up_for_this_test")
    module.__dict__["Countdown"] = Countdown
    exec("def make():\n    return Countdown(longest=LONGEST)", module.__dict__)
    module.__dict__["LONGEST"] = 1
    sys.modules[module.__name__] = module
    try:
        with Pool(module.make, 2, backend="process", workers=1, seed=0) as pool:
            pool.reset()
            assert pool.step([1, 1]).ended.all()
    finally:
        del sys.modules[module.__name__]


def test_leaves_are_contiguous_and_of_the_spaces_dtype(make_pool: MakePool) -> None:
    space = SPACES["Dict of Box and Text"]
    pool = make_pool(functools.partial(Echo, space), 2)
    speed = pool.reset().obs["speed"]
    assert speed.dtype == np.float64 and speed.flags.c_contiguous
    assert part_of(space["speed"], speed, 0).shape == (2,)  # type: ignore[index]
