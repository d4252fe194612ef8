"""`StayingAgents`: no agent leaves before the last one is out."""

from __future__ import annotations

import pickle

import numpy as np
import pytest

pytest.importorskip("pettingzoo", reason="agents are PettingZoo's")

import corral
from corral.zoo import grid_world
from tests.api.multi_envs import Crowd


def played(env, bare, steps=200):
    """Both with the same actions; yields each step of the two."""
    for one in (env, bare):
        one.reset(seed=3)
        for number, agent in enumerate(bare.possible_agents):
            one.action_space(agent).seed(number)
    for _ in range(steps):
        actions = {
            agent: bare.action_space(agent).sample() for agent in bare.possible_agents
        }
        own = {agent: actions[agent] for agent in bare.agents}
        yield env.step(actions), bare.step(own)
        if not bare.agents:
            return


@pytest.mark.parametrize(
    "make",
    [lambda: grid_world.parallel_env(flat=True, max_steps=60), Crowd],
    ids=["grid", "crowd"],
)
def test_agents_that_are_out_see_zeros_and_end_with_the_last_one(make):
    env, bare = corral.StayingAgents(make()), make()
    left, absent = {}, 0
    for ours, theirs in played(env, bare):
        obs, reward, terminated, truncated, infos = ours
        assert list(obs) == list(reward) == list(infos) == bare.possible_agents
        for agent in bare.possible_agents:
            if agent in theirs[0]:
                np.testing.assert_equal(obs[agent], theirs[0][agent])
                assert reward[agent] == theirs[1].get(agent, 0.0)
                if theirs[2].get(agent) or theirs[3].get(agent):
                    left[agent] = theirs[2][agent], theirs[3][agent]
            else:
                absent += 1
                assert env.observation_space(agent).contains(obs[agent])
                assert reward[agent] == 0.0
        if bare.agents:
            assert env.agents == bare.possible_agents
            assert not any(terminated.values()) and not any(truncated.values())
    assert absent and env.agents == [] == bare.agents
    ends = {agent: (terminated[agent], truncated[agent]) for agent in terminated}
    assert ends == {agent: left.get(agent, (False, True)) for agent in ends}


def test_a_vector_of_them_never_misses_an_agent():
    def make():
        return corral.StayingAgents(grid_world.parallel_env(max_steps=20))

    envs = corral.make_multi(make, 2, backend="serial")
    envs.reset(seed=0)
    for number in range(60):
        actions = {agent: np.full(2, number % 5) for agent in envs.possible_agents}
        envs.step(actions)
        assert all(there.all() for there in envs.alive.values())
    envs.close()


def test_agents_in_turn_stay_too():
    aec = grid_world.env(max_steps=10)
    aec.unwrapped.metadata = {**aec.metadata, "is_parallelizable": False}
    env = corral.StayingAgents(aec)
    env.reset(seed=0)
    for _ in range(100):
        outcome = env.step(dict.fromkeys(env.possible_agents, 0))
        assert list(outcome[0]) == env.possible_agents
        if not env.agents:
            break
    assert not env.agents


def test_the_attributes_inside_are_those_of_the_env():
    env = corral.StayingAgents(grid_world.parallel_env())
    assert env.rules.max_steps == 250 and env.unwrapped is env.env
    env = pickle.loads(pickle.dumps(env))
    with pytest.raises(AttributeError):
        env.no_such_thing  # noqa: B018
