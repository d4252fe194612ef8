"""A policy of single agents, used for whole envs.

Every agent asks the same policy. Episodes, returns and rollouts are those of envs; what
the policy said for each agent is in the extras, `(envs, agents, ...)`.

Of agents in turn only the one that acts is asked, so that a recurrent policy remembers
an agent's own turns. An agent that has just left is asked once more: what the policy
says about its last observation is `value` in the row after its last one.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from corral.api.shared_policy.spaces import SharedSpaces, as_rows
from corral.core import Decision, Generators, Step
from corral.engine.adapters.team import Team
from corral.engine.tree import mapped

Array = NDArray[Any]
# The extra that has each agent's action, as the policy chose it.
AGENT_ACTION = "agent_action"
_STEP_FIELDS = ("terminated", "truncated", "started", "valid", "seed")


class SharedPolicy:
    """Acts for every agent of every env; see `corral.Policy`.

    Args:
        policy: a policy whose rows are agents.
        team: the agents.
        spaces: the spaces of its rows.
    """

    def __init__(self, policy: Any, team: Team, spaces: SharedSpaces) -> None:
        self._policy = policy
        self._team = team
        self._spaces = spaces
        self._agents = len(team.agents)

    # Variants: the same for other forms of the policy ---------------------------------

    def deterministic(self) -> SharedPolicy:
        """The same, with the most likely actions."""
        return self._with(self._policy.deterministic())

    def stochastic(self) -> SharedPolicy:
        """The same, with sampled actions."""
        return self._with(self._policy.stochastic())

    def frozen(self) -> SharedPolicy:
        """As `deterministic`, with a copy of the policy that is not trained further."""
        return self._with(self._policy.frozen())

    def _with(self, policy: Any) -> SharedPolicy:
        other = copy.copy(self)
        other._policy = policy
        return other

    def __getattr__(self, name: str) -> Any:
        # What a policy may have or not have: its caller asks whether it has.
        if name not in ("exact", "on", "weights", "load_weights", "value"):
            raise AttributeError(name)
        own = getattr(self._policy, name)
        special = {
            "exact": lambda: self._with(own()),
            "on": lambda device: self._with(own(device)),
            "value": self._value,
        }
        return special.get(name, own)

    @property
    def single(self) -> tuple[Any, SharedSpaces]:
        """The policy of single agents, and the spaces of its rows."""
        return self._policy, self._spaces

    @property
    def value_shape(self) -> tuple[int, ...]:
        """The shape of the values of one env: a number for each agent."""
        return (self._agents,)

    # Acting ---------------------------------------------------------------------------

    def initial_carry(self, rows: int) -> Any:
        """The carry at the start of an episode, for this many envs."""
        initial = getattr(self._policy, "initial_carry", None)
        carry = None if initial is None else initial(rows * self._agents)
        return self._by_env(carry, rows)

    def act(self, step: Step, carry: Any, rng: Generators) -> Decision:
        """Choose an action for each agent of each env that acts."""
        envs, agents = len(step), self._agents
        alive = self._flags(step.obs, "alive")
        all_rows = self._rows(step)
        before = as_rows(carry, envs * agents)
        asked = None
        generators: Any = AgentGenerators(rng, agents)
        if "acting" in step.obs[self._team.groups[0].name]:  # agents in turn
            acts = self._flags(step.obs, "acting") & alive
            asked = np.flatnonzero(acts | self._flags(step.obs, "truncated") & ~alive)
            generators = ChosenGenerators(generators, asked)
            all_rows = self._some(all_rows, asked)
            own = mapped(lambda leaf: leaf[asked], before)
            decision = self._policy.act(all_rows, own, generators)
        else:
            decision = self._policy.act(all_rows, before, generators)
        whole = self._whole(decision, before, asked, envs * agents)
        extras = dict(whole.extras)
        if isinstance(whole.action, np.ndarray):
            extras[AGENT_ACTION] = whole.action
        return Decision(
            self._spaces.actions(whole.action, envs),
            self._by_env(_without(whole.carry, ~alive.ravel()), envs),
            {name: self._by_env(values, envs) for name, values in extras.items()},
        )

    def _value(self, obs: Any, carry: Any) -> Array:
        """The values of what agents see, `(envs, agents)`."""
        (group, *_) = self._team.groups
        envs = len(obs[group.name]["alive"])
        rows = self._spaces.seen(obs, envs)
        values = self._policy.value(rows, as_rows(carry, envs * self._agents))
        return np.asarray(values).reshape(envs, self._agents)

    def _rows(self, step: Step) -> Step:
        """A step with a row for each agent."""
        envs, agents = len(step), self._agents
        each: Any = {
            name: np.repeat(getattr(step, name), agents) for name in _STEP_FIELDS
        }
        return replace(
            step,
            slots=(step.slots[:, None] * agents + np.arange(agents)).ravel(),
            obs=self._spaces.seen(step.obs, envs),
            reward=self._flags(step.obs, "reward").ravel(),
            previous_action=None,
            **each,
        )

    def _some(self, step: Step, rows: NDArray[np.intp]) -> Step:
        """Some rows of a step."""
        fields = ("slots", "reward", *_STEP_FIELDS)
        each: Any = {name: getattr(step, name)[rows] for name in fields}
        return replace(step, obs=mapped(lambda leaf: leaf[rows], step.obs), **each)

    def _whole(
        self, decision: Decision, before: Any, asked: NDArray[np.intp] | None, rows: int
    ) -> Decision:
        """A decision for all rows: nothing chosen for those that were not asked."""
        if asked is None:
            return decision

        def spread(values: Any) -> Array:
            given = np.asarray(values)
            whole = np.zeros((rows, *given.shape[1:]), given.dtype)
            whole[asked] = given
            return whole

        def kept(now: Any, then: Any) -> Any:
            whole = _copied(then)
            whole[asked] = now
            return whole

        carry = decision.carry
        return Decision(
            mapped(spread, decision.action),
            None if carry is None else mapped(kept, carry, before),
            {name: spread(values) for name, values in decision.extras.items()},
        )

    def _flags(self, batch: Mapping[str, Any], leaf: str) -> Array:
        """One leaf of all agents, `(envs, agents)`."""
        groups = {group.name: batch[group.name][leaf] for group in self._team.groups}
        return self._spaces.flags(groups)

    def _by_env(self, values: Any, envs: int) -> Any:
        shape = envs, self._agents
        return mapped(lambda leaf: leaf.reshape(*shape, *leaf.shape[1:]), values)


def _without(carry: Any, rows: NDArray[np.bool_]) -> Any:
    """A carry with zeros for agents that are gone: they may come back."""
    if carry is None or not rows.any():
        return carry

    def cleared(leaf: Any) -> Any:
        other = _copied(leaf)
        other[rows] = 0
        return other

    return mapped(cleared, carry)


def _copied(leaf: Any) -> Any:
    """A copy of an array or a tensor."""
    return leaf.clone() if hasattr(leaf, "clone") else leaf.copy()


class AgentGenerators:
    """Generators of agents: those of one env share its generator."""

    def __init__(self, envs: Generators, agents: int) -> None:
        self._envs = envs
        self._agents = agents

    def __len__(self) -> int:
        return len(self._envs) * self._agents

    def __getitem__(self, row: int) -> np.random.Generator:
        return self._envs[row // self._agents]

    def random(self, count: int = 1) -> Any:
        """Draw `(rows, count)` numbers from [0, 1)."""
        return self._envs.random(count * self._agents).reshape(len(self), count)

    def normal(self, count: int = 1) -> Any:
        """Draw `(rows, count)` standard normal numbers."""
        return self._envs.normal(count * self._agents).reshape(len(self), count)


class ChosenGenerators:
    """The generators of some rows; all rows draw, so that others change nothing."""

    def __init__(self, every: Any, rows: NDArray[np.intp]) -> None:
        self._every = every
        self._rows = rows

    def __len__(self) -> int:
        return len(self._rows)

    def __getitem__(self, row: int) -> np.random.Generator:
        found: np.random.Generator = self._every[int(self._rows[row])]
        return found

    def random(self, count: int = 1) -> Any:
        """Draw `(rows, count)` numbers from [0, 1)."""
        return self._every.random(count)[self._rows]

    def normal(self, count: int = 1) -> Any:
        """Draw `(rows, count)` standard normal numbers."""
        return self._every.normal(count)[self._rows]
