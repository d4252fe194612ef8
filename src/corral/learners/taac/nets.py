"""The nets of TAAC: an actor and a critic in which agents attend to each other.

    each agent's numbers ─► embedding ─► attention over the agents ─► last layers

The actor sees observations and returns the outputs of a head, one row per agent. The
critic also sees the actions of all agents, and returns the value of each agent's.
Absent agents are attended to by none but themselves.
"""

from __future__ import annotations

import math
from itertools import pairwise
from typing import Any

from gymnasium import Space

from corral.learners.nets.heads import head_for
from corral.learners.nets.mlp import HIDDEN_GAIN, dense
from corral.learners.taac.settings import TAACConfig
from corral.learners.torch_import import functional, nn, torch


class Layers(nn.Module):  # type: ignore[misc]
    """Dense layers, with a leaky ReLU between each two."""

    def __init__(self, *sizes: int, generator: Any) -> None:
        super().__init__()
        *inner, last = pairwise(sizes)
        layers = [dense(*pair, HIDDEN_GAIN, generator) for pair in inner]
        self.layers = nn.ModuleList([*layers, dense(*last, 1.0, generator)])

    def forward(self, x: Any) -> Any:
        """(..., inputs) -> (..., outputs)."""
        *inner, last = self.layers
        for layer in inner:
            x = functional.leaky_relu(layer(x))
        return last(x)


class Attention(nn.Module):  # type: ignore[misc]
    """Scaled dot-product attention over the agents of a row, with several heads."""

    def __init__(self, width: int, heads: int, generator: Any) -> None:
        super().__init__()
        self.query, self.key, self.value, self.output = (
            dense(width, width, 1.0, generator) for _ in range(4)
        )
        self.heads = heads

    def forward(self, x: Any, present: Any, itself: Any = None) -> Any:
        """(rows, agents, width), (rows, agents) -> (rows, agents, width).

        Args:
            x: the agents.
            present: those that others attend to.
            itself: the identity of agents, where it is at hand.
        """
        parts = (layer(x) for layer in (self.query, self.key, self.value))
        query, key, value = (self._apart(part).transpose(1, 2) for part in parts)
        if itself is None:
            itself = torch.eye(x.shape[1], dtype=torch.bool, device=x.device)
        seen = present[:, None, None, :] | itself
        mixed = functional.scaled_dot_product_attention(query, key, value, seen)
        return self.output(mixed.transpose(1, 2).flatten(-2))

    def of_options(self, x: Any, own: Any, present: Any) -> Any:
        """What each agent attends to with each of its options in its own place.

        Exactly `forward` of the same agents with one of them exchanged, for all agents
        and options at once: only the agent's own query, key and value differ.

        Args:
            x: `(rows, agents, width)`: the agents as they are.
            own: `(rows, agents, options, width)`: each agent with each of its options.
            present: `(rows, agents)`.
        """
        query, own_key, own_value = (
            self._apart(layer(own)) for layer in (self.query, self.key, self.value)
        )
        key, value = self._apart(self.key(x)), self._apart(self.value(x))
        itself = torch.eye(x.shape[1], dtype=torch.bool, device=x.device)
        itself = itself[None, None, :, None, :]
        scores = torch.einsum("raohd,rbhd->rhaob", query, key)
        own_scores = (query * own_key).sum(-1).permute(0, 3, 1, 2)[..., None]
        scores = torch.where(itself, own_scores, scores) / math.sqrt(key.shape[-1])
        hidden = ~(present[:, None, None, None, :] | itself)
        shares = scores.masked_fill(hidden, -math.inf).softmax(-1)
        others = shares.masked_fill(itself, 0.0)
        mixed = torch.einsum("rhaob,rbhd->raohd", others, value)
        own_share = (shares - others).sum(-1).permute(0, 2, 3, 1)[..., None]
        return self.output((mixed + own_share * own_value).flatten(-2))

    def _apart(self, x: Any) -> Any:
        """The last axis as heads and their numbers."""
        return x.unflatten(-1, (self.heads, -1))


class Actor(nn.Module):  # type: ignore[misc]
    """Observations of a team -> the outputs of a head, one row per agent."""

    def __init__(
        self, inputs: int, space: Space[Any], config: TAACConfig, generator: Any
    ) -> None:
        super().__init__()
        hidden, width = config.hidden, config.embedding
        self.embedding = Layers(inputs, hidden, width, generator=generator)
        self.attention = Attention(width, config.heads, generator)
        seen = 2 * width if config.own_embedding else width
        self.body = Layers(seen, hidden, hidden, generator=generator)
        self.head = head_for(space, hidden, generator, config.log_std_init)
        self.own_embedding = config.own_embedding

    def forward(self, obs: Any, present: Any, allowed: Any = None) -> tuple[Any, Any]:
        """The head's outputs, `(rows x agents, ...)`, and what the agents attend to.

        Args:
            obs: `(rows, agents, numbers)`.
            present: `(rows, agents)`.
            allowed: (Discrete) `(rows, agents, actions)`, or None for all actions.
        """
        features, attended = self.features(obs, present)
        if allowed is not None:
            allowed = allowed.flatten(0, 1)
        return self.head(features.flatten(0, 1), allowed), attended

    def features(self, obs: Any, present: Any, itself: Any = None) -> tuple[Any, Any]:
        """What the head sees, `(rows, agents, ...)`, and what the agents attend to."""
        embedded = self.embedding(obs)
        attended = self.attention(embedded, present, itself)
        seen = torch.cat([attended, embedded], -1) if self.own_embedding else attended
        return functional.leaky_relu(self.body(seen)), attended


class Critic(nn.Module):  # type: ignore[misc]
    """Observations and actions of a team -> the value of each agent's action.

    Actions are numbers here: one-hot, or those of a Box.
    """

    def __init__(self, inputs: int, config: TAACConfig, generator: Any) -> None:
        super().__init__()
        hidden, width = config.hidden, config.embedding
        self.embedding = Layers(inputs, hidden, width, generator=generator)
        self.attention = Attention(width, config.heads, generator)
        self.body = Layers(2 * width, hidden, hidden, 1, generator=generator)

    def forward(self, obs: Any, actions: Any, present: Any) -> Any:
        """(rows, agents, ...) -> (rows, agents)."""
        embedded = self.embedding(torch.cat([obs, actions], -1))
        return self._valued(self.attention(embedded, present), embedded)

    def of_options(self, obs: Any, actions: Any, options: Any, present: Any) -> Any:
        """The value of each option of each agent, while all others do as they do.

        Args:
            obs: `(rows, agents, numbers)`.
            actions: `(rows, agents, numbers)`, what all of them do.
            options: `(rows, agents, options, numbers)`.
            present: `(rows, agents)`.

        Returns:
            `(rows, agents, options)`.
        """
        taken = self.embedding(torch.cat([obs, actions], -1))
        repeated = obs[:, :, None].expand(-1, -1, options.shape[2], -1)
        own = self.embedding(torch.cat([repeated, options], -1))
        return self._valued(self.attention.of_options(taken, own, present), own)

    def _valued(self, attended: Any, embedded: Any) -> Any:
        return self.body(torch.cat([attended, embedded], -1)).squeeze(-1)
