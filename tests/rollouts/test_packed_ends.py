"""Ends of episodes as arrays: packed in workers, joined in the caller."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from gymnasium import spaces

from corral.errors import Fault
from corral.rollouts.filling import Boundary
from corral.rollouts.packed_ends import EpisodeEnd, join_ends, pack_ends
from corral.rollouts.rollout import EpisodeSummary
from corral.rollouts.site import Fragment
from corral.rollouts.space_rows import SpaceParts

SPACE = SpaceParts(spaces.Box(-9, 9, (2,), np.float64))
FAULT = Fault("raised", "an env raised")


def end(row: int, slot: int, truncated: bool = False, **more: Any) -> EpisodeEnd:
    """The end of an episode whose numbers can be told from all others."""
    number = float(10 * row + slot)
    summary = EpisodeSummary(
        slot, row, 100 + row, number, row + 1, not truncated, more.pop("info", {})
    )
    carry = np.array([[number]])
    return EpisodeEnd([np.full(2, number)], carry, truncated, summary, **more)


def test_ends_of_two_workers_are_joined_by_row_and_slot() -> None:
    first = {(5, 1): end(5, 1, truncated=True), (2, 0): end(2, 0)}
    second = {(2, 1): end(2, 1, truncated=True, info={"won": 1}), (0, 0): end(0, 0)}
    lost = EpisodeEnd([np.zeros(2)], None, bootstrapped=False, fault=FAULT)
    parts = [
        pack_ends(first, SPACE),
        pack_ends(second, SPACE).shifted(2),
        pack_ends({(5, 0): lost}, SPACE),
    ]
    found = join_ends(parts)
    assert found.numbers[:, :2].tolist() == [[0, 2], [2, 0], [2, 3], [5, 0], [5, 1]]
    assert found.final_obs[0].tolist() == [[0, 0], [20, 20], [21, 21], [0, 0], [51, 51]]
    assert found.bootstrapped.tolist() == [False, False, True, False, True]
    assert found.carry.tolist() == [[21.0], [51.0]]
    assert found.faults == {3: FAULT}
    assert found.episodes() == (
        EpisodeSummary(2, 0, 100, 0.0, 1, True, {}),
        EpisodeSummary(0, 2, 102, 20.0, 3, True, {}),
        EpisodeSummary(3, 2, 102, 21.0, 3, False, {"won": 1}),
        EpisodeSummary(1, 5, 105, 51.0, 6, False, {}),
    )


def test_no_ends_are_empty_arrays() -> None:
    for found in (pack_ends({}, SPACE), join_ends([pack_ends({}, SPACE)] * 2)):
        assert found.numbers.shape == (0, 4) and found.final_obs[0].shape == (0, 2)
        assert found.episodes() == () and found.carry is None and not found.faults


def fragment(
    obs: Any = None, carry: Any = None, ends: Any = None, **more: Any
) -> Fragment:
    obs = np.zeros((1, 2)) if obs is None else obs
    after = Boundary(obs, np.zeros(1, bool), carry)
    packed = None if ends is None else pack_ends({(0, 0): ends}, SPACE)
    return Fragment((), more.pop("arrays", {}), packed, carry, after, **more)


def test_fragments_of_numbers_alone_are_plain() -> None:
    assert fragment().plain and fragment(ends=end(0, 0)).plain
    assert fragment(arrays={"extras/logits": np.zeros((1, 1))}).plain


@pytest.mark.parametrize(
    "given",
    [
        {"obs": (object(),)},
        {"obs": np.array([None])},
        {"carry": object()},
        {"arrays": {"extras/text": np.array([["a"]], object)}},
        {"ends": end(0, 0, info={"won": object()})},
        {"ends": end(0, 0, fault=FAULT)},
        {"faults": (FAULT,)},
    ],
)
def test_what_may_have_objects_of_users_is_not(given: dict[str, Any]) -> None:
    assert not fragment(**given).plain
