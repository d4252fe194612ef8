"""Several agents' spaces as one: actions side by side, observations end to end."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
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
    """Which part of the joint action is one agent's, and what it makes of it."""

    part: slice
    own: Callable[[Array], Any]
    choices: tuple[int, ...]
    """How many each of its sets has, where they are sets."""


class JointAction:
    """One action for all agents: MultiDiscrete of their sets, or one Box.

    Raises OptionError if some agents choose from sets and others give numbers: no
    single space of Gymnasium's holds both in a form that learners take.
    """

    def __init__(self, action_spaces: Mapping[Agent, Space[Any]]) -> None:
        kinds = {agent: _kind(agent, space) for agent, space in action_spaces.items()}
        if len(set(kinds.values())) > 1:
            listed = ", ".join(f"{agent!r} {kinds[agent]}" for agent in kinds)
            raise OptionError(
                "agents' actions cannot be put side by side, since some are sets to "
                f"choose from and others are numbers: {listed}. Use corral.make_multi, "
                "which keeps them apart, or wrap the env so that all are of one kind"
            )
        self._shares: dict[Agent, _Share] = {}
        discrete = "sets" in kinds.values()
        end = 0
        for agent, space in action_spaces.items():
            share = _of_sets(space, end) if discrete else _of_numbers(space, end)
            self._shares[agent] = share
            end = share.part.stop
        self.space = _sets(self._shares) if discrete else _numbers(action_spaces)
        self.masked = discrete
        """Whether actions can be masked: choices can, numbers cannot."""

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
        f"agent {agent!r} has the action space {space}; side by side go Discrete, "
        "MultiDiscrete and MultiBinary, or Box of floats. Use corral.make_multi, which "
        "takes any, or wrap the env"
    )


def _of_sets(space: Any, begin: int) -> _Share:
    if isinstance(space, spaces.Discrete):
        first = int(space.start)
        choices: tuple[int, ...] = (int(space.n),)
        return _Share(
            slice(begin, begin + 1), lambda part: int(part[0]) + first, choices
        )
    if isinstance(space, spaces.MultiBinary):
        choices, start = (2,) * int(np.prod(space.shape)), np.zeros(space.shape)
    else:
        choices, start = tuple(space.nvec.ravel().tolist()), space.start
    shape, dtype = space.shape, space.dtype
    end = begin + len(choices)
    return _Share(
        slice(begin, end),
        lambda part: (np.reshape(part, shape) + start).astype(dtype),
        choices,
    )


def _of_numbers(space: Any, begin: int) -> _Share:
    shape, dtype = space.shape, space.dtype
    end = begin + int(np.prod(shape))
    return _Share(
        slice(begin, end), lambda part: np.reshape(part, shape).astype(dtype), ()
    )


def _sets(shares: Mapping[Agent, _Share]) -> spaces.MultiDiscrete:
    nvec = [count for share in shares.values() for count in share.choices]
    return spaces.MultiDiscrete(nvec)


def _numbers(parts: Mapping[Agent, Any]) -> spaces.Box:
    low = np.concatenate([space.low.ravel() for space in parts.values()])
    high = np.concatenate([space.high.ravel() for space in parts.values()])
    return spaces.Box(low, high, dtype=low.dtype.type)


class JointObservation:
    """One vector for all agents: each observation as Gymnasium flattens it.

    float32, since that is what learners compute with; zeros for who is not there.
    """

    def __init__(self, observation_spaces: Mapping[Agent, Space[Any]]) -> None:
        self._spaces = dict(observation_spaces)
        self._parts: dict[Agent, slice] = {}
        low, high = [], []
        end = 0
        for agent, space in self._spaces.items():
            flat = _flat(agent, space)
            # Zeros stand for those who are gone, so they have to be within.
            low.append(np.minimum(flat.low, 0).astype(np.float32))
            high.append(np.maximum(flat.high, 0).astype(np.float32))
            self._parts[agent] = slice(end, end + flat.shape[0])
            end += flat.shape[0]
        self.space = spaces.Box(
            np.concatenate(low), np.concatenate(high), dtype=np.float32
        )

    def of(self, observations: Mapping[Agent, Any]) -> NDArray[np.float32]:
        """Those that are given, in their places."""
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
            f"agent {agent!r} sees {observation!r:.80}, which is not of its space "
            f"{self._spaces[agent]}"
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
        f"agent {agent!r} has the observation space {space}, which is no vector of "
        "fixed size; use corral.make_multi, or wrap the env"
    )
