"""Several agents' spaces as one space: joint actions and joint observations."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import chain
from typing import Any

import numpy as np
from gymnasium import Space, spaces
from gymnasium.spaces.utils import flatten, flatten_space
from numpy.typing import NDArray

from corral.engine.adapters.team import Agent
from corral.errors import OptionError, SpaceMismatch

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

    def __init__(self, action_spaces: Mapping[Agent, Space[Any]]) -> None:
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

    def __init__(self, observation_spaces: Mapping[Agent, Space[Any]]) -> None:
        self._spaces = dict(observation_spaces)
        self._parts: dict[Agent, slice] = {}
        low, high = [], []
        end = 0
        for agent, space in self._spaces.items():
            flat = _flat(agent, space)
            # Zeros stand for agents that are gone, so they must be in the space.
            low.append(np.minimum(flat.low, 0).astype(np.float32))
            high.append(np.maximum(flat.high, 0).astype(np.float32))
            self._parts[agent] = slice(end, end + flat.shape[0])
            end += flat.shape[0]
        self.space = spaces.Box(
            np.concatenate(low), np.concatenate(high), dtype=np.float32
        )

    def of(self, observations: Mapping[Agent, Any]) -> NDArray[np.float32]:
        """The joint observation of the agents that are given."""
        joint = np.zeros(self.space.shape, np.float32)
        for agent, observation in observations.items():
            place = self._parts[agent]
            flat = self._flattened(agent, observation)
            if flat.shape != (place.stop - place.start,):
                raise self._misfit(agent, observation)
            joint[place] = flat
        return joint

    def _flattened(self, agent: Agent, observation: Any) -> Array:
        space = self._spaces[agent]
        try:
            # `flatten` takes None for NaN, and any shape with as many numbers.
            if _shaped(space, observation):
                return np.asarray(flatten(space, observation))
        except (AttributeError, IndexError, KeyError, TypeError, ValueError) as error:
            raise self._misfit(agent, observation) from error
        raise self._misfit(agent, observation)

    def _misfit(self, agent: Agent, observation: Any) -> SpaceMismatch:
        return SpaceMismatch(
            f"agent {agent!r} has the observation {observation!r:.80}, which is not in "
            f"its space {self._spaces[agent]}"
        )

    def part(self, agent: Agent) -> slice:
        """Where an agent's observation is in the vector."""
        return self._parts[agent]


def _shaped(space: Space[Any], value: Any) -> bool:
    """Whether all numbers are in arrays of the right shape."""
    if isinstance(space, spaces.Dict):
        return all(_shaped(part, value[key]) for key, part in space.items())
    if isinstance(space, spaces.Tuple):
        pairs = zip(space, value, strict=True)
        return all(_shaped(part, one) for part, one in pairs)
    return not isinstance(space, spaces.Box) or np.shape(value) == space.shape


def _flat(agent: Agent, space: Space[Any]) -> spaces.Box:
    if space.is_np_flattenable:
        flat = flatten_space(space)
        if isinstance(flat, spaces.Box):
            return flat
    raise OptionError(
        f"agent {agent!r} has the observation space {space}, which cannot be flattened "
        "to a vector of fixed size; use corral.make_multi, or wrap the env"
    )
