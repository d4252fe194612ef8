"""Every agent of every env as a row of its own, in Steps.

Row i is agent `i % agents` of env `i // agents`, in the env's order of agents. A row's
episode starts when its agent appears and ends when the agent ends. While an agent is
absent its rows are padding: zeros, not valid, the action ignored. Every padding row is
`started`, so that neither a carry nor a return crosses it.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from corral.api.pettingzoo.step import MultiStep
from corral.api.shared_policy.spaces import SharedSpaces
from corral.core import Step
from corral.engine.adapters.team import Team
from corral.engine.layout.infos import Infos
from corral.engine.worker.seeds import episode_seed

Bools = NDArray[np.bool_]


class SharedRows:
    """Converts Steps of envs to Steps of rows, with the state of each row."""

    def __init__(self, team: Team, spaces: SharedSpaces, envs: int) -> None:
        self._team = team
        self._spaces = spaces
        self.agents = len(team.agents)
        shape = envs, self.agents
        self._alive = np.zeros(shape, np.bool_)
        self._return = np.zeros(shape)
        self._length = np.zeros(shape, np.int32)
        self._seed = np.full(shape, -1, np.int64)
        self._last: MultiStep | None = None
        """The last Step, if it had all envs."""

    def step(self, step: Step, copy: bool) -> Step:
        """The same Step, a row for each agent."""
        envs = step.slots
        multi = MultiStep(self._team, step, same_step=True, copy=copy)
        flags = self._spaces.flags
        alive = flags(multi.alive)
        # The agents alive before this step; after a reset, those alive now.
        reset = (step.started & ~step.ended)[:, None]
        before = np.where(reset, alive, self._alive[envs])
        terminated = flags(multi.terminated) & before
        truncated = flags(multi.truncated) & before
        ended = terminated | truncated
        reward = np.where(before, flags(multi.reward), 0.0)
        started = ~alive | ~before | ended | step.started[:, None]
        # Return and length of the episodes that `reward` belongs to.
        returns = np.zeros_like(reward)
        lengths = np.zeros(reward.shape, np.int32)
        if not reset.all():
            returns += self._return[envs] + reward
            lengths += self._length[envs] + before
        self._return[envs] = np.where(started, 0.0, returns)
        self._length[envs] = np.where(started, 0, lengths)
        self._alive[envs] = alive
        self._follow_seeds(step)
        self._last = multi if len(envs) == len(self._alive) else None
        infos, final_infos = self._row_infos(step, ended)
        obs = finals = self._spaces.rows(multi.obs, multi.alive, len(envs))
        if ended.any():
            here = multi.ended_agents
            finals = self._spaces.rows(multi.final_obs, here, len(envs))
        return Step(
            slots=(envs[:, None] * self.agents + np.arange(self.agents)).ravel(),
            obs=obs,
            reward=reward.ravel(),
            terminated=terminated.ravel(),
            truncated=truncated.ravel(),
            started=started.ravel(),
            valid=(before & step.valid[:, None]).ravel(),
            final_obs=finals,
            episode_return=returns.ravel(),
            episode_length=lengths.ravel(),
            seed=self._seed[envs].ravel(),
            infos=infos,
            final_infos=final_infos,
        )

    def _follow_seeds(self, step: Step) -> None:
        """Make each agent's seed from the env's: agents draw different numbers."""
        for position in np.flatnonzero(step.started).tolist():
            seed = step.seed.item(position)
            if seed >= 0:
                self._seed[step.slots[position]] = [
                    episode_seed(seed, agent) for agent in range(self.agents)
                ]

    def masks(self) -> Bools | None:
        """What each row may do now; None if nothing is chosen, or not all were seen."""
        if self._last is None:
            return None
        return self._spaces.masks(self._last.action_mask, len(self._alive))

    # Infos ----------------------------------------------------------------------------

    def _row_infos(
        self, step: Step, ended: Bools
    ) -> tuple[Infos, dict[int, dict[str, Any]]]:
        """The infos of agents, and the last infos of those that ended."""
        current: dict[int, dict[str, Any]] = {}
        final: dict[int, dict[str, Any]] = {}
        if step.infos:
            for position in range(len(step)):
                current.update(self._apart(step.infos.of(position), position))
        for position, info in step.final_infos.items():
            final.update(self._apart(info, position))
        for row in np.flatnonzero(ended).tolist():
            env = row // self.agents
            if not step.ended.item(env):  # the env continues without this agent
                final[row] = current.pop(row, {})
            elif step.valid.item(env):
                final.setdefault(row, {})
        for position in np.flatnonzero(~step.valid).tolist():
            _hand_on_fault(step, position, ended, current, final)
        return Infos([], current), final

    def _apart(
        self, info: dict[Any, Any], position: int
    ) -> Iterator[tuple[int, dict[str, Any]]]:
        for number, agent in enumerate(self._team.agents):
            own = info.get(agent)
            if own:
                yield position * self.agents + number, own


def _hand_on_fault(
    step: Step, position: int, ended: Bools, *infos: dict[int, dict[str, Any]]
) -> None:
    """Add a fault to the info of the first row that it ended.

    If the next episode has started, it is in the final info, too, as in any pool.
    """
    fault = step.infos.of(position).get("fault") if step.infos else None
    if fault is not None and ended[position].any():
        row = position * ended.shape[1] + int(np.argmax(ended[position]))
        for rows in infos if step.started.item(position) else infos[:1]:
            rows[row] = {**rows.get(row, {}), "fault": fault}
