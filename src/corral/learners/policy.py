"""A net as a policy: what a collector asks, answered without gradients."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any

import numpy as np
from gymnasium import Space
from numpy.typing import NDArray

from corral.core import Decision, Generators, Step
from corral.learners.nets.actor_critic import ActorCritic
from corral.learners.nets.encoders import split
from corral.learners.nets.numpy_forward import numpy_forward_of
from corral.learners.tensors import Device, to_tensor
from corral.learners.torch_import import torch

FORWARD_ROWS = 16
"""Rows of every forward pass, where a row must not depend on how many there are."""
CHOSEN, LOG_PROB, VALUE = "chosen", "log_prob", "value"
"""The extras of a decision, and so of a rollout."""


class NetPolicy:
    """Decides with an actor-critic net.

    Its decisions have the extras `log_prob` and `value`, and for a Box `chosen`: the
    action before it was cut to the bounds of its space.

    Args:
        net: who decides.
        observation_space: what it sees.
        device: where the net is.
        deterministic: the likeliest action, rather than one drawn at random.
        exact: compute row by row, or in passes of a fixed size, so that a row's last
            bits do not depend on the batch that it is part of.
    """

    def __init__(
        self,
        net: ActorCritic,
        observation_space: Space[Any],
        device: Device,
        *,
        deterministic: bool = False,
        exact: bool = False,
    ) -> None:
        self._net = net
        self._head = net.head
        self._space = observation_space
        self._device = device
        self._numpy_forward = numpy_forward_of(net)
        self._deterministic = deterministic
        self._exact = exact

    def deterministic(self) -> NetPolicy:
        """The same net, always with its likeliest action; for evaluation, so exact."""
        return self._like(deterministic=True)

    def stochastic(self) -> NetPolicy:
        """The same net, drawing its actions; for evaluation, so exact."""
        return self._like(deterministic=False)

    def frozen(self) -> NetPolicy:
        """As `deterministic`, with the net as it is now: it learns nothing more."""
        net, space, device = copy.deepcopy(self._net), self._space, self._device
        return NetPolicy(net, space, device, deterministic=True, exact=True)

    def _like(self, deterministic: bool) -> NetPolicy:
        net, space, device = self._net, self._space, self._device
        return NetPolicy(net, space, device, deterministic=deterministic, exact=True)

    # What a collector asks --------------------------------------------------------

    def act(self, step: Step, carry: Any, rng: Generators) -> Decision:
        """Choose an action for each row of a step."""
        head = self._head
        outputs, values, carry = self._judged(step.obs, carry)
        if self._deterministic:
            chosen, log_prob = head.mode(outputs)
        else:
            chosen, log_prob = head.sample(outputs, rng)
        extras = {LOG_PROB: log_prob, VALUE: values}
        if not head.exact:
            extras[CHOSEN] = chosen
        return Decision(head.to_action(chosen), carry, extras)

    def value(self, obs: Any, carry: Any) -> NDArray[np.float32]:
        """What is to be expected from these observations on."""
        values: NDArray[np.float32] = self._judged(obs, carry)[1]
        return values

    def initial_carry(self, rows: int) -> Any:
        """What is remembered at the start of an episode: zeros, or None."""
        memory = self._net.memory
        return None if memory is None else _arrays(memory.zeros(rows))

    # The net ----------------------------------------------------------------------

    def _judged(self, obs: Any, carry: Any) -> tuple[Any, Any, Any]:
        """Outputs of the head, values and the carry afterwards, as arrays."""
        leaves = split(self._space, obs)
        if not self._exact:
            return self._forward(leaves, carry)
        if self._numpy_forward is not None and self._numpy_forward.by_row:
            return (*self._numpy_forward.judged_by_row(leaves[0]), None)
        parts = []
        for begin in range(0, len(leaves[0]), FORWARD_ROWS):
            parts.append(self._chunk(leaves, carry, begin))
        outputs, values, carries = zip(*parts, strict=True)
        return np.concatenate(outputs), np.concatenate(values), _joined(carries)

    def _chunk(self, leaves: Sequence[Any], carry: Any, begin: int) -> list[Any]:
        """The same of at most FORWARD_ROWS rows, filled up to so many."""
        last = len(leaves[0]) - 1
        # The last row again and again: of the right kind, whatever the space.
        index = np.minimum(np.arange(begin, begin + FORWARD_ROWS), last)
        rows = [leaf[index] for leaf in leaves]
        judged = self._torch_forward(rows, _at(carry, index))
        return [_at(one, slice(0, last + 1 - begin)) for one in judged]

    def _forward(self, leaves: Sequence[Any], carry: Any) -> tuple[Any, Any, Any]:
        numpy_forward = self._numpy_forward
        if numpy_forward is not None and len(leaves[0]) <= numpy_forward.most_rows:
            return (*numpy_forward.judged(leaves[0]), None)
        return self._torch_forward(leaves, carry)

    def _torch_forward(self, leaves: Sequence[Any], carry: Any) -> tuple[Any, Any, Any]:
        net = self._net
        with torch.inference_mode():
            tensors = [to_tensor(leaf, self._device) for leaf in leaves]
            if carry is not None:
                carry = _tensors(carry, self._device)
            features, carry = net.step(tensors, carry)
            outputs, values = net.outputs(features), net.values(features)
            carry = None if carry is None else _arrays(carry)
            return to_array(outputs), to_array(values), carry


def to_array(tensor: Any) -> NDArray[Any]:
    """A tensor as an array, which shares its memory on the CPU."""
    array: NDArray[Any] = tensor.cpu().numpy()
    return array


# Carries: a tensor, a pair of them, or None ---------------------------------------


def _tensors(carry: Any, device: Device) -> Any:
    if isinstance(carry, tuple):
        return tuple(to_tensor(part, device) for part in carry)
    return to_tensor(carry, device)


def _arrays(carry: Any) -> Any:
    if isinstance(carry, tuple):
        return tuple(to_array(part) for part in carry)
    return to_array(carry)


def _at(carry: Any, index: Any) -> Any:
    if isinstance(carry, tuple):
        return tuple(part[index] for part in carry)
    return None if carry is None else carry[index]


def _joined(carries: Sequence[Any]) -> Any:
    if isinstance(carries[0], tuple):
        return tuple(np.concatenate(parts) for parts in zip(*carries, strict=True))
    return None if carries[0] is None else np.concatenate(carries)
