"""Many envs with several agents each, over a pool.

    obs, infos = envs.reset(seed=0)                        obs["agent_0"]: (slots, ...)
    obs, rewards, terminations, truncations, infos = envs.step(actions)

As PettingZoo's ParallelEnv, with slots as the first axis of every array. Attributes
hold the rest of the last step: `alive`, `acting`, `action_masks`, `final_obs`,
`final_infos`, `valid`, `started`, `ended`, `state`.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from gymnasium import Space
from numpy.typing import NDArray

from corral.api.async_calls import AsyncCalls
from corral.api.pettingzoo.actions import MultiActions
from corral.api.pettingzoo.step import Bools, MultiStep, by_agent
from corral.api.pool_env import PoolOwner, overlaid
from corral.core import Autoreset, EnvSpec, Step
from corral.engine.adapters.factories import EnvSource, Wrap
from corral.engine.adapters.pettingzoo import multi_env
from corral.engine.adapters.team import TEAM_KEY, Agent, Team
from corral.engine.executors.contract import closed_on_error
from corral.engine.keywords import check_choice, checked_keywords
from corral.engine.layout.infos import NO_INFOS
from corral.engine.pool import (
    ApiOptions,
    Pool,
    PoolOptions,
    check_wrappers,
    same_spaces,
)
from corral.engine.tree import mapped
from corral.errors import OrderError, SpacesDiffer

# Observations, rewards, terminations, truncations, infos.
Batch = tuple[dict[Any, Any], ...]


class MultiEnv(PoolOwner, AsyncCalls):
    """Several agents in each of many slots; made by `corral.make_multi`.

    Args:
        pool: of adapters that have a Team.
        by: "agent" for dicts of agent -> `(slots, ...)`, "group" for dicts of group ->
            `(slots, agents, ...)`.
        copy: False to return views into the block where possible.
        autoreset: what happens at the end of an episode (default: as the pool).
    """

    def __init__(
        self,
        pool: Pool,
        by: str = "agent",
        copy: bool = True,
        autoreset: Autoreset | None = None,
    ) -> None:
        check_choice("by", by, ("agent", "group"))
        self.pool = pool
        self.layout = pool.layout
        self.num_envs = pool.num_envs
        self.by = by
        self.copy = copy
        self.team: Team = pool.spec.metadata[TEAM_KEY]
        self.metadata = {k: v for k, v in pool.spec.metadata.items() if k != TEAM_KEY}
        self.render_mode = pool.spec.render_mode
        self.autoreset: Autoreset = autoreset or pool.autoreset
        self.possible_agents = self.agents = self.team.agents
        self.groups = {group.name: group for group in self.team.groups}
        self.turns = self.team.turns
        own = {agent: self.team.group_of(agent) for agent in self.team.agents}
        self.observation_spaces: dict[Agent, Space[Any]] = {
            agent: group.observation_space for agent, group in own.items()
        }
        self.action_spaces: dict[Agent, Space[Any]] = {
            agent: group.action_space for agent, group in own.items()
        }
        self._same_step = self.autoreset == "same_step"
        self._actions = MultiActions(self.team, self.num_envs, by)
        self._read: MultiStep | None = None

    def observation_space(self, agent: Agent) -> Space[Any]:
        """The space of one agent in one slot."""
        return self.observation_spaces[agent]

    def action_space(self, agent: Agent) -> Space[Any]:
        """The space of one agent in one slot."""
        return self.action_spaces[agent]

    # Reset ----------------------------------------------------------------------------

    def reset(
        self,
        seed: int | Sequence[int | None] | None = None,
        options: dict[str, Any] | None = None,
        slots: Sequence[int] | NDArray[np.integer] | None = None,
    ) -> tuple[dict[Any, Any], dict[Any, Any]]:
        """Start an episode in every slot, or in these; returns the state of all slots.

        Args:
            seed: slot i gets `seed + i`, and its later episodes seeds drawn from these;
                or a list with one seed for each of the slots.
            options: passed to the envs' `reset`.
            slots: default: all.
        """
        self.reset_async(seed, options, slots)
        return self.reset_wait()

    def reset_async(
        self,
        seed: int | Sequence[int | None] | None = None,
        options: dict[str, Any] | None = None,
        slots: Sequence[int] | NDArray[np.integer] | None = None,
    ) -> None:
        """Send the resets; `reset_wait` takes the results."""
        self._begin("reset_async")
        chosen = range(self.num_envs) if slots is None else slots
        root: int | None = None
        seeds: list[int | None] | None = None
        if isinstance(seed, (int, np.integer)):
            seeds = [int(seed) + int(slot) // self.pool.repeat for slot in chosen]
            # A new root counts every slot's episodes from the start again.
            root = int(seed) if slots is None else None
        elif seed is not None:
            seeds = list(seed)
        self.pool.send_reset(slots, seed=root, seeds=seeds, options=options)
        self._pending = "reset"

    def reset_wait(
        self, timeout: float | None = None
    ) -> tuple[dict[Any, Any], dict[Any, Any]]:
        """Wait for the resets that were sent."""
        before = self._last
        step = self._received("reset", timeout)
        over = np.zeros(self.num_envs, np.bool_)
        if len(step) < self.num_envs:
            if before is not None:
                over |= before.ended
                over[step.slots] = False
            step = overlaid(self.pool, before, step)
        self._last = step
        read = MultiStep(self.team, step, self._same_step, self.copy, over)
        self._read = read
        return self._by_agent_or_group(read.obs), self._infos(step)

    # Step -----------------------------------------------------------------------------

    def step(self, actions: Any) -> Batch:
        """Step every slot.

        Args:
            actions: a dict of agent -> one action for each slot, a dict of group ->
                the same for all its agents, or one dict per slot.
        """
        batch, pool = self._batch(actions), self.pool
        if self._pending is not None or pool.waiting or pool.closed:
            self._begin("step")
        step = pool.step_all(batch, autoreset=self.autoreset, copy=False)
        return self._results(step)

    def step_async(self, actions: Any) -> None:
        """Send the actions; `step_wait` takes the results."""
        self._begin("step_async")
        self.pool.send(self._batch(actions), autoreset=self.autoreset)
        self._pending = "step"

    def step_wait(self, timeout: float | None = None) -> Batch:
        """Wait for the steps that were sent."""
        return self._results(self._received("step", timeout))

    def _batch(self, actions: Any) -> dict[str, Any]:
        return self._actions.batch(actions, self.last.acting)

    def _results(self, step: Step) -> Batch:
        self._last = step
        self._read = read = MultiStep(self.team, step, self._same_step, self.copy)
        parts = (read.obs, read.reward, read.terminated, read.truncated)
        if self.by == "group":
            return *parts, self._infos(step)
        return *[by_agent(self.team, part) for part in parts], self._infos(step)

    def _by_agent_or_group(self, groups: dict[str, Any]) -> dict[Any, Any]:
        """By agent or by group, as `by` says."""
        return groups if self.by == "group" else by_agent(self.team, groups)

    def _infos(self, step: Step) -> dict[Any, Any]:
        infos: dict[Any, Any] = {agent: {} for agent in self.team.agents}
        if step.infos is not NO_INFOS:
            infos.update(step.infos.to_vector(self.num_envs))
        return infos

    # Of the last step -----------------------------------------------------------------

    @property
    def last(self) -> MultiStep:
        """The last step, by groups."""
        if self._read is None:
            raise OrderError("no observation yet: call reset first")
        return self._read

    @property
    def alive(self) -> dict[Any, Bools]:
        """Which agents are alive."""
        return self._by_agent_or_group(mapped(np.copy, self.last.alive))

    @property
    def acting(self) -> dict[Any, Bools]:
        """Which agents act now: all that are alive, or the one whose turn it is."""
        return self._by_agent_or_group(mapped(np.copy, self.last.acting))

    @property
    def action_masks(self) -> dict[Any, Bools | None]:
        """The valid actions of each agent; None if its actions cannot be masked."""
        return self._by_agent_or_group(self.last.action_mask)

    @property
    def final_obs(self) -> dict[Any, Any]:
        """The last observation of agents that ended; zeros for all others.

        Read it before the next step is sent.
        """
        return self._by_agent_or_group(self.last.final_obs)

    @property
    def final_infos(self) -> dict[int, dict[Any, Any]]:
        """(same_step) Slot -> the infos of its agents at the end of an episode."""
        return self.last.step.final_infos

    @property
    def ended(self) -> Bools:
        """Where an episode ended."""
        return self.last.step.ended

    @property
    def state(self) -> Any:
        """The state of every env, if made with state=True; else None."""
        return self.last.state

    # Calls ----------------------------------------------------------------------------

    def get_attr(self, name: str) -> tuple[Any, ...]:
        """Read an attribute of every env."""
        self._begin("get_attr")
        return tuple(self.pool.get_attr(name))


# Making -------------------------------------------------------------------------------


@checked_keywords(onward=Pool)
def make_multi(
    env: EnvSource,
    num_envs: int | None = None,
    *,
    autoreset: Autoreset = "same_step",
    by: str = "agent",
    parallel: bool = False,
    state: bool = False,
    observe: str = "acting",
    copy: bool = True,
    **options: Any,
) -> MultiEnv:
    """Make many PettingZoo environments.

    Example::

        envs = corral.make_multi(simple_spread_v3.parallel_env, num_envs=8)
        obs, infos = envs.reset(seed=0)
        obs["agent_0"]                       # (8, 18)

    Args:
        env: a factory of ParallelEnvs or AECEnvs, "module:function", or a list with one
            of those per slot.
        num_envs: number of envs; not needed with a list of factories.
        autoreset: what happens when the last agent has ended.
        by: "agent" for dicts of agent -> `(slots, ...)`, "group" for dicts of group ->
            `(slots, agents, ...)`; a group is agents with equal spaces.
        parallel: turn an AECEnv whose agents may act at once into a ParallelEnv.
        state: whether to read `env.state()` in every step.
        observe: (AEC) the agents that are observed: "acting", or "all" alive.
        copy: False to get views into the block where possible.
        **options: everything that `corral.Pool` takes.
    """
    adapt = functools.partial(
        multi_env, parallel=parallel, state=state, observe=observe
    )
    pool = open_team_pool(env, num_envs, adapt, autoreset=autoreset, **options)
    with closed_on_error(pool):
        return MultiEnv(pool, by, copy)


def open_team_pool(
    env: EnvSource,
    num_envs: int | None = None,
    adapt: Wrap = multi_env,
    *,
    wrappers: Sequence[Wrap] = (),
    api: ApiOptions | None = None,
    **options: Any,
) -> Pool:
    """Open a pool of envs with several agents each, which `adapt` gives adapters."""
    check_wrappers(wrappers)
    asked = PoolOptions(wrappers=(*wrappers, adapt), **options)
    api = replace(api or ApiOptions(), agree=same_team, empty_finals=False)
    return Pool.with_options(env, num_envs, asked, api)


def same_team(specs: list[EnvSpec]) -> EnvSpec:
    """The first spec, if all slots have its agents and their spaces."""
    first = specs[0]
    for slot, spec in enumerate(specs):
        ours, theirs = spec.metadata[TEAM_KEY].agents, first.metadata[TEAM_KEY].agents
        if ours != theirs:
            raise SpacesDiffer(
                f"slot {slot} has other possible_agents than slot 0: {list(ours)} "
                f"instead of {list(theirs)}"
            )
    return same_spaces(specs)
