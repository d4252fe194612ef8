"""Several agents in one env, as groups of those with equal spaces.

    team    all agents of an env, and how they are grouped
    group   agents whose observation spaces are equal, and whose action spaces are

To the rest of the engine such an env is one env, whose observation is a dict of arrays
(in one buffer) and whose action is one. Per group, with its agents as the first axis:

    obs          each agent's observation: zeros while it is not alive, except in the
                 step that ends it, which has its last observation
    alive        whether the agent is alive, and will act
    acting       (agents in turn) whether it acts now
    reward, terminated, truncated      of the transition that led here
    mask         which actions it may take, where the env's infos can carry a mask

So block, recorder, final observations, infos and restarts work for several agents
without knowing of them. The reward of the env is the sum over its agents.
"""

from __future__ import annotations

import re
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from functools import cached_property
from operator import itemgetter
from typing import Any

import numpy as np
from gymnasium import Space, spaces
from gymnasium.vector.utils import batch_space

from corral.engine.layout.codec import codec_for, register_codec
from corral.engine.layout.composite import PackedCodec
from corral.engine.tree import mapped
from corral.errors import OptionError

# The key of an env's metadata that holds its Team.
TEAM_KEY = "corral.team"
# The name of the whole env's state, beside those of the groups.
STATE_KEY = "state"
# PettingZoo's key of action masks, in observations and in infos.
MASK_KEY = "action_mask"

# With more actions, masks stay in the infos: most such envs have none at all.
MAX_MASKED_ACTIONS = 1 << 16

Agent = Hashable


@dataclass(frozen=True, slots=True)
class Group:
    """Agents with equal spaces, in the env's order.

    Attributes:
        observation_space: Of one agent.
        action_space: Of one agent.
    """

    name: str
    agents: tuple[Agent, ...]
    observation_space: Space[Any]
    action_space: Space[Any]

    @property
    def mask(self) -> int:
        """Entries of a mask of one agent's actions; 0 if it can have none.

        One per action; those of several sets of actions are one after the other.
        """
        space = self.action_space
        if isinstance(space, spaces.MultiDiscrete) and len(space.shape) == 1:
            return int(space.nvec.sum())
        return int(space.n) if isinstance(space, spaces.Discrete) else 0

    @property
    def mask_in_obs(self) -> bool:
        """Whether observations carry the mask."""
        parts: Any = getattr(self.observation_space, "spaces", {})
        in_dict = self.mask > 0 and MASK_KEY in parts
        return in_dict and parts[MASK_KEY].shape == (self.mask,)

    @property
    def mask_by_info(self) -> bool:
        """Whether the block has a place for masks that come with infos."""
        return 0 < self.mask <= MAX_MASKED_ACTIONS and not self.mask_in_obs

    def leaves(self, turns: bool) -> spaces.Dict:
        """The space of what the block holds of this group."""
        count = len(self.agents)
        flags = ["alive", "terminated", "truncated"] + ["acting"] * turns
        parts: dict[str, Space[Any]] = {name: _booleans(count) for name in flags}
        parts["obs"] = batched(self.observation_space, count)
        parts["reward"] = spaces.Box(-np.inf, np.inf, (count,), np.float64)
        if self.mask_by_info:
            parts["mask"] = _booleans(count, self.mask)
        return spaces.Dict(parts)


@dataclass(frozen=True)
class Team:
    """All agents that an env may have, in its own order.

    Attributes:
        turns: Whether agents act one at a time.
        state_space: Of the whole env's state, where it was asked for.
    """

    agents: tuple[Agent, ...]
    groups: tuple[Group, ...]
    turns: bool
    state_space: Space[Any] | None = None

    @cached_property
    def place(self) -> dict[Agent, tuple[Group, int]]:
        """Agent -> its group, and its position in there."""
        return {
            agent: (group, position)
            for group in self.groups
            for position, agent in enumerate(group.agents)
        }

    def group_of(self, agent: Agent) -> Group:
        """The agent's group."""
        return self.place[agent][0]

    def by_agent(self, action: dict[str, Any]) -> dict[Agent, Any]:
        """An action of the env, which is by group, as one of each agent."""
        found: dict[Agent, Any] = {}
        for agent in self.agents:
            group, at = self.place[agent]
            found[agent] = mapped(itemgetter(at), action[group.name])
        return found

    @property
    def observation_space(self) -> TeamSpace:
        """The env's observation space, as the engine uses it."""
        parts: dict[str, Space[Any]] = {
            group.name: group.leaves(self.turns) for group in self.groups
        }
        if self.state_space is not None:
            parts[STATE_KEY] = self.state_space
        return TeamSpace(parts)

    @property
    def action_space(self) -> spaces.Dict:
        """The env's action space, as the engine uses it."""
        return spaces.Dict(
            {
                group.name: batched(group.action_space, len(group.agents))
                for group in self.groups
            }
        )


def masks_of(group: Group, leaves: dict[str, Any]) -> Any:
    """The masks among what the block holds of a group; None without masks."""
    if group.mask_in_obs:
        return leaves["obs"][MASK_KEY]
    return leaves["mask"] if group.mask_by_info else None


class TeamSpace(spaces.Dict):
    """A Dict whose values come as one buffer, and whose batches are dicts of views."""


def packed(space: TeamSpace) -> PackedCodec:
    """The codec of a team's observations."""
    return PackedCodec(codec_for(spaces.Dict(space.spaces)))


register_codec(TeamSpace, packed)


def team_of(env: Any, turns: bool, state: bool) -> Team:
    """The team of a PettingZoo env."""
    possible = getattr(env, "possible_agents", None)
    if not possible:
        raise OptionError(
            f"env has no agents: {env} has no possible_agents; it must list every "
            "agent that may ever appear, since the arrays have room for all of them"
        )
    agents = tuple(possible)
    if len(set(agents)) < len(agents):
        raise OptionError(f"{env} lists an agent twice in possible_agents: {agents}")
    found: list[tuple[Space[Any], Space[Any], list[Agent]]] = []
    for agent in agents:
        observation, action = env.observation_space(agent), env.action_space(agent)
        _check_fixed(agent, "observation", observation)
        _check_fixed(agent, "action", action)
        for known_observation, known_action, members in found:
            if observation == known_observation and action == known_action:
                members.append(agent)
                break
        else:
            found.append((observation, action, [agent]))
    names = _names([members for _, _, members in found])
    groups = tuple(
        Group(name, tuple(members), observation, action)
        for name, (observation, action, members) in zip(names, found, strict=True)
    )
    state_space = getattr(env, "state_space", None) if state else None
    if state and not isinstance(state_space, Space):
        raise OptionError(f"state=True needs a state_space, and {env} has none")
    return Team(agents, groups, turns, state_space)


def batched(space: Space[Any], count: int) -> Space[Any]:
    """The space of `count` values at once; parts keep their order.

    Gymnasium's `batch_space` sorts the parts of a Dict, and leaves go by order.
    """
    if isinstance(space, spaces.Dict):
        parts = [(key, batched(part, count)) for key, part in space.items()]
        return spaces.Dict(parts)
    if isinstance(space, spaces.Tuple):
        return spaces.Tuple([batched(part, count) for part in space])
    return batch_space(space, count)


def _booleans(*shape: int) -> spaces.Box:
    return spaces.Box(0, 1, shape, np.bool_)  # type: ignore[arg-type]


def _check_fixed(agent: Agent, kind: str, space: Any) -> None:
    if not isinstance(space, Space):
        raise OptionError(
            f"agent {agent!r} has {space!r} for an {kind} space, not a Gymnasium space"
        )
    if codec_for(space).mailed:
        raise OptionError(
            f"agent {agent!r} has the {kind} space {space}, whose values have no fixed "
            "size; with several agents only spaces of fixed size are supported"
        )


def _names(groups: Sequence[Sequence[Agent]]) -> list[str]:
    """A name for each group: the agents' common stem, if it is unique."""
    wanted = ["+".join(dict.fromkeys(map(_stem, agents))) for agents in groups]
    names = [
        str(agents[0]) if wanted.count(name) > 1 or name == STATE_KEY else name
        for name, agents in zip(wanted, groups, strict=True)
    ]
    if len(set(names)) < len(names) or STATE_KEY in names:
        names = [f"group_{index}" for index in range(len(groups))]
    return names


def _stem(agent: Agent) -> str:
    """The name without its number: "adversary_0" -> "adversary"."""
    return re.sub(r"[_\- ]?\d+$", "", str(agent)) or str(agent)
