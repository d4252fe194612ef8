"""Envs whose agents differ, die one by one, come back, and change in number.

They follow PettingZoo's two APIs without importing it.
"""

from __future__ import annotations

import os
import signal
from typing import Any

import numpy as np
from gymnasium import spaces

EYES, HANDS = ("eye_0", "eye_1", "eye_2"), ("hand_0", "hand_1")
PIXELS = spaces.Box(0, 255, (2, 3), np.uint8)
COUNTS = spaces.Dict(  # not in the order that Gymnasium sorts keys in
    [
        ("kind", spaces.Discrete(6)),
        ("count", spaces.Box(-(2**62), 2**62, (2,), np.int64)),
    ]
)


class Agents:
    """What both envs below have in common: who is there, and what they see."""

    metadata: dict[str, Any] = {"name": "crowd_v0", "is_parallelizable": True}  # noqa: RUF012
    possible_agents = [*EYES, *HANDS]  # noqa: RUF012
    render_mode = "rgb_array"
    state_space = spaces.Box(-np.inf, np.inf, (3,), np.float32)

    def __init__(self, fail_at: int | None = None, odd: str = "") -> None:
        self.fail_at = fail_at
        self.odd = odd
        self.level = 0
        self.closed = False
        self.episode = 0
        self._pixels = np.zeros((2, 3), np.uint8)
        self.random = np.random.default_rng()

    def observation_space(self, agent: str) -> spaces.Space[Any]:
        changed = self.odd == "spaces" and self.episode > 1 and agent == "eye_1"
        if changed:
            return spaces.Box(0, 255, (2, 4), np.uint8)
        return PIXELS if agent in EYES else COUNTS

    def action_space(self, agent: str) -> spaces.Space[Any]:
        if agent in EYES:
            return spaces.Discrete(4)
        return spaces.Box(-1.0, 1.0, (2,), np.float32)

    def begin(self, seed: int | None) -> None:
        if seed is not None:
            self.random = np.random.default_rng(seed)
        self.episode += 1
        self.time = 0
        self.length = int(self.random.integers(4, 8))
        some = self.random.random(len(self.possible_agents)) < 0.7
        some[self.random.integers(len(some))] = True
        if self.odd in ("everyone", "spaces"):
            some[:] = True
        self.agents = [
            a for a, is_in in zip(self.possible_agents, some, strict=True) if is_in
        ]
        self.total = 0.0

    def look(self, agent: str) -> Any:
        if agent in HANDS:
            count = np.array([2**53 + 1 + self.time, -self.time])
            return {"count": count, "kind": np.int64(1 + self.time % 5)}
        # The same array every time: whoever keeps it must copy it.
        self._pixels[:] = 1 + (self.time * 7 + EYES.index(agent)) % 200
        return self._pixels.copy() if self.time % 2 else self._pixels.copy() * 1

    def payment(self, agent: str, action: Any) -> float:
        self.total += float(np.sum(np.asarray(action, np.float64)))
        return float(np.round(self.total, 3)) + 0.25 * EYES.count(agent)

    def told(self, agent: str) -> dict[str, Any]:
        info: dict[str, Any] = {}
        if agent in EYES and self.time % 3 == 0:
            info["action_mask"] = (np.arange(4) + self.time) % 3 != 0
        if agent == "hand_0":
            info["time"] = self.time
        if agent == "eye_2":
            info["word"] = f"at {self.time}"
        return info

    def fate(self, agent: str) -> tuple[bool, bool]:
        """Whether the agent is terminated, truncated."""
        if self.time >= self.length:
            return bool(self.random.random() < 0.4), True
        dies = self.random.random() < 0.15
        return dies, False

    def newcomers(self) -> list[str]:
        absent = [a for a in self.possible_agents if a not in self.agents]
        return [a for a in absent if self.random.random() < 0.2]

    def check(self) -> None:
        if self.fail_at is not None and self.time == self.fail_at:
            raise RuntimeError("the crowd is upset")

    def state(self) -> Any:
        return np.array([self.time, len(self.agents), self.total], np.float32)

    def render(self) -> Any:
        return np.zeros((2, 2, 3), np.uint8)

    def close(self) -> None:
        self.closed = True

    @property
    def unwrapped(self) -> Any:
        return self


class Crowd(Agents):
    """All act at once."""

    def reset(self, seed: int | None = None, options: Any = None) -> Any:
        self.begin(seed)
        self.options = options
        observations = {agent: self.look(agent) for agent in self.agents}
        return observations, {agent: self.told(agent) for agent in self.agents}

    def step(self, actions: dict[str, Any]) -> Any:
        assert sorted(actions) == sorted(self.agents), (actions, self.agents)
        self.time += 1
        self.check()
        present = list(self.agents)
        rewards = {agent: self.payment(agent, actions[agent]) for agent in present}
        fates = {agent: self.fate(agent) for agent in present}
        if self.time < self.length:
            present += self.newcomers()
        observations = {agent: self.look(agent) for agent in present}
        infos = {agent: self.told(agent) for agent in present}
        self.agents = [a for a in present if not any(fates.get(a, (False, False)))]
        if self.odd == "silent" and self.time == 2:
            self.agents.pop(0)
        if self.odd == "stranger" and self.time == 2:
            self.agents.append("stranger_0")
        terminated = {agent: fates.get(agent, (False, False))[0] for agent in present}
        truncated = {agent: fates.get(agent, (False, False))[1] for agent in present}
        if self.odd == "haunted":
            observations["ghost_0"] = self.look("eye_0")
        if self.odd == "lists" and self.time == 2:
            return observations, [*rewards], [*terminated], [*truncated], [*infos]
        if self.odd == "untold" and self.time == 2:
            return observations, rewards, terminated, truncated, None
        if self.odd == "unpaid" and self.time == 2:
            return observations, None, terminated, truncated, infos
        if self.odd == "talks" and self.time == 2:
            infos = dict.fromkeys(infos, "hello")
        if self.odd == "shrugs" and self.time == 2:
            rewards[present[0]] = None
            infos = dict.fromkeys(infos)
        return observations, rewards, terminated, truncated, infos


class Everyone(Crowd):
    """All are there at the start."""

    def __init__(self) -> None:
        super().__init__(odd="everyone")


class SmallerCrowd(Crowd):
    """Fewer may come."""

    possible_agents = [*EYES]  # noqa: RUF012


class Table(Agents):
    """They act in turn; who is dead is stepped with None, as PettingZoo has it."""

    def reset(self, seed: int | None = None, options: Any = None) -> None:
        self.begin(seed)
        self.options = options
        self.length *= 3
        self.rewards = dict.fromkeys(self.agents, 0.0)
        self.terminations = dict.fromkeys(self.agents, False)
        self.truncations = dict.fromkeys(self.agents, False)
        self.infos = {agent: self.told(agent) for agent in self.agents}
        self.turn = 0
        self.agent_selection = self.agents[0]

    def agent_iter(self) -> Any:
        raise NotImplementedError("the tests have loops of their own")

    def observe(self, agent: str) -> Any:
        return self.look(agent)

    def step(self, action: Any) -> None:
        agent = self.agent_selection
        if self.terminations[agent] or self.truncations[agent]:
            assert action is None
            self._drop(agent)
            return
        assert action is not None
        self.time += 1
        self.check()
        self.rewards = dict.fromkeys(self.agents, 0.0)
        self.rewards[agent] = self.payment(agent, action)
        other = self.agents[-1]
        self.rewards[other] -= 0.5
        for one in self.agents:
            terminated, truncated = self.fate(one)
            self.terminations[one] = self.terminations[one] or terminated
            self.truncations[one] = self.truncations[one] or truncated
        if self.time < self.length:
            for one in self.newcomers():
                self._add(one)
        self.infos = {one: self.told(one) for one in self.agents}
        if self.odd == "undead":
            self.terminations = dict.fromkeys(self.agents, True)
        if self.odd == "talks":
            self.infos = dict.fromkeys(self.agents, "hello")
        if self.odd == "shrugs":
            self.rewards[agent] = None
        if self.odd in ("rewards", "infos"):
            setattr(self, self.odd, None)
        self.turn += 1
        self.agent_selection = self.agents[self.turn % len(self.agents)]

    def _add(self, agent: str) -> None:
        self.agents.append(agent)
        self.rewards[agent] = 0.0
        self.terminations[agent] = self.truncations[agent] = False

    def _drop(self, agent: str) -> None:
        if self.odd == "undead":
            return
        self.agents.remove(agent)
        for held in (self.rewards, self.terminations, self.truncations, self.infos):
            held.pop(agent, None)
        if self.agents:
            self.agent_selection = self.agents[self.turn % len(self.agents)]


class Echo(Agents):
    """Both see what the left one did, in parts that are not in sorted order."""

    possible_agents = ["left", "right"]  # noqa: RUF012
    parts = spaces.Dict([(key, spaces.Box(0, 9, (1,), np.int8)) for key in "ba"])

    def observation_space(self, agent: str) -> spaces.Space[Any]:
        return self.parts

    action_space = observation_space

    def reset(self, seed: int | None = None, options: Any = None) -> Any:
        self.agents = list(self.possible_agents)
        seen = {"a": np.array([1], np.int8), "b": np.array([2], np.int8)}
        return dict.fromkeys(self.agents, seen), {}

    def step(self, actions: dict[str, Any]) -> Any:
        nobody = dict.fromkeys(self.agents, False)
        seen = dict.fromkeys(self.agents, actions["left"])
        return seen, dict.fromkeys(self.agents, 0), nobody, nobody, {}


FINE, RAISE, KILL = range(3)


class Fragile(Agents):
    """Three agents count their steps, do what actions say, and one leaves early."""

    possible_agents = ["early", "late_0", "late_1"]  # noqa: RUF012

    def observation_space(self, agent: str) -> spaces.Space[Any]:
        return spaces.Box(0, 100, (1,), np.int16)

    def action_space(self, agent: str) -> spaces.Space[Any]:
        return spaces.Discrete(3)

    def reset(self, seed: int | None = None, options: Any = None) -> Any:
        self.agents = list(self.possible_agents)
        self.time = 0
        return self._seen(self.agents), {agent: {} for agent in self.agents}

    def _seen(self, agents: Any) -> Any:
        return {agent: np.array([10 + self.time], np.int16) for agent in agents}

    def step(self, actions: dict[str, Any]) -> Any:
        if RAISE in actions.values():
            raise ValueError("not that one")
        if KILL in actions.values():
            os.kill(os.getpid(), signal.SIGKILL)
        self.time += 1
        present = list(self.agents)
        over = self.time == 6
        terminated = {a: self.time == 2 and a == "early" for a in present}
        truncated = dict.fromkeys(present, over)
        self.agents = [a for a in present if not (terminated[a] or truncated[a])]
        rewards = dict.fromkeys(present, 1.0)
        return self._seen(present), rewards, terminated, truncated, {}
