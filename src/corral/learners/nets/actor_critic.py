"""The whole net: actor and critic share an encoder, and a memory if any."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any

from gymnasium import spaces

from corral.learners.nets.cnn import is_image
from corral.learners.nets.encoders import Encoder, mask_leaf
from corral.learners.nets.exported import plain_mlp
from corral.learners.nets.heads import head_for
from corral.learners.nets.memory import MEMORIES, MemoryKind
from corral.learners.nets.mlp import Activation, Mlp, dense
from corral.learners.nets.own import OwnEncoder, OwnNetwork
from corral.learners.torch_import import functional, nn

DEFAULT_HIDDEN_SIZES = (64, 64)


class ActorCritic(nn.Module):  # type: ignore[misc]
    """Leaves of observations -> outputs of the head, and values.

    Args:
        observation_space: what it sees.
        action_space: what it chooses.
        hidden: widths of each tower; None for (64, 64), or none after an image.
        activation: after each layer of a tower.
        memory: what stands between encoder and towers.
        memory_size: its width.
        log_std: of a Box's actions, at first.
        scale_images: whether bytes become numbers from 0 to 1.
        generator: where the weights come from.
        own: makes some of its parts, or None.
        seed: of the weights of those.
    """

    def __init__(
        self,
        observation_space: spaces.Space[Any],
        action_space: spaces.Space[Any],
        *,
        hidden: Sequence[int] | None,
        activation: Activation,
        memory: MemoryKind,
        memory_size: int,
        log_std: float,
        scale_images: bool,
        generator: Any,
        own: OwnNetwork | None = None,
        seed: int = 0,
    ) -> None:
        super().__init__()
        parts = {} if own is None else own.parts(observation_space, action_space, seed)
        if own is not None and "encoder" in parts:
            self.encoder: Any = OwnEncoder(parts["encoder"], observation_space)
            width = own.width_of(self.encoder, observation_space)
        else:
            self.encoder = Encoder(observation_space, scale_images, generator)
            width = self.encoder.width
        self.memory = None
        if memory != "none":
            self.memory = MEMORIES[memory](width, memory_size, generator)
            width = memory_size
        if hidden is None:
            seen = "encoder" in parts or is_image(observation_space)
            hidden = () if seen else DEFAULT_HIDDEN_SIZES
        towers = (width, hidden, activation, generator)
        self.actor: Any = parts.get("actor") or Mlp(*towers)
        self.critic: Any = parts.get("critic") or Mlp(*towers)
        inputs = None if "actor" in parts else self.actor.width
        self.head = head_for(action_space, inputs, generator, log_std)
        self._value_weights: Any = None
        if "critic" not in parts:
            self.value = dense(self.critic.width, 1, 1.0, generator)
            self._value_weights = (self.value.weight, self.value.bias)
        for name, outputs in (("actor", self.head.outputs), ("critic", 1)):
            if own is not None and name in parts:
                own.check_output(name, parts[name], width, outputs)
        # Whether every part is Corral's.
        self.is_standard = not parts
        # The number of the leaf that masks actions.
        self.mask = mask_leaf(observation_space, action_space)

    def step(self, leaves: Sequence[Any], carry: Any) -> tuple[Any, Any]:
        """Features of one row per slot, and the carry after it."""
        features = self.encoder.forward(leaves)
        if self.memory is None:
            return features, None
        return self.memory.step(features, carry)  # type: ignore[no-any-return]

    def unroll(self, leaves: Sequence[Any], batch_sizes: Any, carry: Any) -> Any:
        """Features of packed sequences."""
        features = self.encoder.forward(leaves)
        if self.memory is None:
            return features
        return self.memory.unroll(features, batch_sizes, carry)

    def outputs(self, features: Any, leaves: Sequence[Any] = ()) -> Any:
        """Of the head; with the leaves, actions that a mask among them forbids are out.

        A Dict observation has the mask under `action_mask`, as PettingZoo's envs do.
        """
        allowed = None if self.mask is None or not leaves else leaves[self.mask]
        return self.head.forward(self.actor.forward(features), allowed)

    def values(self, features: Any) -> Any:
        """(rows,): what is to be expected from here."""
        critic = self.critic.forward(features)
        if self._value_weights is None:
            return critic.reshape(-1)
        return functional.linear(critic, *self._value_weights)[:, 0]

    def plain_actor(self) -> Any:
        """Features to outputs of the head, as a plain copy; to be exported."""
        if self.head.layer is None:
            return copy.deepcopy(self.actor)
        return plain_mlp(self.actor, self.head.layer)
