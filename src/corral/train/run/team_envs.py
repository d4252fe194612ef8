"""The envs of a run that have several agents, in the form that its learner takes.

    shared   every agent that is alive asks one policy         ppo, SB3's
    joint    all agents are one agent: `FlattenedAgents`       learners of one agent
    team     a learner of teams has them as they are           taac

A worker makes the env and decides, where the config leaves it open; what it decided,
and why, is in the spec of the env, where the run reads it.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces

from corral.api.sb3.action_masks import METHOD
from corral.core import NO_TASK
from corral.engine.adapters.aec import AecAdapter
from corral.engine.adapters.against_random import AgainstRandom
from corral.engine.adapters.factories import OuterFactory, has_agents
from corral.engine.adapters.flattened_agents import FlattenedAgents
from corral.engine.adapters.multi_agent import Outcome, PettingZooAdapter
from corral.engine.adapters.parallel import ParallelAdapter
from corral.engine.adapters.pettingzoo import in_turn, parallel_form
from corral.engine.adapters.roster import Roster
from corral.engine.adapters.task_delivery import METHODS, method_of
from corral.engine.adapters.team import MASK_KEY, Team
from corral.errors import OptionError

SHARED, JOINT, TEAM = "shared", "joint", "team"
SELF, RANDOM = "self", "random"
# The key of an env's metadata that holds its View.
VIEW_KEY = "corral.view"
OBSERVATION_KEY = "observation"
MASKED_ACTIONS = (spaces.Discrete, spaces.MultiDiscrete)


@dataclass(frozen=True, slots=True)
class View:
    """How a run sees the agents of its envs.

    Attributes:
        reason: Why, if the config left it open; else "".
        masked: Whether infos have action masks, which the policy must see.
        ignored: Whether there are masks that the learner has no use for.
        turns: Whether agents must act in turn.
    """

    name: str
    reason: str = ""
    masked: bool = False
    ignored: bool = False
    turns: bool = False


@dataclass(frozen=True, slots=True)
class LearnerKind:
    """What of a learner decides how it can see agents.

    Attributes:
        name: In the config.
        trains_teams: As of `Learner`, like the rest.
    """

    name: str
    trains_teams: bool
    shares_policy: bool
    uses_masks: bool
    collects: bool


@dataclass(frozen=True, slots=True)
class AgentsFactory(OuterFactory):
    """Makes an env; one with several agents in the form that the learner takes.

    Attributes:
        view: As in the config; None to choose.
        opponents: How the other agents play: "self", or "random".
        pad: Whether agents that differ get the widest spaces.
        name: The env's, in the config.
    """

    learner: LearnerKind
    view: str | None = None
    opponents: str = SELF
    pad: bool = False
    name: str = ""

    def __call__(self) -> Any:
        """Make it; OptionError if the config does not fit its agents."""
        env = self.make()
        try:
            return self._formed(env)
        except BaseException:
            env.close()
            raise

    def _formed(self, env: Any) -> Any:
        if not has_agents(env):
            self._refuse_single(env)
            return self._single(env)
        if not getattr(env, "possible_agents", None):
            raise OptionError(
                f"`env: {self.name}` has no agents: its possible_agents must list "
                "every agent that may ever appear"
            )
        if self.opponents == RANDOM:
            env = AgainstRandom(env)
        # Stable-Baselines3 steps all rows together.
        turns = in_turn(env) and not self.learner.collects
        adapter = TurnsTeam(env) if turns else StepsTeam(parallel_form(env))
        view = replace(self._view(adapter.team), turns=in_turn(env))
        if view.name == JOINT:
            return self._joint(env, view)
        masked, uses = self._masked(adapter), self.learner.uses_masks
        known = masked or any(group.mask_in_obs for group in adapter.team.groups)
        view = replace(view, masked=masked and uses, ignored=known and not uses)
        metadata = {**adapter.spec.metadata, VIEW_KEY: view}
        adapter.spec = replace(adapter.spec, metadata=metadata)
        return adapter

    # Which view -----------------------------------------------------------------------

    def _refuse_single(self, env: Any) -> None:
        learner = self.learner
        if learner.trains_teams:
            raise OptionError(
                f"learner: {learner.name} trains teams, and `env: {self.name}` has one "
                "agent; use learner: ppo, or an env of PettingZoo's"
            )
        # An env may have joined its agents by itself.
        joined = self.view == JOINT and isinstance(
            getattr(env, "unwrapped", env), FlattenedAgents
        )
        view = None if joined else self.view
        for key, value in (("view", view), ("opponents", self.opponents)):
            if value not in (None, SELF):
                raise OptionError(
                    f"{key} is {value!r}, and `env: {self.name}` has one agent: leave "
                    f"{key} out, or name an env of PettingZoo's"
                )

    def _view(self, team: Team) -> View:
        """The view that the config asks for, or else that suits learner and agents."""
        learner, alike = self.learner, len(team.groups) == 1
        if self.view is not None:
            if self.view == SHARED and not (alike or self.pad):
                raise OptionError(
                    "view is 'shared', and one policy does not fit all agents, which "
                    f"have different spaces ({_kinds(team)}). Next steps: pad: true, "
                    "which gives all of them the widest; or view: joint, in which one "
                    "policy acts for all agents as one"
                )
            return View(self.view)
        if learner.trains_teams:
            return View(TEAM, f"learner: {learner.name} trains whole teams")
        if not learner.shares_policy:
            return View(JOINT, f"learner: {learner.name} trains one agent")
        if alike:
            count = len(team.agents)
            return View(SHARED, f"the {count} agents have equal spaces")
        if self.pad:
            return View(SHARED, "pad: true gives all agents equal spaces")
        return View(JOINT, f"agents have different spaces ({_names(team)})")

    # Masks ----------------------------------------------------------------------------

    def _masked(self, adapter: PettingZooAdapter) -> bool:
        """Whether infos have masks; found out in one episode's beginning."""
        by_info = any(group.mask_by_info for group in adapter.team.groups)
        if not (by_info and self._asks_for_masks and _starts_alone(adapter.env)):
            return False
        adapter.reset(0, None, NO_TASK)
        return adapter.masking

    @property
    def _asks_for_masks(self) -> bool:
        """Whether the learner obeys masks, or the run says that it does not."""
        return self.learner.uses_masks or self.learner.collects

    def _joint(self, env: Any, view: View) -> Any:
        flat, uses = JointTeam(env), self.learner.uses_masks
        known = self._asks_for_masks and _starts_alone(env) and flat.gives_masks()
        view = replace(view, ignored=known and not uses)
        flat.metadata = {**flat.metadata, VIEW_KEY: view}
        return MaskedObservation(flat) if known and uses else flat

    def _single(self, env: Any) -> Any:
        """An env with one agent; for sb3-contrib, with its masks in what it sees."""
        if not (self.learner.uses_masks and self.learner.collects):
            return env
        seen: Any = getattr(env, "observation_space", None)
        discrete = isinstance(env.action_space, MASKED_ACTIONS)
        if MASK_KEY in getattr(seen, "spaces", ()) or not discrete:
            return env
        return MaskedObservation(env) if env.has_wrapper_attr(METHOD) else env


def _starts_alone(env: Any) -> bool:
    """Whether an episode can begin without a task."""
    own = isinstance(env, AgainstRandom)
    return own or all(method_of(env, name) is None for name in METHODS)


def _names(team: Team) -> str:
    return ", ".join(group.name for group in team.groups)


def _kinds(team: Team) -> str:
    return "; ".join(
        f"{group.name}: {group.observation_space} -> {group.action_space}"
        for group in team.groups
    )


class MaskedObservation(gymnasium.ObservationWrapper[Any, Any, Any]):
    """A Dict of the observation and its `action_mask`, which the policy obeys.

    Args:
        env: has discrete actions, and `action_masks()`.
    """

    def __init__(self, env: Any) -> None:
        super().__init__(env)
        space: Any = env.action_space
        discrete = isinstance(space, spaces.Discrete)
        options = int(space.n if discrete else space.nvec.sum())
        seen = env.observation_space
        # Stable-Baselines3 takes no Dict in a Dict.
        self._is_dict = isinstance(seen, spaces.Dict)
        parts = dict(seen.spaces) if self._is_dict else {OBSERVATION_KEY: seen}
        mask = spaces.Box(0, 1, (options,), np.int8)
        self.observation_space = spaces.Dict({**parts, MASK_KEY: mask})
        self._masks = env.get_wrapper_attr(METHOD)

    def observation(self, observation: Any) -> dict[str, Any]:
        """Put the mask beside the observation."""
        parts = observation if self._is_dict else {OBSERVATION_KEY: observation}
        return {**parts, MASK_KEY: np.hstack(self._masks()).astype(np.int8)}


# Returns of agents --------------------------------------------------------------------

# Before the name of an agent, in the last info of an episode.
RETURN_PREFIX = "return/"


class AgentReturns:
    """Counts the returns of the agents of one episode."""

    def __init__(self, roster: Roster) -> None:
        self._roster = roster
        self._got = {agent: 0.0 for agent in roster.names}

    def counted(self, outcome: Outcome) -> Outcome:
        """Count a step; at the end, add to the infos what there is to say of agents.

        That is the return of every agent that was there, and the mean over agents of
        each number in their infos.
        """
        for agent, seat in self._roster.seats.items():
            reward = seat.reward[seat.position]
            if reward or seat.alive[seat.position]:
                self._got[agent] = self._got.get(agent, 0.0) + reward
        if outcome[2] or outcome[3]:
            infos = outcome[4]
            means = _means([infos[agent] for agent in self._got if agent in infos])
            infos |= {key: means[key] for key in means if key not in infos}
            each = self._got.items()
            infos |= {f"{RETURN_PREFIX}{agent}": got for agent, got in each}
        return outcome


class CountsReturns(PettingZooAdapter):
    """A team with the returns of its agents in the last info."""

    _returns: AgentReturns

    def reset(
        self, seed: int | None, options: dict[str, Any] | None, task: Any
    ) -> tuple[Any, dict[str, Any]]:
        """Start an episode."""
        begun = super().reset(seed, options, task)  # type: ignore[safe-super]
        self._returns = AgentReturns(self.roster)
        return begun

    def step(self, action: Any) -> Outcome:
        """Step all agents, or let the agent whose turn it is act."""
        return self._returns.counted(super().step(action))  # type: ignore[safe-super]


class StepsTeam(CountsReturns, ParallelAdapter):
    """A team whose agents act at once."""


class TurnsTeam(CountsReturns, AecAdapter):
    """A team whose agents act in turn."""


class JointTeam(FlattenedAgents):
    """A team as one agent, with the returns of its agents in the last info."""

    _returns: AgentReturns

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        """Start an episode."""
        begun = super().reset(seed=seed, options=options)
        self._returns = AgentReturns(self._adapter.roster)
        return begun

    def step(self, action: Any) -> Outcome:
        """Step every living agent with its part of the action."""
        seen, reward, terminated, truncated, info = super().step(action)
        told: dict[Any, Any] = dict(self._infos)
        self._returns.counted((seen, reward, terminated, truncated, told))
        info |= {key: told[key] for key in told if key not in self._infos}
        return seen, reward, terminated, truncated, info


def _means(infos: list[Any]) -> dict[str, float]:
    """The mean of each number, over the infos that have it."""
    numbers = (bool, int, float, np.bool_, np.number)
    found: dict[str, list[float]] = {}
    for info in infos:
        for key, value in info.items():
            if isinstance(value, numbers) and key != "acting":
                found.setdefault(key, []).append(float(value))
    return {key: float(np.mean(values)) for key, values in found.items()}
