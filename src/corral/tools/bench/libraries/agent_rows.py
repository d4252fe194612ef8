"""Actions that were drawn for groups of agents, in the forms that peers take."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from corral.engine.adapters.team import Team
from corral.errors import OptionError


def by_agent(team: Team) -> Callable[[Any], dict[Any, Any]]:
    """Agent -> (slots, ...); each batch is taken apart once, since it comes again."""
    known: dict[int, dict[Any, Any]] = {}

    def split(actions: Any) -> dict[Any, Any]:
        found = known.get(id(actions))
        if found is None:
            found = known[id(actions)] = {
                agent: np.ascontiguousarray(actions[group.name][:, position])
                for group in team.groups
                for position, agent in enumerate(group.agents)
            }
        return found

    return split


def by_row(team: Team) -> Callable[[Any], Any]:
    """(slots x agents, ...): all agents of one env after the other."""
    if len(team.groups) > 1:
        raise OptionError("it takes envs whose agents all have equal spaces")
    name = team.groups[0].name

    def joined(actions: Any) -> Any:
        batch = actions[name]
        return batch.reshape(-1, *batch.shape[2:])

    return joined
