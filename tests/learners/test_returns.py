"""Returns on random boundaries equal a slow loop over each slot's episodes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from corral.learners.returns import gae

FLOATS = st.floats(-10, 10, allow_nan=False, width=32)
GAMMA, LAM = 0.97, 0.9


@dataclass
class Rows:
    """Random rewards, values and boundaries, as a rollout has them."""

    reward: Any
    value: Any
    terminated: Any
    truncated: Any
    valid: Any
    bootstrap: Any
    next_value: Any

    @property
    def given(self) -> tuple[Any, ...]:
        return (
            self.reward,
            self.value,
            self.terminated,
            self.truncated,
            self.valid,
            self.bootstrap,
            self.next_value,
        )


@st.composite
def rows(draw: st.DrawFn) -> Rows:
    shape = draw(st.integers(1, 12)), draw(st.integers(1, 3))
    chance = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    often = draw(st.sampled_from([0.0, 0.1, 0.5, 0.9]))
    terminated = chance.random(shape) < often / 2
    truncated = chance.random(shape) < often / 2
    valid = chance.random(shape) >= draw(st.sampled_from([0.0, 0.1, 0.5]))
    return Rows(
        reward=chance.normal(size=shape),
        value=chance.normal(size=shape).astype(np.float32),
        terminated=terminated,
        truncated=truncated,
        valid=valid,
        bootstrap=np.where(
            truncated & ~terminated & valid, chance.normal(size=shape), 0
        ),
        next_value=chance.normal(size=shape[1]),
    )


# The truth, slowly --------------------------------------------------------------------


def pieces(data: Rows, slot: int, row: int, most: int) -> tuple[list[float], float]:
    """The rewards from a valid row on, at most so many, and what is expected then."""
    rewards: list[float] = []
    for now in range(row, len(data.reward)):
        rewards.append(float(data.reward[now, slot]))
        if data.terminated[now, slot]:
            return rewards, 0.0
        if data.truncated[now, slot]:
            return rewards, float(data.bootstrap[now, slot])
        last = now + 1 == len(data.reward)
        after = data.next_value[slot] if last else data.value[now + 1, slot]
        if last or len(rewards) == most or not data.valid[now + 1, slot]:
            return rewards, float(after)
    raise AssertionError("no row is left to start from")


def slow_gae(data: Rows, gamma: float, lam: float) -> Any:
    """The average of n-step returns, weighted by (1 - lam) lam^(n - 1)."""
    returns = np.array(data.value, np.float64)
    longest = [[0] * data.valid.shape[1] for _ in data.valid]
    for row, slot in zip(*np.nonzero(data.valid), strict=True):
        longest[row][slot] = len(pieces(data, slot, row, len(data.valid))[0])
        total, weight_left = 0.0, 1.0
        for steps in range(1, longest[row][slot] + 1):
            rewards, after = pieces(data, slot, row, steps)
            value = sum(gamma**k * reward for k, reward in enumerate(rewards))
            value += gamma ** len(rewards) * after
            weight = (1 - lam) * lam ** (steps - 1)
            if steps == longest[row][slot]:
                weight = weight_left
            total += weight * value
            weight_left -= weight
        returns[row, slot] = total
    return returns


@settings(deadline=None, database=None)
@given(data=rows(), lam=st.sampled_from([0.0, 0.5, 0.95, 1.0]))
def test_gae_equals_the_average_of_n_step_returns(data: Rows, lam: float) -> None:
    advantage, returns = gae(*data.given, gamma=GAMMA, lam=lam)
    np.testing.assert_allclose(returns, slow_gae(data, GAMMA, lam), atol=1e-9)
    np.testing.assert_allclose(advantage, returns - data.value, atol=1e-9)
    assert not advantage[~data.valid].any()


@settings(deadline=None, database=None)
@given(data=rows(), seed=st.integers(0, 1000))
def test_what_comes_after_an_end_does_not_reach_what_came_before(
    data: Rows, seed: int
) -> None:
    chance = np.random.default_rng(seed)
    before = gae(*data.given, gamma=GAMMA, lam=LAM)[0]
    slot = int(chance.integers(data.valid.shape[1]))
    ends = np.flatnonzero((data.terminated | data.truncated)[:, slot])
    if not len(ends):
        return
    end = int(chance.choice(ends))
    for array in (data.reward, data.value, data.bootstrap):
        array[end + 1 :, slot] = 1e6
    data.next_value[slot] = 1e6
    after = gae(*data.given, gamma=GAMMA, lam=LAM)[0]
    assert (after[: end + 1, slot] == before[: end + 1, slot]).all()


def test_filler_rows_bootstrap_as_final_observations_do() -> None:
    """The same two episodes, as same_step and as next_step collect them."""
    value = np.array([[0.5], [0.7], [0.2]])
    same = Rows(
        reward=np.array([[1.0], [2.0], [3.0]]),
        value=value,
        terminated=np.zeros((3, 1), bool),
        truncated=np.array([[False], [True], [False]]),
        valid=np.ones((3, 1), bool),
        bootstrap=np.array([[0.0], [0.9], [0.0]]),
        next_value=np.array([0.4]),
    )
    filler = Rows(
        reward=np.array([[1.0], [2.0], [0.0], [3.0]]),
        value=np.array([[0.5], [0.7], [0.9], [0.2]]),  # of the last observation: 0.9
        terminated=np.zeros((4, 1), bool),
        truncated=np.array([[False], [True], [False], [False]]),
        valid=np.array([[True], [True], [False], [True]]),
        bootstrap=np.array([[0.0], [0.9], [0.0], [0.0]]),
        next_value=np.array([0.4]),
    )
    one = gae(*same.given, gamma=GAMMA, lam=LAM)[0]
    other = gae(*filler.given, gamma=GAMMA, lam=LAM)[0]
    assert other[filler.valid].tolist() == one[same.valid].tolist()


def test_terminated_and_truncated_at_once_is_terminated() -> None:
    yes, one = np.ones((1, 1), bool), np.ones((1, 1))
    _, returns = gae(one, one, yes, yes, yes, 5 * one, np.ones(1), gamma=0.9, lam=0.9)
    assert returns.tolist() == [[1.0]]


def test_what_is_given_stays_as_it_is() -> None:
    data = Rows(*(np.ones((2, 2)) for _ in range(6)), np.ones(2))
    data.terminated = data.truncated = np.zeros((2, 2), bool)
    data.valid = np.ones((2, 2), bool)
    gae(*data.given)
    assert data.value.tolist() == data.reward.tolist() == [[1, 1], [1, 1]]


def test_shapes_that_do_not_agree_are_refused() -> None:
    data, flags = np.ones((4, 2)), np.zeros((4, 2), bool)
    with pytest.raises(ValueError, match=r"value has shape \(4, 2, 1\)"):
        gae(data, data[..., None], flags, flags, ~flags, data, np.ones(2))
    with pytest.raises(ValueError, match=r"next_value has shape \(4,\)"):
        gae(data, data, flags, flags, ~flags, data, np.ones(4))
