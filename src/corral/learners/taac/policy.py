"""The actor of TAAC as a policy of whole envs, computed without gradients."""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from corral.api.shared_policy.policy import AgentGenerators
from corral.core import Decision, Generators, Step
from corral.learners.exact_rows import ExactRows
from corral.learners.nets.heads import Choice
from corral.learners.policy import CHOSEN, LOG_PROB
from corral.learners.protocol import PolicyVariants
from corral.learners.taac.nets import Actor
from corral.learners.taac.numpy_actor import TurnsActor, numpy_actor_of
from corral.learners.taac.team import TeamSpaces
from corral.learners.tensors import (
    Device,
    load_weights,
    to_array,
    to_tensor,
    weights_of,
)
from corral.learners.torch_import import torch

Array = NDArray[Any]


class TeamPolicy(PolicyVariants):
    """Decides for every agent of every env, each of which attends to its team.

    Its decisions have the extra `log_prob`, and for a Box `chosen`: the action before
    it was cut to the bounds of its space; one entry per agent.

    A row's last bits do not depend on the batch that it is part of, in its variants,
    for evaluation, and in `exact()`. Small nets on the CPU compute in numpy, every team
    by itself, where that is always so.
    """

    def __init__(self, actor: Actor, team: TeamSpaces, device: Device) -> None:
        self._actor = actor
        self._team = team
        self._device = device
        self._exact = False
        self._exact_rows = ExactRows()
        self._numpy_actor = numpy_actor_of(actor, team.agents)

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Of a copy: its numpy net has to use the weights of the copied net."""
        self.__dict__.update(state)
        self._numpy_actor = numpy_actor_of(self._actor, self._team.agents)

    def _with(self, greedy: bool) -> TeamPolicy:
        other = super()._with(greedy)
        other._exact = True
        return other

    def exact(self) -> TeamPolicy:
        """Return a copy whose rows do not depend on their batch, with the same net."""
        return self._with(self.greedy)

    def act(self, step: Step, carry: Any, rng: Generators) -> Decision:
        """Choose an action for each agent of each row."""
        team, head = self._team, self._actor.head
        outputs = self._outputs(*team.seen(step.obs))
        if self.greedy:
            choice = head.mode(outputs)
        else:
            choice = head.sample(outputs, AgentGenerators(rng, team.agents))
        return decision_of(team, head, choice, len(step))

    def in_turns(self, rows: int) -> TeamInTurns | None:
        """Return the policy for many decisions of so many rows; None if it has none.

        No weight may change meanwhile.
        """
        actor = self._numpy_actor
        if actor is None or self.greedy:
            return None
        turns = actor.in_turns(rows, self._team.agents)
        return TeamInTurns(self._team, self._actor.head, turns)

    def _outputs(self, obs: Array, alive: Array, allowed: Array | None) -> Array:
        """The head's outputs, a row for each agent."""
        if self._numpy_actor is not None:
            return self._numpy_actor.outputs(obs, alive, allowed)
        if not self._exact:
            return self._forward((obs, alive, allowed))
        inputs = (obs, alive) if allowed is None else (obs, alive, allowed)

        def by_env(parts: Any) -> Array:
            outputs = self._forward(parts)
            return outputs.reshape(-1, self._team.agents, outputs.shape[-1])

        whole: Array = self._exact_rows(by_env, inputs, len(obs))
        return whole.reshape(-1, whole.shape[-1])

    def _forward(self, inputs: Sequence[Array | None]) -> Array:
        with torch.inference_mode():
            tensors = [one if one is None else self._tensor(one) for one in inputs]
            return to_array(self._actor(*tensors)[0])

    def _tensor(self, array: Array) -> Any:
        return to_tensor(np.ascontiguousarray(array), self._device)

    # Copies ---------------------------------------------------------------------------

    def weights(self) -> dict[str, Array]:
        """Return the weights of the actor, by name."""
        return weights_of(self._actor)

    def load_weights(self, weights: Mapping[str, Array]) -> None:
        """Set the weights of the actor."""
        load_weights(self._actor, weights)

    def on(self, device: str) -> TeamPolicy:
        """Return a copy on another device."""
        other = copy.copy(self)
        other._device = torch.device(device)
        other._actor = copy.deepcopy(self._actor).to(other._device)
        other._numpy_actor = numpy_actor_of(other._actor, self._team.agents)
        return other


class TeamInTurns:
    """The policy for a fixed number of teams, while no weight changes."""

    def __init__(self, team: TeamSpaces, head: Any, actor: TurnsActor) -> None:
        self._team, self._head = team, head
        self._outputs, self._sample = actor.outputs, head.sampler()

    def act(self, step: Step, carry: Any, rng: Generators) -> Decision:
        """As the policy's."""
        team = self._team
        obs = team.seen_by_all(step.obs)
        seen = team.seen(step.obs) if obs is None else (obs, None, None)
        choice = self._sample(self._outputs(*seen), AgentGenerators(rng, team.agents))
        return decision_of(team, self._head, choice, len(step))

    def late_extras(self, obs: Any) -> dict[str, Array]:
        """None are left."""
        return {}


def decision_of(team: TeamSpaces, head: Any, choice: Choice, rows: int) -> Decision:
    """A choice of every agent, as a decision for every env."""
    chosen, log_prob = choice
    shape = rows, team.agents
    extras: dict[str, Array] = {LOG_PROB: log_prob.reshape(shape)}
    if not head.exact:
        extras[CHOSEN] = chosen.reshape(*shape, -1)
    action = head.to_action(chosen)
    actions = {team.group.name: action.reshape(*shape, *action.shape[1:])}
    return Decision(actions, None, extras)
