"""Observations that outlive the block, and how episodes ended, as Gymnasium has it."""

from __future__ import annotations

from collections.abc import Iterator
from copy import deepcopy
from itertools import compress
from typing import Any

import numpy as np
from gymnasium import Space, spaces
from gymnasium.vector.utils import batch_space, iterate

from corral.core import Step


def owned(obs: Any) -> Any:
    """A batch of observations in the caller's own memory."""
    if type(obs) is np.ndarray:
        return obs.copy()
    if type(obs) is dict:
        return {key: owned(part) for key, part in obs.items()}
    return tuple(map(owned, obs)) if type(obs) is tuple else deepcopy(obs)


def at_position(space: Space[Any], batch: Any, position: int) -> Any:
    """One observation of a batch, as an env returns it, in the caller's memory."""
    if isinstance(space, spaces.Dict):
        return {
            key: at_position(part, batch[key], position) for key, part in space.items()
        }
    if isinstance(space, spaces.Tuple):
        pairs = zip(space, batch, strict=True)
        return tuple(at_position(part, values, position) for part, values in pairs)
    if isinstance(space, spaces.Discrete):
        return batch[position].item()
    if type(batch) is np.ndarray:
        return np.array(batch[position])
    if type(batch) is tuple:
        return deepcopy(batch[position])
    every = list(iterate(batch_space(space, len(batch)), batch))
    return deepcopy(every[position])


def finals_of(step: Step, space: Space[Any]) -> Iterator[tuple[int, dict[str, Any]]]:
    """`final_obs` and `final_info` of each position where an episode ended."""
    for position in compress(range(len(step)), step.ended.tolist()):
        final = {"final_obs": at_position(space, step.final_obs, position)}
        if position in step.final_infos:
            final["final_info"] = step.final_infos[position]
        yield position, final
