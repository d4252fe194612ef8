"""Envs with agents for runs that take no time, as a user has them in a module."""

AGENTS = '''
import os
import signal

import gymnasium
import numpy as np
from gymnasium import spaces
from pettingzoo import AECEnv, ParallelEnv

class Crew(ParallelEnv):
    """Agents come, die early, and are paid for what they do; a task says how many."""
    metadata = {"name": "crew_v0"}

    def __init__(self, most=3, kind="box", actions="discrete", masks="", alike=True,
                 length=6, die=True):
        self.possible_agents = [f"member_{i}" for i in range(most)]
        self.kind, self.actions, self.masks = kind, actions, masks
        self.alike, self.length, self.die = alike, length, die
        self.agents, self.render_mode = [], None

    def observation_space(self, agent):
        size = 3 if self.alike or agent == "member_0" else 4
        seen = spaces.Box(-2, 2, (size,), np.float32)
        parts = {"seen": seen, "kind": spaces.Discrete(3)}
        if self.masks == "obs":
            return spaces.Dict({"observation": seen,
                                "action_mask": spaces.Box(0, 1, (3,), np.int8)})
        return seen if self.kind == "box" else spaces.Dict(parts)

    def action_space(self, agent):
        if self.actions == "discrete":
            return spaces.Discrete(3)
        return spaces.Box(-1, 1, (2,), np.float32)

    def reset(self, seed=None, options=None):
        self.rng = np.random.default_rng(seed)
        most = len(self.possible_agents)
        count = int((options or {}).get("task") or most)
        self.agents, self.time = self.possible_agents[:count], 0
        return self.look(), self.told()

    def look(self):
        self.shown = {a: int(self.rng.integers(3)) for a in self.possible_agents}
        found = {}
        for a in self.agents:
            seen = np.zeros(self.observation_space(a)["observation"].shape
                            if self.masks == "obs" else
                            (3 if self.alike or a == "member_0" else 4,), np.float32)
            seen[self.shown[a]] = 1
            found[a] = seen if self.kind == "box" else {"seen": seen, "kind": 1}
            if self.masks == "obs":
                found[a] = {"observation": seen, "action_mask": self.mask(a)}
        return found

    def mask(self, agent):
        """One action only: the one that is paid."""
        mask = np.zeros(3, np.int8)
        mask[self.shown[agent]] = 1
        return mask

    def told(self):
        if self.masks != "info":
            return {a: {} for a in self.agents}
        return {a: {"action_mask": self.mask(a)} for a in self.agents}

    def step(self, actions):
        assert set(actions) == set(self.agents), (set(actions), self.agents)
        self.time += 1
        there = list(self.agents)
        pay = {a: float(np.all(actions[a] == self.shown[a])) for a in there}
        if self.masks:
            assert all(pay.values()), "a forbidden action"
        dead = {a: self.die and self.time == 2 and a == "member_1" for a in there}
        late = dict.fromkeys(there, self.time == self.length)
        seen = self.look()
        self.agents = [a for a in there if not (dead[a] or late[a])]
        told = {a: {"late": 1.0} for a in there} if self.time == self.length else {}
        return seen, pay, dead, late, {**{a: {} for a in there}, **self.told(), **told}

    def close(self):
        pass


def some(slot, episode, rng):
    return int(rng.integers(1, 4))


class Alone(gymnasium.Env):
    """One agent, and a method that says which action is allowed."""
    observation_space = spaces.Dict(seen=spaces.Box(-2, 2, (2,), np.float32))
    action_space = spaces.MultiDiscrete([2, 3])

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.time = 0
        return self.look(), {}

    def look(self):
        self.allowed = self.np_random.integers([2, 3]).tolist()
        return {"seen": np.zeros(2, np.float32)}

    def action_masks(self):
        return [np.arange(n) == one for n, one in zip((2, 3), self.allowed)]

    def step(self, action):
        assert list(action) == self.allowed, "a forbidden action"
        self.time += 1
        return self.look(), 1.0, False, self.time == 5, {}


class Nobody(Crew):
    """Has no agents."""
    def __init__(self):
        super().__init__(most=0)

class Led(Crew):
    """Its masks say where its episode began; can be told to take its process down."""
    first, doomed = 0, False

    def lead(self, first):
        self.first = first

    def doom(self):
        self.doomed = True

    def reset(self, seed=None, options=None):
        self.began = self.first
        return super().reset(seed, options)

    def look(self):
        found = super().look()
        self.shown = dict.fromkeys(self.possible_agents, self.began)
        return {a: {"observation": np.full(3, self.began, np.float32),
                    "action_mask": self.mask(a)} for a in found}

    def step(self, actions):
        if self.doomed:
            os.kill(os.getpid(), signal.SIGKILL)
        return super().step(actions)
'''
