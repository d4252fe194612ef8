"""Several agents per env: everything equals a loop written by hand."""

from __future__ import annotations

import functools
from collections import OrderedDict
from itertools import pairwise
from types import MappingProxyType
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces

import corral
from corral.api.pettingzoo.env import MultiEnv, open_team_pool
from corral.errors import (
    ClosedError,
    OptionError,
    OrderError,
    SpaceMismatch,
    SpacesDiffer,
    UsageError,
)
from tests.api.library_envs import (
    box_jump,
    connect_four,
    grid_world,
    grid_world_in_turns,
    knights,
    rps,
    rps_in_turns,
    speaker,
    spread,
    tag,
    tictactoe,
)
from tests.api.multi_envs import Crowd, Echo, Everyone, SmallerCrowd, Table
from tests.soak.multi_agent_loop import (
    AgentsEnvLoop,
    ParallelLoop,
    TurnLoop,
    assert_equal,
    vector_actions,
)

SLOTS, SEED = 3, 11
MODES = ("same_step", "next_step", "off")
BACKENDS = ("serial", "thread", "process")


def workers(backend: str) -> dict[str, Any]:
    return {"backend": backend, **({} if backend == "serial" else {"workers": 2})}


def reference(
    make: Any, loop: type[AgentsEnvLoop], mode: str, steps: int
) -> list[list[Any]]:
    """Rows of each slot, of envs stepped by hand."""
    rows = []
    for slot in range(SLOTS):
        env = make()
        rows.append(loop(env, slot, SEED, mode).rows(steps))
        env.close()
    return rows


def follow(envs: MultiEnv, rows: list[list[Any]], steps: int) -> None:
    """Step the vector env as the loops were stepped, and compare all that it tells."""
    obs, _ = envs.reset(seed=SEED)
    nothing = {agent: np.zeros(SLOTS) for agent in envs.agents}
    assert_equal(envs, [row[0] for row in rows], (obs, nothing, nothing, nothing, {}))
    for time in range(steps):
        now = [row[time + 1] for row in rows]
        returned = envs.step(vector_actions(envs, time))
        assert_equal(envs, now, returned)
        over = np.flatnonzero(envs.ended)
        if envs.autoreset == "off" and len(over):
            seeds = [rows[slot][time + 1].again.seed for slot in over]
            obs, _ = envs.reset(seeds, slots=over)
            now = [row.again or row.later() for row in now]
            assert_equal(envs, now, (obs, nothing, nothing, nothing, {}))


FAMILIES: dict[str, tuple[Any, type[AgentsEnvLoop], int, str]] = {
    "crowd": (Crowd, ParallelLoop, 40, ""),
    "table": (Table, TurnLoop, 60, ""),
    "rps": (rps, ParallelLoop, 14, "pettingzoo"),
    "rps in turns": (rps_in_turns, TurnLoop, 24, "pettingzoo"),
    "tic-tac-toe": (tictactoe, TurnLoop, 24, "pettingzoo"),
    "connect four": (connect_four, TurnLoop, 50, "pettingzoo"),
    "knights": (knights, ParallelLoop, 6, "pettingzoo"),
    "spread": (spread, ParallelLoop, 14, "mpe2"),
    "tag": (tag, ParallelLoop, 8, "mpe2"),
    "speaker": (speaker, ParallelLoop, 8, "mpe2"),
    "grid world": (grid_world, ParallelLoop, 30, "pettingzoo"),
    "grid world in turns": (grid_world_in_turns, TurnLoop, 40, "pettingzoo"),
    "box jump": (box_jump, ParallelLoop, 30, "Box2D"),
}


@pytest.fixture(scope="module")
def references() -> Any:
    """Rows of envs stepped by hand; made once, for all backends."""

    @functools.cache
    def made(name: str, mode: str) -> list[list[Any]]:
        make, loop, steps, needs = FAMILIES[name]
        if needs:
            pytest.importorskip(needs, reason=f"{needs} is not installed")
        return reference(make, loop, mode, steps)

    return made


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("name", FAMILIES)
def test_every_array_and_mask_is_that_of_a_loop_by_hand(
    name: str, backend: str, references: Any
) -> None:
    make, _, steps, _ = FAMILIES[name]
    rows = {mode: references(name, mode) for mode in MODES}
    shared = {**workers(backend), "isolation": "shared"}
    with open_team_pool(make, SLOTS, **shared) as pool:
        for mode in MODES:
            follow(MultiEnv(pool, autoreset=mode), rows[mode], steps)


@pytest.mark.parametrize("name", ["crowd", "table"])
def test_what_is_compared_has_agents_that_die_come_and_come_back(
    name: str, references: Any
) -> None:
    died = came = returned = 0
    for rows in references(name, "off"):
        gone: set[Any] = set()
        for before, row in pairwise(rows):
            ended = {*row.terminated, *row.truncated}
            died += bool(ended and row.alive)
            if before.again is None:
                new = {*row.alive} - {*before.alive}
                came += len(new - gone)
                returned += len(new & gone)
            gone = set() if row.ended else gone | ended
    assert died and came and returned


def test_all_can_be_observed_in_turns_and_the_state_be_asked_for() -> None:
    class Everybody(TurnLoop):
        everybody = asks_state = True

    rows = reference(Table, Everybody, "same_step", 30)
    with corral.make_multi(
        Table, SLOTS, observe="all", state=True, backend="serial"
    ) as envs:
        follow(envs, rows, 30)
        assert envs.state.dtype == np.float32


def test_an_env_in_turns_is_made_parallel_where_it_says_so() -> None:
    pytest.importorskip("pettingzoo", reason="pettingzoo is not installed")
    rows = reference(rps, ParallelLoop, "same_step", 14)
    with corral.make_multi(
        rps_in_turns, SLOTS, parallel=True, backend="serial"
    ) as envs:
        assert not envs.turns
        follow(envs, rows, 14)
    with pytest.raises(OptionError, match="does not say that its agents may act at"):
        corral.make_multi(connect_four, 1, parallel=True, backend="serial")


# Shapes -------------------------------------------------------------------------------


def test_groups_are_agents_with_equal_spaces() -> None:
    with corral.make_multi(Crowd, 2, by="group", backend="serial") as envs:
        assert {n: g.agents for n, g in envs.groups.items()} == {
            "eye": ("eye_0", "eye_1", "eye_2"),
            "hand": ("hand_0", "hand_1"),
        }
        obs, _ = envs.reset(seed=3)
        assert obs["eye"].shape == (2, 3, 2, 3) and obs["eye"].dtype == np.uint8
        assert obs["hand"]["count"].shape == (2, 2, 2)
        assert envs.action_masks["eye"].shape == (2, 3, 4)
        assert envs.action_masks["hand"] is None
        assert envs.alive["eye"].shape == (2, 3)


def test_actions_mean_the_same_in_every_form() -> None:
    def by_agent(envs: Any, actions: Any) -> Any:
        return {a: rows for a, rows in actions.items() if envs.acting[a].any()}

    def by_group(envs: Any, actions: Any) -> Any:
        return {
            name: np.stack([actions[agent] for agent in group.agents], axis=1)
            for name, group in envs.groups.items()
        }

    def by_slot(envs: Any, actions: Any) -> Any:
        acting = envs.acting
        return [
            {a: actions[a][slot] for a in envs.agents if acting[a][slot]}
            for slot in range(SLOTS)
        ]

    told = []
    with open_team_pool(Crowd, SLOTS, backend="serial") as pool:
        for form in (by_agent, by_group, by_slot):
            envs = MultiEnv(pool)
            envs.reset(seed=1)
            rewards = []
            for time in range(20):
                actions = form(envs, vector_actions(envs, time))
                rewards.append(list(envs.step(actions)[1].values()))
            told.append(np.array(rewards))
    assert (told[0] == told[1]).all() and (told[0] == told[2]).all()
    assert told[0].any()


def test_parts_of_a_dict_keep_their_names_whatever_their_order() -> None:
    first = {"b": np.full((2, 1), 8, np.int8), "a": np.full((2, 1), 7, np.int8)}
    one = {key: part[0] for key, part in first.items()}
    pair = {key: np.stack([part, part], axis=1) for key, part in first.items()}
    with corral.make_multi(Echo, 2, backend="serial") as envs:
        obs, _ = envs.reset(seed=0)
        assert [obs["left"][key].tolist() for key in "ab"] == [[[1], [1]], [[2], [2]]]
        each = dict.fromkeys(envs.agents, first)
        for actions in (each, {"left+right": pair}, [dict.fromkeys(each, one)] * 2):
            obs = envs.step(actions)[0]
            for key in "ab":
                assert (obs["right"][key] == first[key]).all(), (key, actions)


def test_later_episodes_have_seeds_of_their_own_and_can_be_run_again() -> None:
    with corral.make_multi(Crowd, 2, backend="serial") as envs:
        seeds = []
        for _ in range(2):
            envs.reset(seed=5)
            found = [envs.last.step.seed.tolist()]
            for time in range(30):
                envs.step(vector_actions(envs, time))
                found.append(envs.last.step.seed.tolist())
            seeds.append(found)
    assert seeds[0] == seeds[1] and seeds[0][0] == [5, 6]
    assert len({seed for pair in seeds[0] for seed in pair}) > 6


def test_envs_can_be_called_read_written_and_watched() -> None:
    with corral.make_multi(Crowd, 2, backend="process", workers=2) as envs:
        envs.reset(seed=0, options={"size": 3})
        assert envs.get_attr("options") == ({"size": 3}, {"size": 3})
        envs.set_attr("level", [1, 2])
        assert envs.call("level") == (1, 2)
        assert [frame.shape for frame in envs.render()] == [(2, 2, 3)] * 2
        envs.step_async(vector_actions(envs, 0))
        with pytest.raises(OrderError, match="pending call to `step`"):
            envs.call("render")
        envs.step_wait()
        assert envs.stats().step.number.tolist() == [1, 1]
        assert envs.metadata["name"] == "crowd_v0" and envs.render_mode == "rgb_array"
    assert envs.closed


class Masked(SmallerCrowd):
    """Tells everybody what it may do, in whatever it is told to wrap that in."""

    def __init__(self, wrap: Any, mask: Any, space: Any) -> None:
        super().__init__()
        self._wrap, self._mask, self._space = wrap, mask, space

    def action_space(self, agent: str) -> Any:
        return self._space

    def reset(self, seed: int | None = None, options: Any = None) -> Any:
        obs, _ = super().reset(seed, options)
        return obs, {a: self._wrap({"action_mask": self._mask}) for a in self.agents}


@pytest.mark.parametrize("wrap", [dict, OrderedDict, MappingProxyType])
def test_masks_are_found_in_any_kind_of_info(wrap: Any) -> None:
    make = functools.partial(Masked, wrap, [0, 1, 0, 1], spaces.Discrete(4))
    with corral.make_multi(make, 1, backend="serial") as envs:
        envs.reset(seed=0)
        (agent,) = [a for a in envs.agents if envs.alive[a].all()][:1]
        assert envs.action_masks[agent].tolist() == [[False, True, False, True]]
    alone = corral.FlattenedAgents(make())
    alone.reset(seed=0)
    assert not alone.action_masks().all()


def test_masks_of_several_sets_may_be_a_tuple_as_gymnasium_has_them() -> None:
    space, mask = spaces.MultiDiscrete([2, 3]), (np.int8([1, 0]), np.int8([0, 0, 1]))
    make = functools.partial(Masked, dict, mask, space)
    with corral.make_multi(make, 1, backend="serial") as envs:
        envs.reset(seed=0)
        (agent,) = [a for a in envs.agents if envs.alive[a].all()][:1]
        expected = [[True, False, False, False, True]]
        assert envs.action_masks[agent].tolist() == expected


def test_what_was_closed_with_a_step_under_way_says_that_it_is_closed() -> None:
    envs = corral.make_multi(Crowd, 2, backend="serial")
    envs.reset(seed=0)
    envs.step_async(vector_actions(envs, 0))
    envs.close()
    for asked in (envs.reset, envs.step_wait):
        with pytest.raises(ClosedError):
            asked()


# Refusals -----------------------------------------------------------------------------


def one_env_less(actions: dict[Any, Any]) -> None:
    actions["eye_0"] = actions["eye_0"][:1]


def floats(actions: dict[Any, Any]) -> None:
    actions["eye_0"] = np.array([0.5, 0.5])


def a_stranger(actions: dict[Any, Any]) -> None:
    actions["ear_0"] = np.zeros(2, int)


def too_few(actions: dict[Any, Any]) -> None:
    del actions["eye_0"]


@pytest.mark.parametrize(
    "spoil, told",
    [
        (one_env_less, r"actions\['eye_0'\] has shape \(1,\); expected \(2,\)"),
        (floats, r"actions\['eye_0'\].*Discrete\(4\) needs an integer"),
        (a_stranger, r"an entry for 'ear_0'; the agents are \['eye_0', 'eye_1'"),
        (too_few, r"no entry for agent 'eye_0', which has to act in slot 0"),
    ],
)
def test_actions_by_agent_that_do_not_fit_are_refused(spoil: Any, told: str) -> None:
    with corral.make_multi(Everyone, 2, backend="serial") as envs:
        envs.reset(seed=0)
        actions = vector_actions(envs, 0)
        spoil(actions)
        with pytest.raises(SpaceMismatch, match=told):
            envs.step(actions)
        envs.step(vector_actions(envs, 0))  # nothing was sent


def test_actions_by_slot_are_those_of_who_acts_there() -> None:
    with corral.make_multi(Crowd, 2, backend="serial") as envs:
        envs.reset(seed=2)
        acting, actions = envs.acting, vector_actions(envs, 0)
        right = [
            {a: actions[a][slot] for a in envs.agents if acting[a][slot]}
            for slot in (0, 1)
        ]
        dead = next(a for a in envs.agents if not acting[a][1])
        with pytest.raises(
            SpaceMismatch, match=f"'{dead}', which does not act in slot 1"
        ):
            envs.step([right[0], {**right[1], dead: actions[dead][1]}])
        missing = next(iter(right[1]))
        left = {a: right[1][a] for a in right[1] if a != missing}
        with pytest.raises(
            SpaceMismatch, match=f"'{missing}', which has to act in slot"
        ):
            envs.step([right[0], left])
        with pytest.raises(SpaceMismatch, match=r"actions\[1\] has an entry for 'ear'"):
            envs.step([right[0], {**right[1], "ear": 0}])
        with pytest.raises(SpaceMismatch, match="1 dicts of actions for 2 slots"):
            envs.step([right[0]])
        with pytest.raises(SpaceMismatch, match=rf"actions\[1\]\['{missing}'\]"):
            envs.step([right[0], {**right[1], missing: np.zeros(7)}])
        envs.step(right)


def test_who_acts_out_of_turn_is_told_whose_turn_it_is() -> None:
    with corral.make_multi(Table, 1, backend="serial") as envs:
        envs.reset(seed=0)
        acting, alive = envs.acting, envs.alive
        (turn,) = [agent for agent in envs.agents if acting[agent][0]]
        other = next(a for a in envs.agents if alive[a][0] and not acting[a][0])
        actions = vector_actions(envs, 0)
        told = rf"'{other}', which does not act in slot 0; .* turn of \['{turn}'\]"
        with pytest.raises(SpaceMismatch, match=told):
            envs.step([{turn: actions[turn][0], other: actions[other][0]}])


@pytest.mark.parametrize(
    "make, told",
    [
        (functools.partial(Crowd, odd="silent"), "agent '.*' is gone from env.agents"),
        (functools.partial(Crowd, odd="stranger"), "agent 'stranger_0' is not one of"),
        (
            functools.partial(Crowd, odd="spaces"),
            "agent 'eye_1' has another observation space than when the env was built",
        ),
        (functools.partial(Table, odd="undead"), "the dead agent .* is still selected"),
        (functools.partial(Crowd, odd="lists"), r"returned \(dict, list, .*; Petting"),
        (functools.partial(Crowd, odd="untold"), "the infos are NoneType"),
        (functools.partial(Crowd, odd="unpaid"), r"step\(\) returned \(dict, NoneType"),
        (functools.partial(Crowd, odd="shrugs"), "agent '.*' got the reward None"),
        (functools.partial(Table, odd="shrugs"), "agent '.*' got the reward None"),
        (functools.partial(Table, odd="rewards"), "env.rewards is None with agent '"),
        (functools.partial(Table, odd="infos"), "env.infos is None with agent '"),
        (functools.partial(Crowd, odd="talks"), "info of agent '.*' is 'hello'; it mu"),
        (functools.partial(Table, odd="talks"), "info of agent '.*' is 'hello'; it mu"),
    ],
)
def test_an_env_that_breaks_its_word_is_named_with_slot_and_agent(
    make: Any, told: str
) -> None:
    fine = make.func
    with corral.make_multi([fine, make], backend="serial") as envs:
        envs.reset(seed=0)
        with pytest.raises(UsageError, match=f"slot 1.*{told}"):
            for time in range(30):
                envs.step(vector_actions(envs, time))


@pytest.mark.parametrize(
    "make, options, told",
    [
        (
            lambda: gymnasium.make("CartPole-v1"),
            {},
            "it has one agent: use corral.make",
        ),
        (lambda: None, {}, "env is NoneType"),
        (Crowd, {"by": "team"}, "by is 'team'"),
        (Table, {"observe": "some"}, "observe is 'some'"),
        (Crowd, {"observe": "some"}, "observe is 'some'"),
        ([Crowd, SmallerCrowd], {}, "slot 1 has other possible_agents than slot 0"),
        ("tests.api.multi_envs:Crwd", {}, "near names: Crowd"),
    ],
)
def test_what_cannot_be_made_says_why(make: Any, options: Any, told: str) -> None:
    with pytest.raises(
        OptionError if "slot 1" not in told else SpacesDiffer, match=told
    ):
        corral.make_multi(make, backend="serial", **options)


def test_make_sends_those_with_several_agents_to_make_multi() -> None:
    with pytest.raises(OptionError, match=r"use corral\.make_multi"):
        corral.make(Crowd, 1, backend="serial")
