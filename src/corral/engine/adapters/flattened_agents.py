"""All agents of a PettingZoo env as one agent of a Gymnasium env.

For learners that know one agent: one vector holds what all agents see, and one action
holds what all do. It runs where the env runs, so that everything that takes a Gymnasium
env takes it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from itertools import accumulate
from typing import Any

import gymnasium
import numpy as np
from gymnasium import Space, spaces
from gymnasium.spaces.utils import flatdim, flatten, flatten_space
from numpy.typing import NDArray

from corral.core import NO_TASK
from corral.engine.adapters.multi_agent import layer_with
from corral.engine.adapters.parallel import ParallelAdapter
from corral.engine.adapters.pettingzoo import TURNS, adapt_multi
from corral.engine.adapters.pettingzoo_wrappers import without_detours
from corral.engine.adapters.roster import as_mask, as_number
from corral.engine.adapters.team import MASK_KEY, Agent, Team
from corral.engine.adapters.turn_steps import TurnSteps
from corral.engine.keywords import check_choice
from corral.engine.tree import mapped
from corral.errors import OptionError

Array = NDArray[Any]
Rewards = Mapping[Agent, float]


_REWARDS: dict[str, Callable[[Rewards], float]] = {
    "sum": lambda rewards: float(sum(rewards.values())),
    "mean": lambda rewards: float(sum(rewards.values())) / max(len(rewards), 1),
}


class FlattenedAgents(gymnasium.Env[Any, Any]):
    """A ParallelEnv seen as one agent, for Stable-Baselines3 and the like.

        envs = corral.make_sb3(make_env, 8, wrappers=[corral.FlattenedAgents])
        PPO("MlpPolicy", envs).learn(100_000)

    Observations are flattened and concatenated in the order of `possible_agents`, as
    float32, with zeros for agents that are not alive. The action has a part for every
    agent, in the same order; the parts of agents that are not alive are ignored.
    Discrete actions become one MultiDiscrete, continuous ones one Box; agents of both
    kinds are refused.

    The episode lasts until no agent is left. It is truncated if one of the agents
    that left last was truncated, and terminated otherwise.

    `info` has `agent_rewards` and `alive`, one entry per possible agent, and the info
    of each agent under the agent's name.

    Args:
        env: a ParallelEnv or an AECEnv. Where agents must act in turn, a step is one
            agent's turn: its part of the action is used, and a one-hot vector of the
            agent whose turn it is comes after the observations.
        reward: how the agents' rewards become one: "sum", "mean" over the agents that
            were alive, or a function of the dict of rewards.
    """

    def __init__(
        self, env: Any, reward: str | Callable[[Rewards], float] = "sum"
    ) -> None:
        adapter = adapt_multi(env, parallel=TURNS)
        assert isinstance(adapter, ParallelAdapter)
        self._adapter = adapter
        self.env = env = adapter.env
        self.possible_agents = list(env.possible_agents)
        self._action = JointAction(adapter.team)
        self.action_space = self._action.space
        boxes = [
            flat_box(f"agent {agent!r}", adapter.team.group_of(agent).observation_space)
            for agent in self.possible_agents
        ]
        self._parts = _side_by_side(self.possible_agents, map(flatdim, boxes))
        self._turns = isinstance(env, TurnSteps)
        if self._turns:
            boxes.append(spaces.Box(0, 1, (len(boxes),), np.float32))
        # Zeros stand for agents that are gone, so they must be in the space.
        low = np.minimum(np.concatenate([box.low for box in boxes]), 0)
        high = np.maximum(np.concatenate([box.high for box in boxes]), 0)
        self.observation_space = spaces.Box(
            low.astype(np.float32), high.astype(np.float32), dtype=np.float32
        )
        self.metadata = dict(getattr(env, "metadata", None) or {})
        self.render_mode = adapter.spec.render_mode
        if not callable(reward):
            check_choice("reward", reward, _REWARDS)
            reward = _REWARDS[reward]
        self._reward = reward
        self._infos: Mapping[Agent, Any] = {}

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[NDArray[np.float32], dict[str, Any]]:
        """Start an episode with the agents that the env lists."""
        adapter = self._of_this_env()
        result = adapter.begin(adapter.course.reset, seed, options, NO_TASK)
        adapter.begun(result)
        observations, self._infos = result
        return self._joint(observations), self._joint_info({})

    def step(
        self, action: Any
    ) -> tuple[NDArray[np.float32], float, bool, bool, dict[str, Any]]:
        """Step every living agent with its part of the action."""
        adapter = self._of_this_env()
        living = adapter.roster.names
        actions = {agent: self._action.of(action, agent) for agent in living}
        result = adapter.course.step(actions)
        _, _, terminated, truncated, _ = adapter.outcome(result)
        observations, rewards, _, _, self._infos = result
        rewards = {a: as_number(reward, a) for a, reward in rewards.items()}
        return (
            self._joint(observations),
            float(self._reward(rewards)),
            terminated,
            truncated,
            self._joint_info(rewards),
        )

    def _of_this_env(self) -> ParallelAdapter:
        adapter = self._adapter
        if adapter.env is not self.env:  # the user has replaced it
            adapter.env, adapter.course = self.env, without_detours(self.env)
        return adapter

    def _joint(self, observations: Mapping[Agent, Any]) -> NDArray[np.float32]:
        """The observations of the living agents, and of those that have just ended."""
        roster = self._adapter.roster
        joint = np.zeros(flatdim(self.observation_space), np.float32)
        for seat in (*roster.living, *roster.leaving):
            if seat.agent in observations:
                joint[self._parts[seat.agent]] = self._flat(seat.agent)
        if self._turns and self.env.acting is not None:
            first = len(joint) - len(self.possible_agents)
            joint[first + self.possible_agents.index(self.env.acting)] = 1.0
        return joint

    def _flat(self, agent: Agent) -> Any:
        """What the agent sees, as Gymnasium flattens it."""
        roster = self._adapter.roster
        group, at = roster.team.place[agent]
        seen = mapped(lambda leaf: leaf[0, at], roster.value[group.name]["obs"])
        return flatten(group.observation_space, seen)

    def agent_view(self, observation: Any, agent: Agent) -> Any:
        """One agent's part of an observation, or of a batch of observations."""
        return np.asarray(observation)[..., self._parts[agent]]

    def action_masks(self) -> NDArray[np.bool_]:
        """The action masks of all agents, concatenated, as sb3-contrib wants them."""
        if not self._action.masked:
            raise OptionError(
                "these agents' actions are a Box, and only discrete actions have masks"
            )
        return np.concatenate([self._mask(agent) for agent in self.possible_agents])

    def gives_masks(self) -> bool:
        """Begin an episode, and say whether agents have masks."""
        if not self._action.masked:
            return False
        self.reset(seed=0)
        by_info = any(MASK_KEY in (info or {}) for info in self._infos.values())
        return by_info or any(g.mask_in_obs for g in self._adapter.team.groups)

    def render(self) -> Any:
        """What the env renders."""
        return self.env.render()

    def close(self) -> None:
        self.env.close()

    def __getattr__(self, name: str) -> Any:
        # Other attributes are the env's: curricula call its methods.
        if name.startswith("_") or name == "env":
            raise AttributeError(name)
        return getattr(self.env, name)

    def set_wrapper_attr(self, name: str, value: Any, *, force: bool = True) -> bool:
        """Set the env's own attributes in the env, where its code looks for them."""
        if name in vars(self) or hasattr(type(self), name):
            return super().set_wrapper_attr(name, value, force=force)
        layer = layer_with(self.env, name)
        if layer is None and not force:
            return False
        setattr(self.env.unwrapped if layer is None else layer, name, value)
        return True

    def _joint_info(self, rewards: Rewards) -> dict[str, Any]:
        agents, alive = self.possible_agents, set(self._adapter.roster.names)
        joint = {str(agent): info for agent, info in self._infos.items() if info}
        joint["agent_rewards"] = np.array(
            [float(rewards.get(agent, 0.0)) for agent in agents]
        )
        joint["alive"] = np.array([agent in alive for agent in agents])
        return joint

    def _mask(self, agent: Agent) -> NDArray[np.bool_]:
        """Masks are in the info or in the observation, as PettingZoo's envs have it."""
        size, roster = self._action.choices(agent), self._adapter.roster
        if agent in roster.names:
            group, position = roster.team.place[agent]
            mask = (self._infos.get(agent) or {}).get(MASK_KEY)
            if mask is None and group.mask_in_obs:
                mask = roster.value[group.name]["obs"][MASK_KEY][0, position]
            if mask is not None:
                allowed: NDArray[np.bool_] = as_mask(mask, size, agent) != 0
                # Of agents that wait, some envs allow nothing.
                return allowed if allowed.any() else ~allowed
        # An agent that is not alive may do anything: a distribution needs a choice.
        return np.ones(size, np.bool_)


# Spaces of all agents as one ----------------------------------------------------------


class JointAction:
    """One action for all agents: a MultiDiscrete, or one Box.

    Raises OptionError if some agents have discrete actions and others continuous ones:
    no single Gymnasium space holds both in a form that learners take.
    """

    def __init__(self, team: Team) -> None:
        self._spaces = {one: team.group_of(one).action_space for one in team.agents}
        kinds = {agent: _kind(agent, space) for agent, space in self._spaces.items()}
        if len(set(kinds.values())) > 1:
            listed = ", ".join(f"{agent!r} {kind}" for agent, kind in kinds.items())
            raise OptionError(
                "the agents' actions cannot be joined, since some are discrete (sets) "
                f"and others continuous (numbers): {listed}. Use corral.make_multi, "
                "which keeps them apart, or wrap the env so that all are of one kind"
            )
        # Whether actions can be masked: discrete ones can, numbers cannot.
        self.masked = "sets" in kinds.values()
        each = self._spaces.values()
        self.space: Any = flatten_space(spaces.Tuple(each))
        sizes = map(flatdim, each)
        if self.masked:
            choices = [_choices(space) for space in each]
            self.space = spaces.MultiDiscrete(np.concatenate(choices))
            sizes = map(len, choices)
        self._parts = _side_by_side(team.agents, sizes)

    def of(self, action: Any, agent: Agent) -> Any:
        """One agent's own action."""
        space: Any = self._spaces[agent]
        part = action[self._parts[agent]]
        if isinstance(space, spaces.Discrete):
            return int(part[0]) + int(space.start)
        own: Array = np.reshape(part, space.shape) + getattr(space, "start", 0)
        return own.astype(space.dtype)

    def choices(self, agent: Agent) -> int:
        """How many entries the agent's mask has."""
        return sum(_choices(self._spaces[agent]))


def _side_by_side(agents: Iterable[Agent], sizes: Iterable[int]) -> dict[Agent, slice]:
    """Each agent's part of a vector in which the parts follow each other."""
    ends = [0, *accumulate(sizes)]
    return dict(zip(agents, map(slice, ends, ends[1:]), strict=True))


def _kind(agent: Agent, space: Space[Any]) -> str:
    if isinstance(space, (spaces.Discrete, spaces.MultiDiscrete, spaces.MultiBinary)):
        return "sets"
    if isinstance(space, spaces.Box) and np.issubdtype(space.dtype, np.floating):
        return "numbers"
    raise OptionError(
        f"agent {agent!r} has the action space {space}; only Discrete, MultiDiscrete "
        "and MultiBinary, or Box of floats, can be joined. corral.make_multi takes "
        "any; or wrap the env"
    )


def _choices(space: Any) -> list[int]:
    """Number of choices of each discrete action."""
    if isinstance(space, spaces.Discrete):
        return [int(space.n)]
    if isinstance(space, spaces.MultiBinary):
        return [2] * flatdim(space)
    return space.nvec.ravel().tolist()  # type: ignore[no-any-return]


def flat_box(owner: str, space: Space[Any]) -> spaces.Box:
    """The space as Gymnasium flattens it; OptionError if it cannot be."""
    flat = flatten_space(space) if space.is_np_flattenable else None
    if not isinstance(flat, spaces.Box):
        raise OptionError(
            f"{owner} has the observation space {space}, which cannot be flattened to "
            "a vector of fixed size; use corral.make_multi, or wrap the env"
        )
    return flat


def flat_batch(space: Space[Any], batch: Any, count: int) -> Array:
    """`(count, ...)` of a space as `(count, numbers)`; discrete values are one-hot."""
    if isinstance(space, (spaces.Dict, spaces.Tuple)):
        parts: Any = space.spaces
        keys = parts if isinstance(parts, dict) else range(len(parts))
        flat = [flat_batch(parts[key], batch[key], count) for key in keys]
        return np.concatenate(flat, axis=1)
    values = np.asarray(batch).reshape(count, math.prod(space.shape or ()))
    if isinstance(space, (spaces.Discrete, spaces.MultiDiscrete)):
        from_zero = values - np.ravel(space.start)
        hot = [np.arange(n) == from_zero[:, [i]] for i, n in enumerate(_choices(space))]
        values = np.concatenate(hot, axis=1)
    return values.astype(np.float32)
