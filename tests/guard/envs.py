"""Envs for the guard: integer arithmetic and NumPy's seeded streams, nothing else.

What they return is the same on every machine, so its hashes can be recorded.
"""

from __future__ import annotations

import os
import random
import signal
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import batch_space

import corral


class Walk(gymnasium.Env):
    """A walk of random length, with infos of many kinds; knows its seeds and tasks."""

    observation_space = spaces.Box(-1000, 1000, (3,), np.float32)
    action_space = spaces.Discrete(4)

    def __init__(self) -> None:
        self.seeds: list[int | None] = []
        self.kept = np.zeros(3, np.float32)

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        self.seeds.append(seed)
        task = (options or {}).get("task")
        self.goal = int(self.np_random.integers(2, 7)) if task is None else task
        self.cut = int(self.np_random.integers(3, 8))
        self.place = int(self.np_random.integers(-50, 50))
        self.time, self.words = 0, []
        return self.seen(), {"first": self.place, "goal": self.goal}

    def seen(self) -> Any:
        # One buffer for ever: a result that is not copied shows later values.
        self.kept[:] = self.place, self.time, self.goal
        return self.kept

    def step(self, action: Any) -> Any:
        self.time += 1
        self.place += int(action) + int(self.np_random.integers(-3, 4))
        terminated, truncated = self.time >= self.goal, self.time >= self.cut
        return self.seen(), self.place / 8, terminated, truncated, self.told()

    def told(self) -> dict[str, Any]:
        self.words.append(f"step {self.time}")
        info: dict[str, Any] = {
            "place": self.place,
            "half": self.place / 2,
            "pair": np.array([self.time, self.place], np.int16),
            "even": self.place % 2 == 0,
        }
        if self.time % 2:
            info["odd"] = np.float32(self.time)
        if self.place % 3 == 0:
            info["words"] = self.words  # appended to later on: infos are copies
            info["deep"] = {"time": self.time, "name": "third"}
        return info

    def add(self, number: int, *, twice: bool = False) -> int:
        return self.place + number * (2 if twice else 1)

    def action_masks(self) -> Any:
        return (np.arange(4) + self.time) % 3 != 0


class Rooms(Walk):
    """Observations and actions in nested Dicts and Tuples, odd dtypes and shapes."""

    observation_space = spaces.Dict(  # type: ignore[assignment]
        [
            ("zoom", spaces.Box(0, 255, (2, 3), np.uint8)),
            ("kind", spaces.Discrete(5, start=-2)),
            ("bits", spaces.MultiBinary(4)),
            ("empty", spaces.Box(-1, 1, (0,), np.float32)),
            ("half", spaces.Box(-100, 100, (), np.float16)),
            (
                "pair",
                spaces.Tuple(
                    [
                        spaces.Box(-(2**62), 2**62, (2,), np.int64),
                        spaces.MultiDiscrete([3, 5]),
                    ]
                ),
            ),
        ]
    )
    action_space = spaces.Tuple(  # type: ignore[assignment]
        [spaces.Dict(push=spaces.Box(-1, 1, (2,), np.float32)), spaces.Discrete(4)]
    )

    def seen(self) -> Any:
        return {
            "zoom": np.full((2, 3), (self.place * 7) % 256, np.uint8),
            "kind": np.int64(self.place % 5 - 2),
            "bits": np.array([self.place >> n & 1 for n in range(4)], np.int8),
            "empty": np.zeros(0, np.float32),
            "half": np.float16(self.place / 4),
            "pair": (
                np.array([2**53 + 1 + self.place, -self.time]),
                np.array([self.place % 3, self.time % 5]),
            ),
        }

    def step(self, action: Any) -> Any:
        parts, choice = action
        pushed = int(parts["push"][0] * 8) - int(parts["push"][1] * 4)
        return super().step(int(choice) + pushed)


class Letters(Walk):
    """Observations and actions of no fixed size: they travel by mail."""

    observation_space = spaces.Dict(  # type: ignore[assignment]
        text=spaces.Text(20),
        steps=spaces.Sequence(spaces.Box(-1000, 1000, (1,), np.int64)),
        graph=spaces.Graph(spaces.Box(-1000, 1000, (2,), np.int64), spaces.Discrete(9)),
        one=spaces.OneOf([spaces.Discrete(9), spaces.Box(-999, 999, (2,), np.int64)]),
        plain=spaces.Box(-1000, 1000, (2,), np.int32),
    )
    action_space = spaces.Text(8)  # type: ignore[assignment]

    def __init__(self) -> None:
        super().__init__()
        self.both = np.zeros(2, np.int64)  # one buffer for ever, as above

    def seen(self) -> Any:
        which = self.place % 2
        self.both[:] = self.place, self.goal
        one = self.both if which else np.int64(self.time)
        return {
            "text": f"at {self.place}".replace("-", "m").replace(" ", ""),
            "steps": tuple(np.array([n * self.place]) for n in range(self.time % 3)),
            "graph": spaces.GraphInstance(
                nodes=np.array([[self.place, n] for n in range(1 + self.time % 2)]),
                edges=np.array([self.time % 9]),
                edge_links=np.array([[0, 0]], np.int32),
            ),
            "one": (np.int64(which), one),
            "plain": np.array([self.place, self.time], np.int32),
        }

    def step(self, action: str) -> Any:
        return super().step(len(action) % 4)


class Steered(Walk):
    """Continuous actions, which arrive with all their digits."""

    action_space = spaces.Box(-4, 4, (1,), np.float32)  # type: ignore[assignment]

    def step(self, action: Any) -> Any:
        *result, info = super().step(int(action[0] * 2))
        return *result, {**info, "given": action.copy()}


class Dice(Walk):
    """Draws from the global generators, and from its worker's own."""

    def told(self) -> dict[str, Any]:
        return {"python": random.random(), "numpy": np.random.random()}


class Fragile(Walk):
    """Raises where the action is 8, and takes its process down where it is 9."""

    action_space = spaces.Discrete(10)  # type: ignore[assignment]

    def step(self, action: Any) -> Any:
        if action == 8:
            raise ArithmeticError(f"broke at step {self.time + 1}")
        if action == 9:
            os.kill(os.getpid(), signal.SIGKILL)
        return super().step(action % 4)


class Unlucky(Walk):
    """Raises in the third step of episodes whose seed is odd."""

    def step(self, action: Any) -> Any:
        if self.time == 2 and self.seeds[-1] is not None and self.seeds[-1] % 2:
            raise ArithmeticError("an odd seed")
        return super().step(action)


class Fleet(VectorEnv[Any, Any, Any]):
    """Walks by the dozen: every row draws from its own seed."""

    metadata = {"autoreset_mode": AutoresetMode.DISABLED}  # noqa: RUF012

    def __init__(self, num_envs: int) -> None:
        self.num_envs = num_envs
        self.single_observation_space = spaces.Box(-1000, 1000, (2,), np.int64)
        self.single_action_space = spaces.Discrete(4)
        self.observation_space = batch_space(self.single_observation_space, num_envs)
        self.action_space = batch_space(self.single_action_space, num_envs)
        self.place = np.zeros(num_envs, np.int64)
        self.time = np.zeros(num_envs, np.int64)
        self.goal = np.ones(num_envs, np.int64)
        self.draws: list[Any] = [None] * num_envs

    def seen(self) -> Any:
        return np.stack([self.place, self.time], axis=1)

    def reset(self, *, seed: Any = None, options: Any = None) -> Any:
        chosen = np.asarray(options["reset_mask"])
        for row in np.flatnonzero(chosen):
            if seed[row] is not None or self.draws[row] is None:
                self.draws[row] = np.random.default_rng(seed[row])
            rng = self.draws[row]
            self.place[row], self.time[row] = rng.integers(-50, 50), 0
            self.goal[row] = rng.integers(3, 8)
        return self.seen(), {"goal": self.goal.copy(), "_goal": chosen.copy()}

    def step(self, actions: Any, step_mask: Any = None) -> Any:
        moving = np.ones(self.num_envs, bool) if step_mask is None else step_mask
        self.place[moving] += np.asarray(actions)[moving] * 3 - 4
        self.time[moving] += 1
        ended = moving & (self.time >= self.goal)
        over = ended & (self.place % 2 == 0)
        rewards = np.where(moving, self.place / 4, 0.0)
        infos = {"twice": 2 * self.place, "_twice": moving.copy()}
        return self.seen(), rewards, over, ended & ~over, infos


# Several agents -----------------------------------------------------------------------

EYES, HANDS = ("eye_0", "eye_1"), ("hand_0",)


class Agents:
    """Who is there, and what they see."""

    possible_agents = [*EYES, *HANDS]  # noqa: RUF012
    metadata: dict[str, Any] = {"name": "guarded_v0"}  # noqa: RUF012
    state_space = spaces.Box(-1000, 1000, (2,), np.float32)
    render_mode = None

    def observation_space(self, agent: str) -> Any:
        if agent in EYES:
            return spaces.Box(0, 255, (2, 2), np.uint8)
        return spaces.Dict(
            count=spaces.Box(-(2**60), 2**60, (1,), np.int64), kind=spaces.Discrete(6)
        )

    def action_space(self, agent: str) -> Any:
        if agent in EYES:
            return spaces.Discrete(4)
        return spaces.Box(-2, 2, (2,), np.float32)

    def begin(self, seed: int | None) -> None:
        if seed is not None or not hasattr(self, "random"):
            self.random = np.random.default_rng(seed)
        self.seed = seed
        self.time = self.total = 0
        self.length = int(self.random.integers(4, 8))
        self.leaves = int(self.random.integers(2, 5))
        self.agents = list(self.possible_agents)

    def look(self, agent: str) -> Any:
        if agent in EYES:
            level = (self.total * 5 + self.time + EYES.index(agent)) % 250 + 1
            return np.full((2, 2), level, np.uint8)
        return {"count": np.array([2**53 + self.total]), "kind": self.time % 5 + 1}

    def told(self, agent: str) -> dict[str, Any]:
        if agent in EYES:
            return {"action_mask": (np.arange(4) + self.time) % 3 != 0}
        return {"time": self.time, "word": f"at {self.time}"}

    def pay(self, agent: str, action: Any) -> float:
        self.total += int(np.sum(np.asarray(action)) * 2)
        return self.total / 4 + (agent in HANDS)

    def fate(self, agent: str) -> tuple[bool, bool]:
        """Whether it is terminated, truncated."""
        if agent == "eye_1" and self.time == self.leaves:
            return True, False
        return False, self.time >= self.length

    def state(self) -> Any:
        return np.array([self.time, len(self.agents)], np.float32)

    def close(self) -> None:
        pass

    @property
    def unwrapped(self) -> Any:
        return self


class Crowd(Agents):
    """All act at once."""

    def reset(self, seed: int | None = None, options: Any = None) -> Any:
        self.begin(seed)
        seen = {agent: self.look(agent) for agent in self.agents}
        return seen, {agent: self.told(agent) for agent in self.agents}

    def step(self, actions: dict[str, Any]) -> Any:
        self.time += 1
        present = list(self.agents)
        rewards = {agent: self.pay(agent, actions[agent]) for agent in present}
        fates = {agent: self.fate(agent) for agent in present}
        self.agents = [agent for agent in present if not any(fates[agent])]
        return (
            {agent: self.look(agent) for agent in present},
            rewards,
            {agent: fate[0] for agent, fate in fates.items()},
            {agent: fate[1] for agent, fate in fates.items()},
            {agent: self.told(agent) for agent in present},
        )


class Pair(Crowd):
    """Two agents with the same spaces, for one policy."""

    possible_agents = list(EYES)  # noqa: RUF012


class Turns(Agents):
    """They act one after the other."""

    def reset(self, seed: int | None = None, options: Any = None) -> None:
        self.begin(seed)
        self.rewards = dict.fromkeys(self.agents, 0.0)
        self.terminations = dict.fromkeys(self.agents, False)
        self.truncations = dict.fromkeys(self.agents, False)
        self.infos = {agent: self.told(agent) for agent in self.agents}
        self.agent_selection: str | None = self.agents[0]

    def observe(self, agent: str) -> Any:
        return self.look(agent)

    def agent_iter(self) -> Any:
        raise NotImplementedError

    def step(self, action: Any) -> None:
        agent = self.agent_selection
        assert agent is not None
        if self.terminations[agent] or self.truncations[agent]:
            place = self.agents.index(agent)
            self.agents.remove(agent)
            for table in (self.rewards, self.terminations, self.truncations):
                del table[agent]
            del self.infos[agent]
            rest = self.agents
            self.agent_selection = rest[place % len(rest)] if rest else None
            return
        self.time += agent == self.agents[0]
        paid = self.pay(agent, action)
        self.rewards = {one: paid * (one == agent) for one in self.agents}
        for one in self.agents:
            self.terminations[one], self.truncations[one] = self.fate(one)
        self.infos = {one: self.told(one) for one in self.agents}
        place = self.agents.index(agent)
        self.agent_selection = self.agents[(place + 1) % len(self.agents)]


def make_cartpole() -> Any:
    return gymnasium.make("CartPole-v1")


def worker_draw() -> Any:
    """What the worker's own generator draws, and which slots it runs."""
    worker = corral.this_worker()
    return list(worker.slots), worker.rng.integers(2**62, size=2).tolist()


class Counted(Walk):
    """Tells what its worker's generator drew."""

    def told(self) -> dict[str, Any]:
        return {"drawn": self.drawn}

    def __init__(self) -> None:
        super().__init__()
        self.drawn = repr(worker_draw())
