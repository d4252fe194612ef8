"""Actions reach the envs as they were given, in their space or not, or not at all."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from functools import partial
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces
from gymnasium.vector import SyncVectorEnv
from hypothesis import given, settings
from hypothesis import strategies as st

import corral
from corral import Pool, dropin
from corral.errors import OptionError, SpaceMismatch

MakePool = Callable[..., Pool]
Space = spaces.Space[Any]


class Listener(gymnasium.Env[Any, Any]):
    """Keeps what it was given last."""

    observation_space = spaces.Discrete(2)

    def __init__(self, space: Space) -> None:
        self.action_space = space
        self.got: Any = None

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        return 0, {}

    def step(self, action: Any) -> Any:
        self.got = action
        return 0, 0.0, False, False, {}


def delivered(envs: Any, actions: Any) -> Any:
    """What the env in slot 0 was given, or that it was refused."""
    envs.reset()
    try:
        envs.step(actions)
        return envs.envs[0].got
    except SpaceMismatch:
        return "refused"
    finally:
        envs.close()


def same_values(ours: Any, theirs: Any) -> bool:
    if isinstance(theirs, dict):
        return all(same_values(ours[key], theirs[key]) for key in theirs)
    if isinstance(theirs, tuple):
        return all(map(same_values, ours, theirs))
    ours, theirs = np.asarray(ours), np.asarray(theirs)
    if ours.shape != theirs.shape:
        return False
    pairs = zip(ours.ravel().tolist(), theirs.ravel().tolist(), strict=True)
    return all(a == b or (a != a and b != b) for a, b in pairs)


DTYPES = [np.int8, np.uint8, np.int64, np.uint64, np.float32, np.float64, np.bool_]
EXTREMES = [0, 1, 7, -1, 200, 300, 2**31, 2**53 + 1, 2**63, 2**64 - 1, 0.1, 1e300]


def small_choice() -> Any:
    """A choice kept in a byte; Gymnasium 1.1 keeps every one in eight."""
    known = inspect.signature(spaces.Discrete).parameters
    return spaces.Discrete(2, **({"dtype": np.int8} if "dtype" in known else {}))


def space_of(dtype: Any) -> Space:
    if np.dtype(dtype).kind == "b":
        return spaces.MultiBinary(1)
    return spaces.Box(0, 1, (1,), dtype)


@settings(max_examples=60, deadline=None)
@given(
    own=st.sampled_from(DTYPES),
    sent=st.sampled_from([*DTYPES, np.int16, np.longdouble, None]),
    value=st.sampled_from([*EXTREMES, float("nan"), float("inf")]),
    form=st.sampled_from(["batch", "dict", "tuple", "items"]),
)
def test_no_action_arrives_as_another_number(
    own: Any, sent: Any, value: Any, form: str
) -> None:
    space = space_of(own)
    try:
        with np.errstate(all="ignore"):
            one = [value] if sent is None else np.array([value]).astype(sent)
    except (OverflowError, ValueError):
        return  # numpy itself has no such number
    batch: Any = [one] if sent is None else np.stack([one])
    single: Any = one
    if form == "dict":
        space, batch, single = spaces.Dict(a=space), {"a": batch}, {"a": one}
    elif form == "tuple":
        space, batch, single = spaces.Tuple([space]), (batch,), (one,)
    elif form == "items":
        space = spaces.Dict(a=space, b=small_choice())
        single = {"a": one, "b": np.int64(300)}
        batch = [single]
    make = partial(Listener, space)
    got = delivered(Serial(make), batch)
    assert got == "refused" if isinstance(got, str) else same_values(got, single)
    if form != "items":  # Gymnasium takes no list of dicts
        theirs = delivered(SyncVectorEnv([make]), batch)
        assert same_values(delivered(dropin.SyncVectorEnv([make]), batch), theirs)


class Serial:
    """`corral.make` with a list of its envs."""

    def __init__(self, make: Callable[[], Any]) -> None:
        self._envs = corral.make(make, 1, backend="serial")
        self.reset, self.step = self._envs.reset, self._envs.step
        self.close, self.envs = self._envs.close, self._envs.pool.envs


def heard(env: Any) -> Any:
    return env.got


@pytest.mark.parametrize(
    ("space", "actions"),
    [
        (spaces.Discrete(2), np.array([7, -3, 1])),
        (spaces.Box(-1, 1, (2,)), np.array([[5, 0], [np.nan, 1], [0, 0]], np.float32)),
        (spaces.Box(-1, 1, (1,)), np.array([[1e300], [0.1], [-2.0]])),
    ],
)
def test_actions_outside_their_space_are_handed_on(
    make_pool: MakePool, space: Space, actions: Any
) -> None:
    pool = make_pool(partial(Listener, space), 3)
    pool.reset()
    pool.step(actions)
    for got, given_ in zip(pool.apply(heard), actions, strict=True):
        np.testing.assert_array_equal(got, given_)


# check_actions=True -------------------------------------------------------------------

MIXED = spaces.Dict(
    gear=spaces.Discrete(3, start=1),
    parts=spaces.Tuple([spaces.Box(-1, 1, (2,)), spaces.MultiDiscrete([3, 4])]),
    bits=spaces.MultiBinary(2),
    word=spaces.Text(3),
)
GOOD = {
    "gear": 1,
    "parts": (np.zeros(2, np.float32), np.array([2, 3])),
    "bits": np.array([0, 1], np.int8),
    "word": "ab",
}


WRONG: list[tuple[dict[str, Any], str]] = [
    ({"gear": 4}, r"\['gear'\] is 4, and Discrete\(3, start=1\) has 1 to 3"),
    ({"gear": 0}, r"\['gear'\] is 0, .* has 1 to 3"),
    (
        {"parts": (np.array([0, 1.5], np.float32), np.array([2, 3]))},
        r"\['parts'\]\[0\]\[1\] is 1.5, and Box\(.*\) has -1.0 to 1.0",
    ),
    ({"parts": (np.array([0, np.nan]), np.array([2, 3]))}, r"\[1\] is nan"),
    ({"parts": (np.zeros(2), np.array([3, 3]))}, r"\[1\]\[0\] is 3.* has 0 to 2"),
    ({"bits": np.array([0, 2], np.int8)}, r"\['bits'\]\[1\] is 2, .* has 0 to 1"),
    ({"word": "too long"}, r"\['word'\] is 'too long', and the space Text"),
]


def test_what_is_in_no_space_is_refused_where_that_was_asked_for(
    make_pool: MakePool,
) -> None:
    pool = make_pool(partial(Listener, MIXED), 3, check_actions=True)
    pool.reset()
    pool.step([GOOD] * 3)
    for wrong, reason in WRONG:
        told = f"slot 2 is not in its space: .*{reason}"
        with pytest.raises(SpaceMismatch, match=told):
            pool.step([GOOD, GOOD, {**GOOD, **wrong}])
        with pytest.raises(SpaceMismatch, match=told):
            pool.step([GOOD, {**GOOD, **wrong}], slots=[0, 2])
    pool.step([GOOD] * 3)  # nothing was sent, and everything goes on
    assert pool.apply(heard, slots=[2])[0]["gear"] == 1


@pytest.mark.parametrize("make", [corral.make, corral.make_sb3, corral.make_async])
def test_every_api_hands_the_option_on(make: Any) -> None:
    if make is corral.make_sb3:
        pytest.importorskip("stable_baselines3")
    options = {"backend": "serial", "check_actions": True}
    envs = make(partial(Listener, spaces.Discrete(2)), 2, **options)
    try:
        envs.reset()
        with pytest.raises(SpaceMismatch, match=r"slot 1 .* is 7"):
            envs.step(np.array([0, 7]))
    finally:
        envs.close()


def test_drop_ins_hand_on_nothing_that_is_to_be_checked() -> None:
    make = partial(Listener, spaces.Discrete(2))
    envs = dropin.SyncVectorEnv([make], check_actions=True)
    envs.reset()
    for wrong in (np.array([2]), np.array([0.5])):
        with pytest.raises(SpaceMismatch):
            envs.step(wrong)
    assert envs.envs[0].got is None
    envs.close()


def test_actions_of_several_agents_are_left_to_pettingzoos_wrapper() -> None:
    from tests.api.multi_envs import Everyone

    with pytest.raises(OptionError, match="AssertOutOfBoundsWrapper"):
        corral.make_multi(Everyone, 2, backend="serial", check_actions=True)


def test_one_dict_per_slot_gives_agents_what_it_says() -> None:
    from tests.api.multi_envs import Everyone

    class Builders(Everyone):
        got: Any = None

        def action_space(self, agent: str) -> Any:
            return spaces.Dict(
                force=spaces.Box(-1, 1, (1,), np.float32),
                tool=small_choice(),
            )

        def payment(self, agent: str, action: Any) -> float:
            Builders.got = action
            return 0.0

    with corral.make_multi(Builders, 1, backend="serial") as envs:
        envs.reset(seed=0)
        action = {"force": np.array([0.1]), "tool": np.int64(300)}
        envs.step([dict.fromkeys(Builders.possible_agents, action)])
    assert Builders.got["force"].tolist() == [0.1] and Builders.got["tool"] == 300
