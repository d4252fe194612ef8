"""An actor-critic net as a policy, computed without gradients."""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from gymnasium import Space
from numpy.typing import NDArray

from corral.core import Decision, Generators, Step
from corral.engine.tree import mapped
from corral.learners.exact_rows import ExactRows
from corral.learners.nets.actor_critic import ActorCritic
from corral.learners.nets.encoders import split
from corral.learners.nets.numpy_forward import TurnsForward, numpy_forward_of
from corral.learners.protocol import PolicyVariants
from corral.learners.tensors import (
    Device,
    load_weights,
    to_array,
    to_tensor,
    weights_of,
)
from corral.learners.torch_import import torch

# The extras of a decision, and so of a rollout.
CHOSEN, LOG_PROB, VALUE = "chosen", "log_prob", "value"


class NetPolicy(PolicyVariants):
    """Decides with an actor-critic net.

    Its decisions have the extras `log_prob` and `value`, and for a Box `chosen`: the
    action before it was cut to the bounds of its space.

    A row's last bits do not depend on the batch that it is part of, if the policy is
    exact. Its variants, for evaluation, are exact.

    Args:
        net: the actor and the critic.
        observation_space: of one env.
        device: where the net is.
        exact: whether rows are independent of their batch to the last bit.
    """

    def __init__(
        self,
        net: ActorCritic,
        observation_space: Space[Any],
        device: Device,
        exact: bool = False,
    ) -> None:
        self._net = net
        self._head = net.head
        self._space = observation_space
        self._device = device
        self._numpy_forward = numpy_forward_of(net)
        self._exact = exact
        self._exact_rows = ExactRows()

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Of a copy: its numpy net has to use the weights of the copied net."""
        self.__dict__.update(state)
        self._numpy_forward = numpy_forward_of(self._net)

    def _with(self, greedy: bool) -> NetPolicy:
        other = super()._with(greedy)
        other._exact = True
        return other

    def exact(self) -> NetPolicy:
        """Return a copy whose rows do not depend on their batch, with the same net."""
        return self._with(self.greedy)

    # What a collector asks --------------------------------------------------------

    def act(self, step: Step, carry: Any, rng: Generators) -> Decision:
        """Choose an action for each row of a step."""
        head = self._head
        outputs, values, carry = self._judged(step.obs, carry)
        if self.greedy:
            chosen, log_prob = head.mode(outputs)
        else:
            chosen, log_prob = head.sample(outputs, rng)
        extras = {LOG_PROB: log_prob, VALUE: values}
        if not head.exact:
            extras[CHOSEN] = chosen
        return Decision(head.to_action(chosen), carry, extras)

    def in_turns(self, rows: int) -> PolicyInTurns | None:
        """Return the policy for many decisions of so many rows; None if it has none.

        No weight may change meanwhile.
        """
        forward, own = self._numpy_forward, getattr(self.act, "__func__", None)
        if forward is None or self.greedy or own is not NetPolicy.act:
            return None
        if not (forward.by_row if self._exact else rows <= forward.most_rows):
            return None
        return PolicyInTurns(self, forward.in_turns(rows, self._exact))

    def value(self, obs: Any, carry: Any) -> NDArray[np.float32]:
        """Return the values of observations."""
        values: NDArray[np.float32]
        forward, leaves = self._numpy_forward, split(self._space, obs)
        if forward is None or self._exact or len(leaves[0]) > forward.most_rows:
            values = self._judged(obs, carry)[1]
        else:  # without the actor
            values = forward.values(leaves[0])
        return values

    def initial_carry(self, rows: int) -> Any:
        """Return the carry at the start of an episode: zeros, or None."""
        memory = self._net.memory
        return None if memory is None else mapped(to_array, memory.zeros(rows))

    # Its weights ------------------------------------------------------------------

    def weights(self) -> dict[str, NDArray[Any]]:
        """Return the weights of the net, by name."""
        return weights_of(self._net)

    def load_weights(self, weights: Mapping[str, NDArray[Any]]) -> None:
        """Set the weights of the net."""
        load_weights(self._net, weights)

    def on(self, device: str) -> NetPolicy:
        """Return a copy on another device."""
        other = copy.copy(self)
        other._device = torch.device(device)
        other._net = copy.deepcopy(self._net).to(other._device)
        other._head = other._net.head
        other._numpy_forward = numpy_forward_of(other._net)
        return other

    # The net ----------------------------------------------------------------------

    def _judged(self, obs: Any, carry: Any) -> tuple[Any, Any, Any]:
        """Outputs of the head, values and the carry afterwards, as arrays."""
        leaves = split(self._space, obs)
        if not self._exact:
            return self._forward(leaves, carry)
        if self._numpy_forward is not None and self._numpy_forward.by_row:
            return (*self._numpy_forward.judged_by_row(leaves[0]), None)
        outputs, values, carry = self._exact_rows(
            lambda inputs: self._torch_forward(*inputs), (leaves, carry), len(leaves[0])
        )
        return outputs, values, carry

    def _forward(self, leaves: Sequence[Any], carry: Any) -> tuple[Any, Any, Any]:
        numpy_forward = self._numpy_forward
        if numpy_forward is not None and len(leaves[0]) <= numpy_forward.most_rows:
            return (*numpy_forward.judged(leaves[0]), None)
        return self._torch_forward(leaves, carry)

    def _torch_forward(self, leaves: Sequence[Any], carry: Any) -> tuple[Any, Any, Any]:
        net = self._net
        with torch.inference_mode():
            tensors = [to_tensor(leaf, self._device) for leaf in leaves]
            carry = mapped(lambda part: to_tensor(part, self._device), carry)
            features, carry = net.step(tensors, carry)
            outputs, values = net.outputs(features, tensors), net.values(features)
            return to_array(outputs), to_array(values), mapped(to_array, carry)


class PolicyInTurns:
    """A NetPolicy whose decisions have no values; those of many are computed later.

    Values do not decide anything, and each pass through a net costs a few rows more
    than their arithmetic.
    """

    def __init__(self, policy: NetPolicy, forward: TurnsForward) -> None:
        self._head, self._space = policy._head, policy._space
        self._forward, self._sample = forward, policy._head.sampler()

    def act(self, step: Step, carry: Any, rng: Generators) -> Decision:
        """As the policy's."""
        head = self._head
        outputs = self._forward.outputs(self._leaf(step.obs))
        chosen, log_prob = self._sample(outputs, rng)
        extras = {LOG_PROB: log_prob}
        if not head.exact:
            extras[CHOSEN] = chosen
        return Decision(head.to_action(chosen), None, extras)

    def late_extras(self, obs: Any) -> dict[str, NDArray[np.float32]]:
        """The extras that are left, for observations of `(turns, rows, ...)`."""
        return {VALUE: self._forward.values(self._leaf(obs))}

    def _leaf(self, obs: Any) -> NDArray[Any]:
        """The one array of an observation."""
        if type(obs) is np.ndarray:
            return obs
        (leaf,) = split(self._space, obs)
        return leaf
