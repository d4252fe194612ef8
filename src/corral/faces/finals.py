"""How episodes of a Step ended, in Gymnasium's words."""

from __future__ import annotations

from collections.abc import Iterator
from copy import deepcopy
from itertools import compress
from typing import Any

from gymnasium import Space, spaces
from gymnasium.vector.utils import batch_space, iterate

from corral.core import Step


def finals_of(step: Step, space: Space[Any]) -> Iterator[tuple[int, dict[str, Any]]]:
    """`final_obs` and `final_info` of each position where an episode ended."""
    ended = step.ended
    if not ended.any():
        return
    finals: list[Any] = list(iterate(batch_space(space, len(step)), step.final_obs))
    if isinstance(space, spaces.Discrete):
        finals = [final.item() for final in finals]  # an int, as envs return it
    for position in compress(range(len(step)), ended.tolist()):
        final = {"final_obs": deepcopy(finals[position])}
        if position in step.final_infos:
            final["final_info"] = step.final_infos[position]
        yield position, final
