"""A Step of envs with several agents, read by groups.

`corral.engine.adapters.team` describes the block. Two things differ here:

- In the step that ends an agent the block has its last observation in `obs`. Here it is
  in `final_obs`, and `obs` is zeros, as for every agent that is not alive.
- If the same step has started the next episode, the rewards and ends of the last one
  are in the block's final row.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from corral.api.pool_env import owned
from corral.core import Step
from corral.engine.adapters.team import STATE_KEY, Group, Team, masks_of
from corral.engine.tree import mapped

Bools = NDArray[np.bool_]
_TRANSITION = ("reward", "terminated", "truncated")


class MultiStep:
    """The results; dicts of group -> arrays `(slots, agents, ...)`.

    Args:
        team: the agents.
        step: of all slots, as views.
        same_step: whether a step that ends an episode starts the next one.
        copy: False to return views where possible.
        over: only after a reset, which has no transition: the slots whose episode is
            over, since only other slots were reset.
    """

    def __init__(
        self,
        team: Team,
        step: Step,
        same_step: bool,
        copy: bool,
        over: Bools | None = None,
    ) -> None:
        self.team = team
        self.step = step
        self._copy = copy
        self.obs: dict[str, Any] = {}
        self.reward: dict[str, NDArray[np.float64]] = {}
        self.terminated: dict[str, Bools] = {}
        self.truncated: dict[str, Bools] = {}
        # Which agents are alive.
        self.alive: dict[str, Bools] = {}
        fresh = over is not None
        # Slots where an episode ended, if any.
        self._ended: NDArray[np.intp] | None = None
        if not fresh and np.count_nonzero(ended := step.ended):
            self._ended = np.flatnonzero(ended)
        for group in team.groups:
            name = group.name
            self.alive[name] = alive = step.obs[name]["alive"].copy()
            self._transition(name, fresh, same_step)
            if not same_step:
                alive[step.ended if over is None else over] = False
            self.obs[name] = self._seen(name, alive)

    def _transition(self, name: str, fresh: bool, same_step: bool) -> None:
        """The transition that led here; after a reset there was none."""
        parts: tuple[Any, ...] = (self.reward, self.terminated, self.truncated)
        leaves, ended, step = self.step.obs[name], self._ended, self.step
        for field, part in zip(_TRANSITION, parts, strict=True):
            here = leaves[field]
            part[name] = np.zeros_like(here) if fresh else here.copy()
            if ended is not None and same_step:
                part[name][ended] = step.final_obs[name][field][ended]
        if ended is not None and not step.valid[ended].all():
            # A fault: these are values of the step before, where the living agents are
            # truncated.
            cut = ended[~step.valid[ended]]
            self.reward[name][cut] = 0.0
            self.terminated[name][cut] = False
            self.truncated[name][cut] = step.final_obs[name]["alive"][cut]

    def _seen(self, name: str, alive: Bools) -> Any:
        """The observations, zeros for agents that are not alive."""
        obs = self.step.obs[name]["obs"]
        if np.count_nonzero(alive) == alive.size:  # a third of what `all` takes
            return owned(obs) if self._copy else obs
        dead = ~alive
        return mapped(lambda leaf: _blanked(leaf, dead), obs)

    # Computed when read ---------------------------------------------------------------

    @cached_property
    def state(self) -> Any:
        """The state of every env, if it is read; else None."""
        if self.team.state_space is None:
            return None
        return mapped(np.copy, self.step.obs[STATE_KEY])

    @cached_property
    def acting(self) -> dict[str, Bools]:
        """Which agents act now: all that are alive, or the one whose turn it is."""
        if not self.team.turns:
            return self.alive
        return {
            name: self.step.obs[name]["acting"] & alive
            for name, alive in self.alive.items()
        }

    @cached_property
    def ended_agents(self) -> dict[str, Bools]:
        """Which agents ended in this step."""
        return {
            name: terminated | self.truncated[name]
            for name, terminated in self.terminated.items()
        }

    @cached_property
    def action_mask(self) -> dict[str, Bools | None]:
        """The valid actions of each agent; None if its actions cannot be masked.

        All True for agents that do not act now, and for masks that allow nothing: a
        distribution over no action is undefined.
        """
        return {group.name: self._mask(group) for group in self.team.groups}

    def _mask(self, group: Group) -> Bools | None:
        given = masks_of(group, self.step.obs[group.name])
        if given is None:
            return None
        mask: Bools = given.astype(np.bool_)
        mask[~self.acting[group.name]] = True
        mask[~mask.any(-1)] = True
        return mask

    @cached_property
    def final_obs(self) -> dict[str, Any]:
        """The last observation of agents that ended; zeros for all others."""
        return {group.name: self._finals(group.name) for group in self.team.groups}

    def _finals(self, name: str) -> Any:
        others, ended = ~self.ended_agents[name], self._ended
        here = self.step.obs[name]["obs"]
        if ended is None:
            return mapped(lambda leaf: _blanked(leaf, others), here)
        final = self.step.final_obs[name]["obs"]

        def of_the_ended(leaf: NDArray[Any], last: NDArray[Any]) -> NDArray[Any]:
            leaf = leaf.copy()
            leaf[ended] = last[ended]
            leaf[others] = 0
            return leaf

        return mapped(of_the_ended, here, final)


def _blanked(leaf: NDArray[Any], rows: Bools) -> NDArray[Any]:
    leaf = leaf.copy()
    leaf[rows] = 0
    return leaf


def by_agent(team: Team, groups: Mapping[str, Any]) -> dict[Any, Any]:
    """Views `(slots, ...)` by agent, of batches `(slots, agents, ...)` by group."""
    shown: dict[Any, Any] = {}
    for agent, (group, position) in team.place.items():
        batch = groups[group.name]
        if type(batch) is np.ndarray:
            shown[agent] = batch[:, position]
        else:
            shown[agent] = mapped(lambda leaf, at=position: leaf[:, at], batch)
    return shown
