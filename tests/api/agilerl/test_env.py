"""AgileRL's vector env, held against AgileRL's own way with one env after the other."""

import functools
import multiprocessing
import os

import numpy as np
import pytest

pytest.importorskip("agilerl.vector", reason="AgileRL is not installed")

from agilerl.vector import PettingZooVecEnv
from agilerl.vector.pz_async_vec_env import process_transition
from gymnasium import spaces
from gymnasium.error import (
    AlreadyPendingCallError,
    ClosedEnvironmentError,
    NoAsyncCallError,
)

from corral.api.agilerl.values import without_none
from corral.dropin import AsyncPettingZooVecEnv
from corral.errors import SpaceMismatch, SpacesDiffer
from tests.api import matching_env
from tests.api.matching_env import Lenient, Matching, Undecided
from tests.api.multi_envs import EYES, KILL, RAISE, Crowd, Fragile

SLOTS, STEPS = 3, 40
NAMES = ["observation", "reward", "terminated", "truncated", "info"]


def action_for(slot, agent, step):
    if agent in EYES:
        return (slot + step + EYES.index(agent)) % 4
    return np.array([0.5, -0.25], np.float32) * ((slot + step) % 3 - 1)


def actions_at(step, agents):
    return {
        agent: np.stack([action_for(slot, agent, step) for slot in range(SLOTS)])
        for agent in agents
    }


def by_hand(slot, seed):
    """What AgileRL's worker makes of one env, step by step."""
    env = Crowd()
    agents = env.possible_agents
    observed = {agent: env.observation_space(agent) for agent in agents}
    obs, info = env.reset(seed=seed)
    yield process_transition((obs, info), observed, ["observation", "info"], agents)
    for step in range(STEPS):
        there = {agent: action_for(slot, agent, step) for agent in env.agents}
        obs, reward, terminated, truncated, info = env.step(there)
        last = obs
        ends = [terminated[agent] or truncated[agent] for agent in terminated]
        if all(ends):
            obs, info = env.reset()
        values = (obs, reward, terminated, truncated, info)
        told = process_transition(values, observed, NAMES, agents)
        yield (*told, (last, terminated, truncated, list(env.agents)))


def same(ours, theirs):
    """Whether an observation is AgileRL's, or where that is no number, zeros."""
    if isinstance(theirs, dict):
        return all(same(ours[key], theirs[key]) for key in theirs)
    expected = np.asarray(theirs)
    if np.isnan(expected).all() and not np.issubdtype(ours.dtype, np.floating):
        return not ours.any()
    shape = expected.shape or (1,)
    return ours.shape == shape and np.array_equal(ours, expected.reshape(shape))


def at(batch, slot):
    if isinstance(batch, dict):
        return {key: at(part, slot) for key, part in batch.items()}
    return batch[slot]


def test_everything_equals_agilerls_own_way_and_more_is_known(opened):
    envs = opened(AsyncPettingZooVecEnv([Crowd] * SLOTS, workers=2))
    loops = [by_hand(slot, 11 + slot) for slot in range(SLOTS)]
    obs, infos = envs.reset(seed=11)
    for slot, loop in enumerate(loops):
        expected, told = next(loop)
        for agent in envs.agents:
            assert same(at(obs[agent], slot), expected[agent])
            check_info(infos[agent], told[agent], slot)
    for step in range(STEPS):
        outcome = envs.step(actions_at(step, envs.agents))
        for slot, loop in enumerate(loops):
            check(envs, outcome, next(loop), slot)


def check(envs, outcome, expected, slot):
    obs, rewards, terminations, truncations, infos = outcome
    seen, reward, terminated, truncated, told, (last, over, cut, there) = expected
    for agent in envs.agents:
        assert same(at(obs[agent], slot), seen[agent])
        for ours, theirs in (
            (rewards, reward),
            (terminations, terminated),
            (truncations, truncated),
        ):
            np.testing.assert_equal(float(ours[agent][slot]), float(theirs[agent]))
        check_info(infos[agent], told[agent], slot)
        assert envs.alive[agent][slot] == (agent in there)
        if over.get(agent) or cut.get(agent):
            final = at(envs.final_obs[agent], slot)
            np.testing.assert_equal(final, last[agent])


def check_info(ours, theirs, slot):
    for key, value in theirs.items():
        assert ours[f"_{key}"][slot]
        np.testing.assert_equal(ours[key][slot], value)


def test_observations_keep_their_dtypes_whoever_is_missing(opened):
    envs = opened(AsyncPettingZooVecEnv([Crowd] * 2, workers=1))
    obs, _ = envs.reset(seed=0)
    for step in range(10):
        assert obs["eye_0"].dtype == np.uint8
        assert obs["hand_0"]["count"].dtype == np.int64
        obs, *_ = envs.step(
            {a: v[:2] for a, v in actions_at(step, envs.agents).items()}
        )


def test_ends_are_booleans_where_nobody_is_missing_and_nan_where_somebody_is(opened):
    envs = opened(AsyncPettingZooVecEnv([Matching] * 2, workers=1))
    envs.reset(seed=0)
    actions = {agent: np.zeros(2, int) for agent in envs.agents}
    for _ in range(5):
        _, rewards, terminations, truncations, _ = envs.step(actions)
        assert terminations["b"].dtype == truncations["b"].dtype == np.bool_
    assert terminations["b"].all()
    _, rewards, terminations, truncations, _ = envs.step(actions)
    for told in (rewards, terminations, truncations):
        assert np.isnan(told["b"]).all()
        assert not np.isnan(told["a"]).any()


def test_an_agent_whose_action_is_nan_does_not_act(opened):
    envs = opened(AsyncPettingZooVecEnv([Lenient] * 2, workers=1))
    envs.reset(seed=0)
    envs.step({"a": np.array([1.0, np.nan]), "b": np.array([2, 0])})
    assert envs.call("given") == ({"a": 1, "b": 2}, {"b": 0})
    envs.step({"b": np.array([0, 1])})
    assert envs.call("given") == ({"b": 0}, {"b": 1})


def test_who_is_not_there_does_not_act_whatever_others_do(opened):
    envs = opened(AsyncPettingZooVecEnv([Lenient] * 2, workers=1))
    envs.reset(seed=0)
    for _ in range(5):  # after which b is gone
        envs.step({"a": np.array([0, 0]), "b": np.array([0, 0])})
    envs.step({"a": np.array([1.0, np.nan]), "b": np.array([2, 2])})
    assert envs.call("given") == ({"a": 1}, {})


@pytest.mark.parametrize(
    ("actions", "words"),
    [
        ([{"a": 0}], "actions is list; pass a dict"),
        ({}, "actions is empty"),
        ({"a": [0, 0], "b": None}, r"actions\['b'\] is None; it must have one"),
        ({"a": [0, 0], "b": [0]}, r"actions\['b'\] is \[0\]; it must have one"),
        ({"a": [0, 0], "b": [0, "x"]}, r"actions\['b'\]\[1\] is 'x', which is no"),
    ],
)
def test_actions_that_are_none_are_named(actions, words, opened):
    envs = opened(AsyncPettingZooVecEnv([Lenient] * 2, workers=1))
    envs.reset(seed=0)
    with pytest.raises(SpaceMismatch, match=words):
        envs.step(actions)


def test_tensors_and_actions_in_an_axis_of_their_own_are_taken(opened):
    torch = pytest.importorskip("torch", reason="AgileRL's actions may be tensors")
    envs = opened(AsyncPettingZooVecEnv([Lenient] * 2, workers=1))
    envs.reset(seed=0)
    envs.step({"a": torch.tensor([1, 2]), "b": np.array([[0], [1]])})
    assert envs.call("given") == ({"a": 1, "b": 0}, {"a": 2, "b": 1})


def test_calls_out_of_order_are_told_as_gymnasium_does(opened):
    envs = opened(AsyncPettingZooVecEnv([Matching] * 2, workers=1))
    with pytest.raises(NoAsyncCallError):
        envs.step_wait()
    envs.reset_async(seed=0)
    with pytest.raises(AlreadyPendingCallError):
        envs.step_async([{}, {}])
    envs.reset_wait()
    envs.step_async([{"a": 0, "b": 1}, {"a": 0, "b": 1}])
    envs.step_wait()
    envs.close()
    with pytest.raises(ClosedEnvironmentError):
        envs.reset()


def test_a_wait_that_is_not_over_in_time_is_a_timeout(opened, tmp_path):
    gate = tmp_path / "gate"
    os.mkfifo(gate)
    envs = opened(AsyncPettingZooVecEnv([Lenient], workers=1))
    envs.call_async("wait_at", str(gate))
    with pytest.raises(multiprocessing.TimeoutError):
        envs.call_wait(timeout=0)
    gate.open("w").close()  # which lets it through


class Gated(Matching):
    """Somebody has to open the gate before its last step is over."""

    def __init__(self, gate):
        super().__init__()
        self.gate = gate

    def step(self, actions):
        self.given = dict(actions)
        if self.time + 1 == matching_env.STEPS:
            open(self.gate).close()
        return super().step({"a": 0, "b": 0, **actions})


def test_who_came_back_in_a_step_that_nobody_waited_for_may_act(opened, tmp_path):
    gate = tmp_path / "gate"
    os.mkfifo(gate)
    make = functools.partial(Gated, str(gate))
    envs = opened(AsyncPettingZooVecEnv([make], workers=1))
    envs.reset(seed=0)
    for _ in range(matching_env.STEPS - 1):
        envs.step({"a": np.array([0]), "b": np.array([0])})
    assert not envs.alive["b"].any()
    envs.step_async([{"a": 0}])
    with pytest.raises(multiprocessing.TimeoutError):
        envs.step_wait(timeout=0)
    gate.open("w").close()
    envs.step({"a": np.array([np.nan]), "b": np.array([2])})
    assert envs.get_attr("given") == ({"b": 2},)


def test_an_envs_own_exception_comes_out(opened):
    envs = opened(AsyncPettingZooVecEnv([Fragile] * 2, workers=1))
    envs.reset(seed=0)
    actions = {agent: np.array([0, 0]) for agent in envs.agents}
    actions["late_0"] = np.array([0, RAISE])
    with pytest.raises(ValueError, match="not that one"):
        envs.step(actions)


def test_an_agent_that_nobody_knows_is_named(opened):
    make = functools.partial(Crowd, odd="haunted")
    envs = opened(AsyncPettingZooVecEnv([make] * SLOTS, backend="serial"))
    envs.reset(seed=11)
    with pytest.raises(SpacesDiffer, match="agent 'ghost_0' is not one of"):
        envs.step(actions_at(0, envs.possible_agents))


def test_a_killed_worker_is_replaced_and_its_agents_are_cut_short(opened):
    envs = opened(AsyncPettingZooVecEnv([Fragile] * 2, workers=2, on_fault="restart"))
    envs.reset(seed=0)
    actions = {agent: np.array([0, 0]) for agent in envs.agents}
    for _ in range(3):
        envs.step(actions)
    actions["late_0"] = np.array([0, KILL])
    _, _, _, truncations, infos = envs.step(actions)
    assert envs.valid.tolist() == [True, False]
    assert truncations["late_1"].tolist() == [False, True]
    assert infos["_fault"].tolist() == [False, True]
    assert envs.alive["early"].tolist() == [False, True]


def test_agilerls_names_and_spaces_are_there(opened):
    envs = opened(AsyncPettingZooVecEnv([Crowd] * 2, context="spawn", workers=1))
    assert isinstance(envs, PettingZooVecEnv)
    assert envs.possible_agents == envs.agents == list(Crowd.possible_agents)
    assert envs.num_agents == 5
    assert envs.single_action_space("eye_0") == spaces.Discrete(4)
    assert envs.action_space("eye_0") == spaces.MultiDiscrete([4, 4])
    assert envs.observation_space("eye_0").shape == (2, 2, 3)
    assert envs.render_mode == "rgb_array"
    assert len(envs.render()) == 2
    assert [process.is_alive() for process in envs.processes] == [True]
    envs.close()
    assert [process.is_alive() for process in envs.processes] == [False]


@pytest.mark.parametrize(
    "told, expected",
    [
        ([None, None], [np.nan, np.nan]),
        ([None, 2], [np.nan, 2.0]),
        ([np.array([1, 2]), None], [[1.0, 2.0], [np.nan, np.nan]]),
    ],
)
def test_none_in_an_info_is_nan_as_its_algorithms_expect(told, expected, opened):
    makes = [functools.partial(Undecided, one) for one in told]
    envs = opened(AsyncPettingZooVecEnv(makes, backend="serial"))
    envs.reset(seed=0)
    for _ in range(2):  # the first time numbers come by mail, then in columns
        *_, infos = envs.step({agent: np.zeros(2, np.int64) for agent in "ab"})
    np.testing.assert_array_equal(infos["a"]["env_defined_actions"], expected)
    assert np.isnan(infos["a"]["why"]).all() and infos["a"]["why"].dtype == np.float32
    assert infos["a"]["name"].tolist() == ["x", "x"]
    assert infos["b"] == {}


def test_what_is_no_array_beside_none_in_an_info_is_left_as_it_is():
    told = np.array([None, None], object)
    told[1] = [[1], [2, 3]]
    assert without_none({"a": {"rows": told}})["a"]["rows"].tolist() == [
        None,
        [[1], [2, 3]],
    ]


def test_an_unknown_context_is_refused():
    with pytest.raises(ValueError, match="cannot find context"):
        AsyncPettingZooVecEnv([Matching], context="thread")
