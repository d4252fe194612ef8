"""The nets of SAC and TD3: towers, twin towers, histories, actors and critics.

Inputs have any leading axes: `(rows, n)` for single rows, `(time, rows, n)` for
sequences.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Literal

from corral.learners.nets.memory import MEMORIES
from corral.learners.torch_import import nn, torch

Architecture = Literal["markov", "memory", "memory_markov"]
LAST_LAYER_BOUND = 1e-3
"""Weights of output layers are uniform in ± this, so that training starts near 0."""


@dataclass(frozen=True, slots=True)
class NetSizes:
    """What the nets are made from."""

    obs: int
    action: int
    hidden: tuple[int, ...]
    memory: Literal["gru", "lstm"]
    memory_size: int
    embeddings: tuple[int, int, int]
    """Widths of the embedded previous action, observation and reward."""


@dataclass(frozen=True, slots=True)
class History:
    """What a recurrent net reads at each step: tensors of `(time, rows, n)`."""

    action: Any
    """The previous action; zeros at the start of an episode."""
    reward: Any
    """The reward of that action."""
    obs: Any


def uniform(shape: Sequence[int], bound: float, generator: Any) -> Any:
    """Return weights drawn uniformly from ± `bound`."""
    drawn = torch.rand(tuple(shape), generator=generator)
    return nn.Parameter((2 * drawn - 1) * bound)


class Layer(nn.Module):  # type: ignore[misc]
    """A dense layer, or `copies` of it side by side: `(copies, rows, outputs)`."""

    def __init__(
        self,
        inputs: int,
        outputs: int,
        generator: Any,
        bound: float | None = None,
        copies: int | None = None,
    ) -> None:
        super().__init__()
        bound = 1 / math.sqrt(inputs) if bound is None else bound
        lead = () if copies is None else (copies,)
        rows = () if copies is None else (1,)
        self.weight = uniform((*lead, inputs, outputs), bound, generator)
        self.bias = uniform((*lead, *rows, outputs), bound, generator)
        self._compute = torch.addmm if copies is None else torch.baddbmm

    def forward(self, x: Any) -> Any:
        """`(rows, inputs)`, or `(copies, rows, inputs)`, to outputs."""
        return self._compute(self.bias, x, self.weight)


class Tower(nn.Module):  # type: ignore[misc]
    """Dense layers with ReLU between them; with `copies`, several in one pass."""

    def __init__(
        self,
        inputs: int,
        hidden: Sequence[int],
        outputs: int,
        generator: Any,
        copies: int | None = None,
    ) -> None:
        super().__init__()
        self._copies = copies
        self._outputs = outputs
        sizes = [*pairwise([inputs, *hidden])]
        layers = [Layer(*size, generator, None, copies) for size in sizes]
        width = sizes[-1][1] if sizes else inputs
        last = Layer(width, outputs, generator, LAST_LAYER_BOUND, copies)
        self.layers = nn.ModuleList([*layers, last])

    def forward(self, x: Any) -> Any:
        """`(..., inputs)` to `(..., outputs)`, with the copies as first axis."""
        lead = x.shape[:-1]
        x = x.reshape(-1, x.shape[-1])
        if self._copies is not None:
            x = x.expand(self._copies, *x.shape)
            lead = (self._copies, *lead)
        *layers, last = self.layers
        for layer in layers:
            x = torch.relu(layer.forward(x))
        return last.forward(x).reshape(*lead, self._outputs)


class Embedding(nn.Module):  # type: ignore[misc]
    """One dense layer with ReLU."""

    def __init__(self, inputs: int, outputs: int, generator: Any) -> None:
        super().__init__()
        self.layer = Layer(inputs, outputs, generator)

    def forward(self, x: Any) -> Any:
        """`(..., inputs)` to `(..., outputs)`."""
        flat = self.layer.forward(x.reshape(-1, x.shape[-1]))
        return torch.relu(flat).reshape(*x.shape[:-1], flat.shape[-1])


class HistoryNet(nn.Module):  # type: ignore[misc]
    """Embeds previous action, observation and reward, and remembers them."""

    def __init__(self, sizes: NetSizes, generator: Any) -> None:
        super().__init__()
        action, obs, reward = sizes.embeddings
        self.action = Embedding(sizes.action, action, generator)
        self.obs = Embedding(sizes.obs, obs, generator)
        self.reward = Embedding(1, reward, generator)
        self.inputs = action + obs + reward
        self.memory = MEMORIES[sizes.memory](self.inputs, sizes.memory_size, generator)

    def embedded(self, history: History) -> Any:
        """Return the inputs of the memory."""
        parts = (
            self.action.forward(history.action),
            self.obs.forward(history.obs),
            self.reward.forward(history.reward),
        )
        return torch.cat(parts, -1)

    def forward(self, history: History) -> Any:
        """Return the hidden states of whole sequences, from zeros."""
        return self.memory.sequences(self.embedded(history))

    def step(self, history: History, carry: Any) -> tuple[Any, Any]:
        """Return the hidden state of one row per slot, and the carry after it."""
        hidden, carry = self.memory.step(self.embedded(history), carry)
        return hidden, carry


class ActorNet(nn.Module):  # type: ignore[misc]
    """Observations, or histories, to the numbers that an action is made from."""

    def __init__(
        self, sizes: NetSizes, outputs: int, recurrent: bool, generator: Any
    ) -> None:
        super().__init__()
        self.history = HistoryNet(sizes, generator) if recurrent else None
        width = sizes.obs
        if recurrent:
            shortcut = sizes.embeddings[1]
            self.shortcut = Embedding(sizes.obs, shortcut, generator)
            width = sizes.memory_size + shortcut
        self.tower = Tower(width, sizes.hidden, outputs, generator)

    def features(self, history: History) -> Any:
        """Return the inputs of the tower for whole sequences, or rows."""
        if self.history is None:
            return history.obs
        return self._joined(self.history.forward(history), history.obs)

    def step(self, history: History, carry: Any) -> tuple[Any, Any]:
        """Return the outputs of one row per slot, and the carry after it."""
        if self.history is None:
            return self.tower.forward(history.obs), carry
        hidden, carry = self.history.step(history, carry)
        return self.tower.forward(self._joined(hidden, history.obs)), carry

    def _joined(self, hidden: Any, obs: Any) -> Any:
        return torch.cat([hidden, self.shortcut.forward(obs)], -1)


class CriticNet(nn.Module):  # type: ignore[misc]
    """Two estimates of Q on one memory; of one action, or of all discrete ones."""

    def __init__(
        self, sizes: NetSizes, discrete: bool, recurrent: bool, generator: Any
    ) -> None:
        super().__init__()
        self.history = HistoryNet(sizes, generator) if recurrent else None
        self._discrete = discrete
        width = sizes.obs if discrete else sizes.obs + sizes.action
        if self.history is not None:
            shortcut = self.history.inputs
            self.shortcut = Embedding(width, shortcut, generator)
            width = sizes.memory_size + shortcut
        outputs = sizes.action if discrete else 1
        self.towers = Tower(width, sizes.hidden, outputs, generator, copies=2)

    def hidden(self, history: History) -> Any:
        """Return what it remembers at each step; None without a memory."""
        return None if self.history is None else self.history.forward(history)

    def forward(self, hidden: Any, obs: Any, action: Any) -> Any:
        """Return `(2, ..., 1)`, or `(2, ..., actions)` for discrete actions."""
        x = obs if self._discrete else torch.cat([obs, action], -1)
        if self.history is not None:
            x = torch.cat([hidden, self.shortcut.forward(x)], -1)
        return self.towers.forward(x)
