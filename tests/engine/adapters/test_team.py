"""Who belongs together, what masks look like, and what has no room in a block."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from gymnasium import spaces

from corral.core import NO_TASK
from corral.engine.adapters.pettingzoo import adapt_multi, multi_env
from corral.engine.adapters.team import team_of
from corral.errors import OptionError
from tests.api.multi_envs import Crowd

BIT, TRIT = spaces.Discrete(2), spaces.Discrete(3)


class Named:
    """Agents and their action spaces; nothing is ever done with it."""

    def __init__(self, **actions: Any) -> None:
        self.possible_agents = list(actions)
        self.actions = actions
        self.closed = False

    def observation_space(self, agent: str) -> Any:
        return spaces.Box(0, 1, (2,))

    def action_space(self, agent: str) -> Any:
        return self.actions[agent]

    def reset(self, seed: Any = None, options: Any = None) -> Any:
        raise AssertionError("not to be reset")

    def step(self, actions: Any) -> Any:
        raise AssertionError("not to be stepped")

    def close(self) -> None:
        self.closed = True

    def __str__(self) -> str:
        return "Named"


def groups(**actions: Any) -> dict[str, tuple[Any, ...]]:
    team = team_of(Named(**actions), turns=False, state=False)
    return {group.name: group.agents for group in team.groups}


@pytest.mark.parametrize(
    "actions, expected",
    [
        ({"a_0": BIT, "a_1": BIT}, {"a": ("a_0", "a_1")}),
        ({"a_0": BIT, "b_0": TRIT}, {"a": ("a_0",), "b": ("b_0",)}),
        ({"a_0": BIT, "b_0": BIT}, {"a+b": ("a_0", "b_0")}),
        ({"a_0": BIT, "a_1": TRIT}, {"a_0": ("a_0",), "a_1": ("a_1",)}),
        ({"first": BIT, "second": TRIT}, {"first": ("first",), "second": ("second",)}),
        ({"0": BIT, "1": BIT}, {"0+1": ("0", "1")}),
        ({"state": BIT, "other": TRIT}, {"group_0": ("state",), "group_1": ("other",)}),
        (
            {"a_0": BIT, "b": TRIT, "a_1": BIT},
            {"a": ("a_0", "a_1"), "b": ("b",)},
        ),
    ],
)
def test_agents_with_equal_spaces_are_a_group_named_by_their_stem(
    actions: Any, expected: Any
) -> None:
    assert groups(**actions) == expected


@pytest.mark.parametrize(
    "space, size",
    [
        (spaces.Discrete(5, start=2), 5),
        (spaces.MultiDiscrete([2, 3]), 5),
        (spaces.Box(0, 1, (3,)), 0),
        (spaces.MultiBinary(3), 0),
    ],
)
def test_a_mask_has_an_entry_for_every_choice(space: Any, size: int) -> None:
    team = team_of(Named(a=space), turns=True, state=False)
    assert team.groups[0].mask == size
    assert ("mask" in team.groups[0].leaves(True).spaces) == bool(size)
    assert team.observation_space["a"]["alive"].dtype == np.bool_


@pytest.mark.parametrize(
    "env, options, told",
    [
        (Named(), {}, "Named has no possible_agents"),
        (Named(a=spaces.Text(3)), {}, "agent 'a' has the action space Text.*no fixed"),
        (Named(a=None), {}, "agent 'a' has None for an action space"),
        (
            Named(a=BIT),
            {"state": True},
            "state=True needs a state_space, and Named has none",
        ),
    ],
)
def test_what_has_no_room_in_a_block_is_refused_and_closed(
    env: Any, options: Any, told: str
) -> None:
    with pytest.raises(OptionError, match=told):
        multi_env(env, **options)
    assert env.closed


def test_attributes_are_found_in_whichever_layer_has_them() -> None:
    class Wrapper:
        def __init__(self, env: Any) -> None:
            self.env = env
            self.colour = "red"

        def __getattr__(self, name: str) -> Any:
            if name.startswith("_"):
                raise AttributeError(name)
            return getattr(self.env, name)

    crowd = Crowd()
    adapter = adapt_multi(Wrapper(crowd))
    adapter.set_attr("level", 7)
    adapter.set_attr("colour", "blue")
    adapter.set_attr("fresh", 1)
    assert (crowd.level, adapter.env.colour, crowd.fresh) == (7, "blue", 1)
    assert adapter.get_attr("_pixels") is crowd._pixels
    assert adapter.call("level", (), {}) == 7


def test_a_task_is_an_option_of_the_reset() -> None:
    adapter = adapt_multi(Crowd())
    adapter.reset(0, None, NO_TASK)
    assert adapter.env.options is None
    adapter.reset(0, {"size": 1}, "left")
    assert adapter.env.options == {"size": 1, "task": "left"}


def test_actions_that_masks_forbid_are_exchanged() -> None:
    adapter = adapt_multi(Crowd(odd="everyone"))
    adapter.reset(0, None, NO_TASK)
    # At time 0 every third action is forbidden to the eyes.
    drawn = {"eye": np.array([0, 1, 3]), "hand": np.zeros((2, 2), np.float32)}
    assert adapter.permitted(drawn)["eye"].tolist() == [1, 1, 1]


@pytest.mark.parametrize(
    "terminated, expected", [(True, (True, False)), (False, (False, True))]
)
def test_an_end_is_a_truncation_if_there_was_more_to_come(
    terminated: bool, expected: tuple[bool, bool]
) -> None:
    env = Crowd(odd="everyone")
    adapter = adapt_multi(env)
    adapter.reset(0, None, NO_TASK)
    env.fate = lambda agent: (terminated, True)  # type: ignore[method-assign]
    env.newcomers = list  # type: ignore[method-assign]
    _, _, *ends, _ = adapter.step(adapter.spec.action_space.sample())
    assert tuple(ends) == expected
