"""How SAC and TD3 act: at random at first, then by their actor."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from corral.core import Decision, Generators, Step
from corral.engine.tree import mapped
from corral.learners.exact_rows import ExactRows
from corral.learners.off_policy.nets import ActorNet, History
from corral.learners.off_policy.sac import LOG_STD_BOUNDS
from corral.learners.off_policy.vectors import Actions, ObsVector
from corral.learners.protocol import PolicyVariants
from corral.learners.tensors import Device, load_weights, to_array, weights_of
from corral.learners.torch_import import torch

Array = NDArray[np.float32]
# The extra with the action as the nets know it: in -1 to 1, or one-hot.
CHOSEN = "chosen"
# Among the weights: whether to act at random.
RANDOM = "random"
Head = Literal["gaussian", "tanh", "categorical"]


class ActorPolicy(PolicyVariants):
    """Acts with an actor; a row does not depend on the others in its batch.

    Args:
        actor: the net.
        head: what its outputs mean.
        observe: observations as vectors.
        actions: actions as vectors.
        noise: deviation of the noise on the actions of a tanh head.
        device: where the net is.
    """

    def __init__(
        self,
        actor: ActorNet,
        head: Head,
        observe: ObsVector,
        actions: Actions,
        noise: float,
        device: Device,
    ) -> None:
        self.actor = actor
        # Whether to act at random, for warm-up; its variants never do.
        self.random = False
        self._head = head
        self._observe = observe
        self._actions = actions
        self._noise = noise
        self._device = device
        self._exact_rows = ExactRows()

    def act(self, step: Step, carry: Any, rng: Generators) -> Decision:
        """Choose an action for each row of a step."""
        if self.random:
            chosen = self._at_random(rng)
        else:
            outputs, carry = self._outputs(step, carry)
            chosen = self._chosen(outputs, rng)
        if carry is not None:
            carry = (chosen, carry[1])
        return Decision(self._actions.to_env(chosen), carry, {CHOSEN: chosen})

    def initial_carry(self, rows: int) -> Any:
        """Return no previous action, and an empty memory; None without a memory."""
        if self.actor.history is None:
            return None
        memory = self.actor.history.memory.zeros(rows)
        nothing = np.zeros((rows, self._actions.width), np.float32)
        return nothing, mapped(to_array, memory)

    def _with(self, greedy: bool) -> ActorPolicy:
        other = super()._with(greedy)
        other.random = False
        return other

    def frozen(self) -> ActorPolicy:
        """Return a deterministic copy that later updates do not change."""
        other = self.deterministic()
        other.actor = copy.deepcopy(self.actor)
        return other

    # Its weights ----------------------------------------------------------------------

    def weights(self) -> dict[str, NDArray[Any]]:
        """Return the weights of the actor by name, and whether it acts at random."""
        return {**weights_of(self.actor), RANDOM: np.array(self.random)}

    def load_weights(self, weights: Mapping[str, NDArray[Any]]) -> None:
        """Set what `weights` returned."""
        load_weights(self.actor, weights, besides=[RANDOM])
        self.random = bool(weights[RANDOM])

    def on(self, device: str) -> ActorPolicy:
        """Return a copy on another device."""
        other = copy.copy(self)
        other._device = torch.device(device)
        other.actor = copy.deepcopy(self.actor).to(other._device)
        return other

    # Choices --------------------------------------------------------------------------

    def _at_random(self, rng: Generators) -> Array:
        if self._actions.discrete:
            picked = rng.random(1)[:, 0] * self._actions.width
            return _one_hot(picked.astype(np.int64), self._actions.width)
        return (2 * rng.random(self._actions.width) - 1).astype(np.float32)

    def _chosen(self, outputs: Array, rng: Generators) -> Array:
        if self._head == "categorical":
            # The largest of logits with Gumbel noise is a draw from their softmax.
            if not self.greedy:
                drawn = np.maximum(rng.random(outputs.shape[1]), 1e-12)
                outputs = outputs - np.log(-np.log(drawn)).astype(np.float32)
            return _one_hot(outputs.argmax(-1), self._actions.width)
        if self._head == "gaussian":
            width = self._actions.width
            mean, log_std = outputs[:, :width], outputs[:, width:]
            if self.greedy:
                return np.tanh(mean)
            std = np.exp(np.clip(log_std, *LOG_STD_BOUNDS))
            return np.tanh(mean + std * self._drawn(rng))
        action = np.tanh(outputs)
        if not self.greedy:
            action = np.clip(action + np.float32(self._noise) * self._drawn(rng), -1, 1)
        return action

    def _drawn(self, rng: Generators) -> Array:
        return rng.normal(self._actions.width).astype(np.float32)

    # The net --------------------------------------------------------------------------

    def _outputs(self, step: Step, carry: Any) -> tuple[Array, Any]:
        """Return the actor's outputs and the carry."""
        obs = self._observe(step.obs)
        if carry is None:
            inputs: Any = (obs, None, None, None)
        else:
            reward = np.where(step.started, 0.0, step.reward).astype(np.float32)
            inputs = (obs, carry[0], reward[:, None], carry[1])
        outputs, memory = self._exact_rows(self._forward, inputs, len(obs))
        return outputs, None if carry is None else (carry[0], memory)

    def _forward(self, inputs: Any) -> tuple[Array, Any]:
        with torch.inference_mode():
            obs, action, reward, memory = mapped(
                lambda part: torch.from_numpy(part).to(self._device), inputs
            )
            outputs = self.actor.step(History(action, reward, obs), memory)
            found: tuple[Array, Any] = mapped(to_array, outputs)
        return found


def _one_hot(chosen: NDArray[Any], width: int) -> Array:
    hot: Array = np.eye(width, dtype=np.float32)[chosen]
    return hot
