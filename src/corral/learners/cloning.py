"""Behaviour cloning: fit a policy to the actions of another one.

losses = clone(ppo, obs, action)         pairs of any policy
ppo.update(...)                          or save ppo.state_dict(), and elsewhere
other.load_policy(state)                 start from it
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from corral.engine.tree import mapped
from corral.errors import OptionError, TrainingDiverged
from corral.learners.minibatches import RolloutTensors, minibatches
from corral.learners.nets.encoders import split
from corral.learners.ppo import PPO
from corral.learners.tensors import one_axis, to_array, to_tensor
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
    net = learner.net
    pairs = _paired(learner, obs, action, started is not None)
    if started is None:
        started = np.zeros((len(pairs.chosen), 1), np.bool_)
    carry = None
    if net.memory is not None:
        carry = mapped(to_array, net.memory.zeros(started.shape[1]))
    every = np.ones_like(started)
    generator = torch.Generator().manual_seed(seed)
    acting = [net.encoder, net.memory, net.actor, net.head.layer]
    weights = [
        weight for part in acting if part is not None for weight in part.parameters()
    ]
    adam = torch.optim.Adam(weights, lr=lr)
    losses = []
    for epoch in range(epochs):
        total = []
        for batch in minibatches(pairs, started, every, carry, batch_size, generator):
            features = net.unroll(batch.rows.leaves, batch.batch_sizes, batch.carry)
            loss = net.head.cloning_loss(
                net.outputs(features, batch.rows.leaves), batch.rows.chosen
            )
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


def _paired(learner: PPO, obs: Any, action: Any, has_axes: bool) -> RolloutTensors:
    """Return what was seen and done, one row per pair."""
    if learner.net.memory is not None and not has_axes:
        raise OptionError(
            "the policy has a memory: give `started`, [rows, slots], and obs and "
            "action with these two axes first"
        )
    leaves = split(learner.observation_space, obs)
    if has_axes:
        leaves, action = [one_axis(leaf) for leaf in leaves], one_axis(action)
    counts = {len(leaf) for leaf in leaves} | {len(action)}
    if len(counts) > 1 or not len(action):
        raise OptionError(
            f"there are {sorted(counts)} observations and actions; as many of one "
            "as of the other are needed, and at least one"
        )
    device = learner.device
    return RolloutTensors(
        [to_tensor(np.asarray(leaf), device) for leaf in leaves],
        learner.net.head.from_action(np.asarray(action)).to(device),
    )
