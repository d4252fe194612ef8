"""The team of an env, and what a rollout says of each of its agents.

    rollout of a pool of teams ─► TeamRows: `[rows, slots, agents, ...]`

The block has an agent's reward and its end beside what it sees next: in the following
row, or in `final_obs` where the episode ended.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from gymnasium import Space, spaces
from numpy.typing import NDArray

from corral.core import EnvSpec
from corral.engine.adapters.flattened_agents import flat_batch, flat_box
from corral.engine.adapters.team import TEAM_KEY, Group, Team, masks_of
from corral.engine.tree import mapped
from corral.errors import OptionError
from corral.rollouts.rollout import Rollout

Bools = NDArray[np.bool_]
Floats = NDArray[Any]


@dataclass(frozen=True, slots=True)
class TeamSpaces:
    """Agents that can share one policy: equal spaces, all acting at once.

    Attributes:
        numbers: Of one agent's observation, flattened.
    """

    group: Group
    numbers: int

    @classmethod
    def of(cls, spec: EnvSpec) -> TeamSpaces:
        """Read them from what an env says; OptionError if it has no such team."""
        team: Team | None = spec.metadata.get(TEAM_KEY)
        if team is None:
            raise OptionError(
                "learner: taac needs an env with agents, and this one has a single "
                f"agent ({spec.observation_space} -> {spec.action_space}); use "
                "learner: ppo, or an env of PettingZoo's"
            )
        if team.turns:
            raise OptionError(
                "learner: taac needs agents that act at once, and those of this env "
                "act in turn; use learner: ppo with view: shared"
            )
        if len(team.groups) > 1:
            kinds = ", ".join(
                f"{group.name}: {group.observation_space} -> {group.action_space}"
                for group in team.groups
            )
            raise OptionError(
                f"learner: taac has one policy for all agents, and these have "
                f"different spaces ({kinds}); wrap the env so that they are equal"
            )
        (group,) = team.groups
        action = group.action_space
        if not isinstance(action, (spaces.Discrete, spaces.Box)):
            raise OptionError(
                f"learner: taac takes Discrete and Box actions; those of this env are "
                f"{action}. Wrap the env to take one of these"
            )
        owner = f"group {group.name!r}"
        return cls(group, flat_box(owner, group.observation_space).shape[0])

    @property
    def agents(self) -> int:
        """The most agents that can be there."""
        return len(self.group.agents)

    @property
    def action_space(self) -> Space[Any]:
        """Of one agent."""
        return self.group.action_space

    def seen(self, batch: Any) -> tuple[Floats, Bools, Bools | None]:
        """What agents see, which agents are present, and which actions are allowed.

        Arrays have the leading axes of the batch, then the agents. The last is None if
        all actions are allowed.
        """
        leaves = batch[self.group.name]
        alive: Bools = leaves["alive"].astype(np.bool_)
        allowed = masks_of(self.group, leaves)
        obs = self.flat(leaves["obs"], alive.shape)
        if not _all_set(alive):
            obs[~alive] = 0.0
        if allowed is None or _all_set(allowed):
            return obs, alive, None
        allowed = allowed.astype(np.bool_) | ~alive[..., None]
        return obs, alive, None if _all_set(allowed) else allowed

    def seen_by_all(self, batch: Any) -> Floats | None:
        """What agents see, as it is, if that needs no change: all present and free.

        None if it does; see `seen`.
        """
        leaves = batch[self.group.name]
        obs, masks = leaves["obs"], masks_of(self.group, leaves)
        plain = type(obs) is np.ndarray and obs.ndim == 3 and obs.dtype == np.float32
        free = masks is None or _all_set(masks)
        return obs if plain and free and _all_set(leaves["alive"]) else None

    def flat(self, obs: Any, shape: tuple[int, ...]) -> Floats:
        """Observations as `(*shape, numbers)`, in memory of their own."""
        space, count = self.group.observation_space, math.prod(shape)
        axes = len(shape)
        obs = mapped(lambda leaf: leaf.reshape(count, *leaf.shape[axes:]), obs)
        rows = flat_batch(space, obs, count)
        return rows.reshape(*shape, self.numbers)


def _all_set(flags: Floats) -> bool:
    """Whether no entry is 0; sooner than `flags.all()`."""
    return bool(np.count_nonzero(flags) == flags.size)


@dataclass(frozen=True, slots=True)
class TeamRows:
    """A rollout by agents: arrays `[rows, slots, agents, ...]`.

    Attributes:
        allowed: The allowed actions; None if all are, in every row.
        after: What follows each row: the next observation, or the last one of an
            episode that ended.
        staying: Agents that are valued in `after`: they acted, and were not
            terminated.
        valid: Where an agent acted, and the result is known.
        next_obs: `[slots, agents, ...]`, after the last row, as all that follow.
    """

    obs: Floats
    alive: Bools
    allowed: Bools | None
    action: Floats
    reward: NDArray[np.float64]
    terminated: Bools
    truncated: Bools
    valid: Bools
    after: Floats
    staying: Bools
    next_obs: Floats
    next_alive: Bools
    next_allowed: Bools | None

    @classmethod
    def of(cls, team: TeamSpaces, rollout: Rollout) -> TeamRows:
        """Read them from a rollout."""
        name = team.group.name
        obs, alive, allowed = team.seen(rollout.obs)
        next_obs, next_alive, next_allowed = team.seen(rollout.next_obs)
        ended = rollout.ended[..., None]
        terminated = _following(rollout, name, "terminated").astype(np.bool_) & alive
        cut = _following(rollout, name, "truncated").astype(np.bool_) | ended
        staying = alive & ~terminated
        after = np.concatenate([obs[1:], next_obs[None]])
        _put_last_seen(team, rollout, after, staying)
        return cls(
            obs=obs,
            alive=alive,
            allowed=allowed,
            action=rollout.action[name],
            reward=np.where(alive, _following(rollout, name, "reward"), 0.0),
            terminated=terminated,
            truncated=cut & staying,
            valid=alive & rollout.valid[..., None],
            after=after,
            staying=staying,
            next_obs=next_obs,
            next_alive=next_alive,
            next_allowed=next_allowed,
        )


def _following(rollout: Rollout, name: str, leaf: str) -> NDArray[Any]:
    """What the block says after each row."""
    here, last = rollout.obs[name][leaf], rollout.next_obs[name][leaf]
    after = np.concatenate([here[1:], last[None]])
    ended = rollout.ended
    if ended.any():
        after[ended] = rollout.final_obs[name][leaf]
    return after


def _put_last_seen(
    team: TeamSpaces, rollout: Rollout, after: Floats, staying: Bools
) -> None:
    """Put what agents saw last in the place of what the next episode begins with.

    Also for agents that leave while others stay: the block shows it in the step that
    ends them, in which they are no longer alive.
    """
    name, ended = team.group.name, rollout.ended
    here, last = rollout.obs[name]["obs"], rollout.next_obs[name]["obs"]
    alive = np.concatenate(
        [rollout.obs[name]["alive"][1:], rollout.next_obs[name]["alive"][None]]
    ).astype(np.bool_)
    leaving = staying & ~alive & ~ended[..., None]
    if leaving.any():
        shape = staying.shape
        whole = [team.flat(here, shape)[1:], team.flat(last, shape[1:])[None]]
        after[leaving] = np.concatenate(whole)[leaving]
    if ended.any():
        count = int(ended.sum())
        finals = team.flat(rollout.final_obs[name]["obs"], (count, team.agents))
        after[ended] = finals
    after[~staying] = 0.0
