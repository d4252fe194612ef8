"""Agents in turn where all agents are stepped together."""

import numpy as np
import pytest
from gymnasium import spaces

import corral
from corral.core import NO_TASK
from corral.engine.adapters.parallel import ReturnsAdapter
from corral.engine.adapters.pettingzoo import parallel_form
from corral.engine.adapters.turn_steps import TurnSteps

pytest.importorskip("pettingzoo", reason="the envs of these tests")
from pettingzoo import AECEnv


class Walkers(AECEnv):
    """As grid worlds have it: in turn, out one by one, not marked parallelizable."""

    metadata = {"name": "walkers_v0"}  # noqa: RUF012

    def __init__(self, count=3, length=4):
        super().__init__()
        self.possible_agents = [f"walker_{number}" for number in range(count)]
        self.length, self.render_mode = length, None

    def observation_space(self, agent):
        return SEEN

    def action_space(self, agent):
        return spaces.Discrete(5)

    def reset(self, seed=None, options=None):
        self.agents, self.time = list(self.possible_agents), 0
        self.place = dict.fromkeys(self.agents, 0)
        self.rewards = dict.fromkeys(self.agents, 0.0)
        self._cumulative_rewards = dict(self.rewards)
        self.terminations = dict.fromkeys(self.agents, False)
        self.truncations = dict(self.terminations)
        self.infos = {agent: {} for agent in self.agents}
        self.agent_selection = self.agents[0]

    def observe(self, agent):
        return {"at": np.array([self.place[agent], self.time], np.int32)}

    def step(self, action):
        agent = self.agent_selection
        if self.terminations[agent] or self.truncations[agent]:
            self._was_dead_step(action)
            return
        self._cumulative_rewards[agent] = 0.0
        self._clear_rewards()
        self.place[agent] += int(action)
        self.rewards[agent] = float(action)
        self.terminations[agent] = self.place[agent] >= 8
        following = self.agents.index(agent) + 1
        if following == len(self.agents):
            self.time += 1
            late = self.time == self.length
            self.truncations = dict.fromkeys(self.agents, late)
        self._accumulate_rewards()
        self.agent_selection = self.agents[following % len(self.agents)]
        self._deads_step_first()

    def close(self):
        pass


SEEN = spaces.Dict({"at": spaces.Box(0, 100, (2,), np.int32)})


def test_a_step_is_a_turn_and_gives_what_pettingzoos_loop_gives():
    steps, env = TurnSteps(Walkers()), Walkers()
    steps.reset()
    env.reset()
    got = dict.fromkeys(env.possible_agents, 0.0)
    ends = {}
    while steps.agents:
        acting = steps.acting
        while env.agent_selection not in steps.agents:
            env.step(None)
        assert env.agent_selection == acting
        action = 4 if acting == "walker_0" else 1
        env.step(action)
        everyone = dict.fromkeys(steps.agents, 3) | {acting: action}
        seen, rewards, terminated, truncated, infos = steps.step(everyone)
        assert rewards == {agent: env.rewards[agent] for agent in rewards}
        for agent in rewards:
            got[agent] += rewards[agent]
            if terminated[agent] or truncated[agent]:
                ends[agent] = terminated[agent], truncated[agent]
            assert np.array_equal(seen[agent]["at"][:1], [env.place[agent]])
        assert [a for a in infos if infos[a].get("acting")] == (
            [steps.acting] if steps.agents else []
        )
    assert got == {"walker_0": 8.0, "walker_1": 4.0, "walker_2": 4.0}
    assert ends == {
        "walker_0": (True, False),
        "walker_1": (False, True),
        "walker_2": (False, True),
    }


def test_stable_baselines3_trains_on_what_is_written_first():
    ppo = pytest.importorskip("stable_baselines3", reason="it learns here").PPO
    envs = corral.make_sb3(
        Walkers, 2, wrappers=[corral.FlattenedAgents], backend="serial"
    )
    ppo("MlpPolicy", envs, n_steps=16, batch_size=32, n_epochs=1).learn(32)
    envs.close()
    envs = corral.make_shared_policy(Walkers, 2, api="sb3", backend="serial")
    ppo("MultiInputPolicy", envs, n_steps=16, batch_size=32, n_epochs=1).learn(96)
    envs.close()


def test_agilerls_workers_step_them_too():
    adapter = ReturnsAdapter(parallel_form(Walkers()))
    adapter.reset(0, None, NO_TASK)
    _, total, *ends, _ = adapter.step({"walker": np.array([2, 3, 4])})
    assert total == 2.0 and not any(ends)  # the first walker's turn
