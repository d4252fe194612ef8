"""Behaviour cloning: fit a policy to the actions of another one.

losses = clone(ppo, obs, action)         pairs of any policy
ppo.update(...)                          or save ppo.state_dict(), and elsewhere
other.load_policy(state)                 start from it
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from corral.errors import OptionError, TrainingDiverged
from corral.learners.minibatches import even_parts, shuffled, shuffled_slots
from corral.learners.nets.encoders import split
from corral.learners.ppo import PPO
from corral.learners.rollout_tensors import one_axis
from corral.learners.tensors import to_tensor
from corral.learners.torch_import import torch


def clone(
    learner: PPO,
    obs: Any,
    action: NDArray[Any],
    *,
    started: NDArray[np.bool_] | None = None,
    epochs: int = 10,
    batch_size: int = 256,
    lr: float = 1e-3,
    seed: int = 0,
) -> list[float]:
    """Fit the learner's actor to pairs; return the mean loss of each epoch.

    The critic, the standard deviation of Box actions and the optimiser's state stay as
    they are. The loss is the negative log-probability of the actions; for a Box, the
    squared error of the mean.

    Args:
        learner: has the nets.
        obs: a batch of observations as the policy sees them (normalised, if it is).
        action: a batch of the actions taken.
        started: for a policy with a memory: where episodes start, as `[rows, slots]`;
            `obs` and `action` have these two axes first as well.
        epochs: passes over the pairs.
        batch_size: pairs of a minibatch.
        lr: learning rate.
        seed: of the order of the pairs.
    """
    pairs = _Pairs(learner, obs, action, started, batch_size, seed)
    net = learner.net
    acting = [net.encoder, net.memory, net.actor, net.head.layer]
    weights = [
        weight for part in acting if part is not None for weight in part.parameters()
    ]
    adam = torch.optim.Adam(weights, lr=lr)
    losses = []
    for epoch in range(epochs):
        total = []
        for features, chosen in pairs.minibatches():
            loss = net.head.cloning_loss(net.outputs(features), chosen)
            if not math.isfinite(loss.item()):
                raise TrainingDiverged(
                    f"the loss of cloning is {loss.item()} in epoch {epoch + 1}; look "
                    "for pairs that are not finite, or lower lr"
                )
            # In place: the learner's optimiser holds all gradients as one vector.
            adam.zero_grad(set_to_none=False)
            loss.backward()
            adam.step()
            total.append(loss.item())
        losses.append(sum(total) / len(total))
    return losses


class _Pairs:
    """What was seen and done, in minibatches."""

    def __init__(
        self,
        learner: PPO,
        obs: Any,
        action: NDArray[Any],
        started: NDArray[np.bool_] | None,
        batch_size: int,
        seed: int,
    ) -> None:
        net = learner.net
        if net.memory is not None and started is None:
            raise OptionError(
                "the policy has a memory: give `started`, [rows, slots], and obs and "
                "action with these two axes first"
            )
        leaves = split(learner.observation_space, obs)
        if started is not None:
            leaves, action = [one_axis(leaf) for leaf in leaves], one_axis(action)
        counts = {len(leaf) for leaf in leaves} | {len(action)}
        if len(counts) > 1 or not len(action):
            raise OptionError(
                f"there are {sorted(counts)} observations and actions; as many of one "
                "as of the other are needed, and at least one"
            )
        device = learner.device
        self._net = net
        self._leaves = [to_tensor(np.asarray(leaf), device) for leaf in leaves]
        self._chosen = net.head.from_action(np.asarray(action)).to(device)
        self._started = started
        self._size = batch_size
        self._device = device
        self._generator = torch.Generator().manual_seed(seed)

    def minibatches(self) -> Iterator[tuple[Any, Any]]:
        """Features and what was chosen, of every pair once."""
        if self._net.memory is not None:
            yield from self._sequences(self._started)
            return
        mixed = shuffled(np.arange(len(self._chosen)), self._generator)
        for part in even_parts(len(mixed), self._size):
            leaves, chosen = self._at(mixed[part])
            yield self._net.unroll(leaves, None, None), chosen

    def _sequences(self, started: Any) -> Iterator[tuple[Any, Any]]:
        every = np.ones_like(started)
        for packing in shuffled_slots(started, every, self._size, self._generator):
            leaves, chosen = self._at(packing.index)
            sizes = torch.from_numpy(packing.batch_sizes)
            carry = self._net.memory.zeros(len(packing.slots), self._device)
            yield self._net.unroll(leaves, sizes, carry), chosen

    def _at(self, index: NDArray[np.intp]) -> tuple[list[Any], Any]:
        places = torch.from_numpy(index).to(self._device)
        return [leaf[places] for leaf in self._leaves], self._chosen[places]
