"""A rollout of envs as one of agents: every agent of every env is a column.

A row of an agent is one action of its own, and what came of it until its next one::

    env      row 0    row 1    row 2    row 3    row 4        agents in turn
    a        acts     waits    acts     waits    (acts)       rows 0 and 2
    b        waits    acts     waits    acts     (waits)      rows 1 and 3

    reward        all that the agent got from its action to its next turn, or to its end
    terminated    its end, if it ended before its next turn; likewise truncated
    valid         False for an action whose result is not known: the rollout, or a
                  fault, came before the agent's next turn. The row before it is
                  bootstrapped from its value
    bootstrap     (truncated) the value of the agent's last observation

Agents that act at once are the case in which every turn is followed by the next. Rows
of an agent follow each other without gaps, so that returns are along its own time;
padding fills the column. What an agent gets before its first turn belongs to no action.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from corral.api.shared_policy.policy import AGENT_ACTION
from corral.api.shared_policy.spaces import SharedSpaces, as_rows
from corral.engine.adapters.team import Team
from corral.engine.tree import mapped
from corral.learners.policy import VALUE
from corral.rollouts.rollout import Rollout

Array = NDArray[Any]
Bools = NDArray[np.bool_]
# What became of an action.
UNKNOWN, CONTINUED, TERMINATED, TRUNCATED = range(4)


@dataclass(slots=True)
class Outcomes:
    """What came of each action, `[rows, envs, agents]`.

    Attributes:
        kind: One of UNKNOWN, CONTINUED, TERMINATED and TRUNCATED.
        value: (truncated) Of the agent's last observation.
        end: The env's row in which the agent ended.
    """

    reward: NDArray[np.float64]
    kind: NDArray[np.int8]
    value: NDArray[np.float64]
    end: NDArray[np.intp]


class AgentRows:
    """Reads rollouts of envs by agents.

    Args:
        team: the agents.
        spaces: of the rows.
    """

    def __init__(self, team: Team, spaces: SharedSpaces) -> None:
        self._team = team
        self._spaces = spaces
        self._agents = len(team.agents)

    def of(self, rollout: Rollout) -> Rollout:
        """Return the rollout of agents; as many rows, `[rows, envs x agents]`."""
        acts = self._acting(rollout.obs)
        outcomes = self._outcomes(rollout, acts)
        rows, columns = len(acts), acts.shape[1] * self._agents
        flat = acts.reshape(rows, columns)
        # Where each row of an agent is among the env's rows; padding comes last.
        order = np.argsort(~flat, axis=0, kind="stable")
        known = np.take_along_axis(flat, order, 0)

        def dense(array: Array) -> Array:
            """`[rows, envs, agents, ...]` by agent."""
            return _dense(array.reshape(rows, columns, *array.shape[3:]), order, known)

        kind = np.where(known, dense(outcomes.kind), UNKNOWN)
        extras = {name: dense(array) for name, array in rollout.extras.items()}
        action = extras.pop(AGENT_ACTION)
        next_value = rollout.next_value.reshape(columns)
        if VALUE in extras:  # gae looks at what follows the last known row
            extras[VALUE] = np.where(known, extras[VALUE], next_value)
        seen = self._seen(rollout.obs, (rows, columns))
        shape = len(rollout.next_started), self._agents
        return replace(
            rollout,
            obs=mapped(lambda leaf: _dense(leaf, order, known), seen),
            action=action,
            reward=np.where(known, dense(outcomes.reward), 0.0),
            terminated=kind == TERMINATED,
            truncated=kind == TRUNCATED,
            started=dense(self._started(rollout, acts)) | ~known,
            valid=kind != UNKNOWN,
            extras=extras,
            final_obs=self._last_seen(rollout, seen, kind, dense(outcomes.end)),
            next_obs=self._seen(rollout.next_obs, (columns,)),
            next_started=np.broadcast_to(rollout.next_started[:, None], shape).ravel(),
            first_carry=as_rows(rollout.first_carry, columns),
            next_carry=as_rows(rollout.next_carry, columns),
            bootstrap=np.where(kind == TRUNCATED, dense(outcomes.value), 0.0),
            next_value=next_value,
            version=dense(np.repeat(rollout.version[..., None], self._agents, 2)),
        )

    # What came of each action ---------------------------------------------------------

    def _outcomes(self, rollout: Rollout, acts: Bools) -> Outcomes:
        """Go backwards: what follows an action is known before it."""
        reward = self._following(rollout, "reward")
        terminated = self._following(rollout, "terminated").astype(np.bool_)
        truncated = self._following(rollout, "truncated").astype(np.bool_)
        # An episode that ended without a word about its agents, as where it was cut.
        cut = self._following(rollout, "acting" if self._team.turns else "alive")
        values = self._last_values(rollout)
        found = Outcomes(
            np.zeros(acts.shape),
            np.zeros(acts.shape, np.int8),
            np.zeros(acts.shape),
            np.zeros(acts.shape, np.intp),
        )
        kind = np.where(self._acting(rollout.next_obs), CONTINUED, UNKNOWN)
        got, value = np.zeros(kind.shape), np.zeros(kind.shape)
        end = np.zeros(kind.shape, np.intp)
        ended, valid = rollout.ended, rollout.valid
        for row in range(len(acts) - 1, -1, -1):
            over = ended[row][:, None]
            gone = terminated[row] | truncated[row]
            # The next episode, or the agent's next life, is none of this one's.
            fate = np.where(terminated[row], TERMINATED, TRUNCATED)
            kind = np.where(gone, fate, np.where(over, TRUNCATED * cut[row], kind))
            got = np.where(gone | over, 0.0, got) + reward[row]
            value = np.where(gone | over, values[row], value)
            end = np.where(gone | over, row, end)
            kind = np.where(valid[row][:, None], kind, UNKNOWN)
            now = acts[row]
            found.reward[row], found.kind[row] = got, kind
            found.value[row], found.end[row] = value, end
            got, kind = np.where(now, 0.0, got), np.where(now, CONTINUED, kind)
        return found

    def _last_values(self, rollout: Rollout) -> Array:
        """The values of what agents see after each row, where they have just left."""
        shape = (*rollout.valid.shape, self._agents)
        here = rollout.extras.get(VALUE, np.zeros(shape))
        after = np.concatenate([here[1:], rollout.next_value[None]])
        return np.where(rollout.ended[..., None], rollout.bootstrap, after)

    def _following(self, rollout: Rollout, leaf: str) -> Array:
        """What the block says after each row."""
        here, last = (self._leaf(one, leaf) for one in (rollout.obs, rollout.next_obs))
        after = np.concatenate([here[1:], last[None]])
        if rollout.ended.any():
            after[rollout.ended] = self._leaf(rollout.final_obs, leaf)
        return after

    def _acting(self, batch: Any) -> Bools:
        """Which agents act, `(..., agents)`."""
        alive = self._leaf(batch, "alive").astype(np.bool_)
        if not self._team.turns:
            return alive
        return alive & self._leaf(batch, "acting").astype(np.bool_)

    def _started(self, rollout: Rollout, acts: Bools) -> Bools:
        """Where an agent acts for the first time in its episode."""
        alive = self._leaf(rollout.obs, "alive").astype(np.bool_)
        ended = self._leaf(rollout.obs, "terminated") | self._leaf(
            rollout.obs, "truncated"
        )
        new = rollout.started[..., None] | ~alive | ended.astype(np.bool_)
        started = np.zeros_like(acts)
        fresh = np.zeros(acts.shape[1:], np.bool_)
        for row, now in enumerate(acts):
            fresh = fresh | new[row]
            started[row] = fresh
            fresh = fresh & ~now
        return started

    # Observations ---------------------------------------------------------------------

    def _leaf(self, batch: Any, leaf: str) -> Array:
        """One leaf of all agents, `(..., agents)`."""
        groups = {group.name: batch[group.name][leaf] for group in self._team.groups}
        (first, *_) = groups.values()
        leading = first.shape[:-1]
        flat = {name: one.reshape(-1, one.shape[-1]) for name, one in groups.items()}
        return self._spaces.flags(flat).reshape(*leading, self._agents)

    def _seen(self, batch: Any, shape: tuple[int, ...]) -> Any:
        """What agents see, `(*shape, ...)`, from a batch of teams.

        `shape` ends with all agents of all envs.
        """
        envs, axes = int(np.prod(shape)) // self._agents, len(shape)
        parts = {}
        for group in self._team.groups:
            leaves = batch[group.name]
            flat = mapped(lambda one: one.reshape(envs, *one.shape[axes:]), leaves)
            parts[group.name] = flat
        rows = self._spaces.seen(parts, envs)
        return mapped(lambda one: one.reshape(*shape, *one.shape[1:]), rows)

    def _last_seen(self, rollout: Rollout, seen: Any, kind: Array, end: Array) -> Any:
        """The last observations of agents that ended, row by row."""
        ended = rollout.ended
        rows, columns = np.nonzero(kind >= TERMINATED)
        places, envs = end[rows, columns], columns // self._agents
        # With their env, which is in `final_obs`, by row and env; or before it, which
        # is in the env's next row.
        over = ended[places, envs]
        number = np.cumsum(ended).reshape(ended.shape) - 1
        at_end = number[places, envs] * self._agents + columns % self._agents
        beyond = places + 1 == len(kind)
        following = np.where(beyond, 0, places + 1)
        finals = self._seen(rollout.final_obs, (int(ended.sum()) * self._agents,))
        last = self._seen(rollout.next_obs, kind.shape[1:])

        def chosen(leaf: Array, after: Array, final: Array) -> Array:
            found = leaf[following, columns]
            found[beyond] = after[columns[beyond]]
            found[over] = final[at_end[over]]
            return found

        return mapped(chosen, seen, last, finals)


def _dense(leaf: Array, order: NDArray[np.intp], known: Bools) -> Array:
    """`[rows, columns, ...]` with an agent's rows first."""
    if known.all():
        return leaf
    places = order.reshape(*order.shape, *[1] * (leaf.ndim - 2))
    return np.take_along_axis(leaf, places, 0)
