"""Several agents' spaces as one space: joint actions and joint observations."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass
from itertools import chain
from typing import Any

import numpy as np
from gymnasium import Space, spaces
from gymnasium.spaces.utils import flatten_space
from numpy.typing import NDArray

from corral.engine.adapters.team import Agent, Team
from corral.engine.tree import mapped
from corral.errors import OptionError

Array = NDArray[Any]


@dataclass(frozen=True, slots=True)
class _Share:
    """One agent's part of the joint action, and how it becomes the agent's action."""

    part: slice
    own: Callable[[Array], Any]
    choices: tuple[int, ...]
    """Number of choices of each discrete action."""


class JointAction:
    """One action for all agents: a MultiDiscrete, or one Box.

    Raises OptionError if some agents have discrete actions and others continuous ones:
    no single Gymnasium space holds both in a form that learners take.
    """

    def __init__(self, team: Team) -> None:
        action_spaces = {one: team.group_of(one).action_space for one in team.agents}
        kinds = {agent: _kind(agent, space) for agent, space in action_spaces.items()}
        if len(set(kinds.values())) > 1:
            listed = ", ".join(f"{agent!r} {kinds[agent]}" for agent in kinds)
            raise OptionError(
                "the agents' actions cannot be joined, since some are discrete (sets) "
                f"and others continuous (numbers): {listed}. Use corral.make_multi, "
                "which keeps them apart, or wrap the env so that all are of one kind"
            )
        self._shares: dict[Agent, _Share] = {}
        end = 0
        for agent, space in action_spaces.items():
            self._shares[agent] = share = _share(space, end)
            end = share.part.stop
        self.masked = "sets" in kinds.values()
        """Whether actions can be masked: discrete ones can, numbers cannot."""
        self.space: spaces.MultiDiscrete | spaces.Box
        if self.masked:
            counts = [share.choices for share in self._shares.values()]
            self.space = spaces.MultiDiscrete(list(chain.from_iterable(counts)))
        else:
            boxes: list[Any] = list(action_spaces.values())
            low = np.concatenate([box.low.ravel() for box in boxes])
            high = np.concatenate([box.high.ravel() for box in boxes])
            self.space = spaces.Box(low, high, dtype=low.dtype.type)

    def of(self, action: Any, agent: Agent) -> Any:
        """One agent's own action."""
        share = self._shares[agent]
        return share.own(action[share.part])

    def choices(self, agent: Agent) -> int:
        """How many entries the agent's mask has."""
        return sum(self._shares[agent].choices)


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


def _share(space: Any, begin: int) -> _Share:
    shape, dtype = space.shape, space.dtype
    if isinstance(space, spaces.Discrete):
        first, one = int(space.start), slice(begin, begin + 1)
        return _Share(one, lambda part: int(part[0]) + first, (int(space.n),))
    if isinstance(space, spaces.Box):
        part = slice(begin, begin + int(np.prod(shape)))
        return _Share(part, lambda part: np.reshape(part, shape).astype(dtype), ())
    if isinstance(space, spaces.MultiBinary):
        choices, start = (2,) * int(np.prod(shape)), np.zeros(shape)
    else:
        choices, start = tuple(space.nvec.ravel().tolist()), space.start
    return _Share(
        slice(begin, begin + len(choices)),
        lambda part: (np.reshape(part, shape) + start).astype(dtype),
        choices,
    )


class JointObservation:
    """One vector for all agents: each observation as Gymnasium flattens it.

    float32, since learners compute with it; zeros for agents that are not alive.
    """

    def __init__(self, team: Team) -> None:
        self._team = team
        self._parts: dict[Agent, slice] = {}
        low, high = [], []
        end = 0
        for agent in team.agents:
            flat = _flat(agent, team.group_of(agent).observation_space)
            # Zeros stand for agents that are gone, so they must be in the space.
            low.append(np.minimum(flat.low, 0).astype(np.float32))
            high.append(np.maximum(flat.high, 0).astype(np.float32))
            self._parts[agent] = slice(end, end := end + flat.shape[0])
        self.space = spaces.Box(
            np.concatenate(low), np.concatenate(high), dtype=np.float32
        )

    def of(self, value: dict[str, Any], seen: Collection[Agent]) -> Array:
        """The joint observation of these agents, out of the team's arrays."""
        joint = np.zeros(self.space.shape, np.float32)
        for group in self._team.groups:
            batch = mapped(lambda leaf: leaf[0], value[group.name]["obs"])
            flat = flat_batch(group.observation_space, batch, len(group.agents))
            for agent, own in zip(group.agents, flat, strict=True):
                if agent in seen:
                    joint[self._parts[agent]] = own
        return joint

    def part(self, agent: Agent) -> slice:
        """Where an agent's observation is in the vector."""
        return self._parts[agent]


def _flat(agent: Agent, space: Space[Any]) -> spaces.Box:
    if space.is_np_flattenable:
        flat = flatten_space(space)
        if isinstance(flat, spaces.Box):
            return flat
    raise OptionError(
        f"agent {agent!r} has the observation space {space}, which cannot be flattened "
        "to a vector of fixed size; use corral.make_multi, or wrap the env"
    )


def flat_batch(space: Space[Any], batch: Any, count: int) -> Array:
    """`(count, ...)` of a space as `(count, numbers)`; discrete values are one-hot."""
    if isinstance(space, spaces.Dict):
        parts = [flat_batch(part, batch[key], count) for key, part in space.items()]
        return np.concatenate(parts, axis=1)
    if isinstance(space, spaces.Tuple):
        pairs = zip(space, batch, strict=True)
        return np.concatenate([flat_batch(p, b, count) for p, b in pairs], axis=1)
    values = np.asarray(batch).reshape(count, -1)
    if isinstance(space, spaces.Discrete):
        return _one_hot(values[:, 0] - space.start, int(space.n))
    if isinstance(space, spaces.MultiDiscrete):
        sizes, first = space.nvec.ravel().tolist(), space.start.ravel()
        columns = [_one_hot(values[:, i] - first[i], n) for i, n in enumerate(sizes)]
        return np.concatenate(columns, axis=1)
    return values.astype(np.float32)


def _one_hot(values: Array, size: int) -> Array:
    hot: Array = (np.arange(size) == values[:, None]).astype(np.float32)
    return hot
