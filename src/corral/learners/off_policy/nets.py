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
# Weights of output layers are uniform in ± this, so that training starts near 0.
LAST_LAYER_BOUND = 1e-3


@dataclass(frozen=True, slots=True)
class NetSizes:
    """What the nets are made from.

    Attributes:
        embeddings: Widths of the embedded previous action, observation and reward.
    """

    obs: int
    action: int
    hidden: tuple[int, ...]
    memory: Literal["gru", "lstm"]
    memory_size: int
    embeddings: tuple[int, int, int]


@dataclass(frozen=True, slots=True)
class History:
    """What a recurrent net reads at each step: tensors of `(time, rows, n)`.

    Attributes:
        action: The previous action; zeros at the start. None if no net has a memory.
        reward: The reward of that action, or None.
    """

    action: Any
    reward: Any
    obs: Any

    def up_to(self, stop: int | None) -> History:
        """Return the steps before `stop`."""
        if self.action is None:
            return History(None, None, self.obs[:stop])
        return History(self.action[:stop], self.reward[:stop], self.obs[:stop])


def uniform(shape: Sequence[int], bound: float, generator: Any) -> Any:
    """Return weights drawn uniformly from ± `bound`."""
    drawn = torch.rand(tuple(shape), generator=generator)
    return nn.Parameter((2 * drawn - 1) * bound)


class Layer(nn.Module):  # type: ignore[misc]
    """A dense layer."""

    def __init__(
        self, inputs: int, outputs: int, generator: Any, bound: float | None = None
    ) -> None:
        super().__init__()
        bound = 1 / math.sqrt(inputs) if bound is None else bound
        self.weight = uniform((inputs, outputs), bound, generator)
        self.bias = uniform((outputs,), bound, generator)

    def forward(self, x: Any) -> Any:
        """`(rows, inputs)` to `(rows, outputs)`."""
        return torch.addmm(self.bias, x, self.weight)

    def of_both(self, first: Any, second: Any) -> Any:
        """The same for inputs side by side, without a copy of them.

        Where one of them needs no gradient, none is computed for it.
        """
        width = first.shape[-1]
        part = torch.addmm(self.bias, first, self.weight[:width])
        return torch.addmm(part, second, self.weight[width:])


class Tower(nn.Module):  # type: ignore[misc]
    """Dense layers with ReLU between them."""

    def __init__(
        self, inputs: int, hidden: Sequence[int], outputs: int, generator: Any
    ) -> None:
        super().__init__()
        sizes = [inputs, *hidden]
        layers = [Layer(*size, generator) for size in pairwise(sizes)]
        last = Layer(sizes[-1], outputs, generator, LAST_LAYER_BOUND)
        self.layers = nn.ModuleList([*layers, last])

    def forward(self, x: Any, beside: Any = None) -> Any:
        """`(..., inputs)` to `(..., outputs)`; inputs may come in two parts."""
        lead = x.shape[:-1]
        first, *others = self.layers
        x = _flat(x)
        x = first.forward(x) if beside is None else first.of_both(x, _flat(beside))
        for layer in others:
            x = layer.forward(x.relu_())
        return x.unflatten(0, lead)


def _flat(x: Any) -> Any:
    return x.reshape(-1, x.shape[-1])


class MeanOnly(nn.Module):  # type: ignore[misc]
    """The first outputs of an actor: the mean, without deviations."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self._width = width

    def forward(self, outputs: Any) -> Any:
        """`(rows, outputs)` to `(rows, width)`."""
        return outputs[:, : self._width]


class Embedding(nn.Module):  # type: ignore[misc]
    """One dense layer with ReLU."""

    def __init__(self, inputs: int, outputs: int, generator: Any) -> None:
        super().__init__()
        self.layer = Layer(inputs, outputs, generator)

    def forward(self, x: Any) -> Any:
        """`(..., inputs)` to `(..., outputs)`."""
        flat = self.layer.forward(x.reshape(-1, x.shape[-1]))
        return flat.relu_().unflatten(0, x.shape[:-1])


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

    def features(self, history: History) -> tuple[Any, ...]:
        """Return the inputs of the tower for whole sequences, or rows, in parts."""
        if self.history is None:
            return (history.obs,)
        return self.history.forward(history), self.shortcut.forward(history.obs)

    def outputs(self, features: tuple[Any, ...], steps: slice = slice(None)) -> Any:
        """Return the outputs of some steps of sequences."""
        return self.tower.forward(*(part[steps] for part in features))

    def step(self, history: History, carry: Any) -> tuple[Any, Any]:
        """Return the outputs of one row per slot, and the carry after it."""
        if self.history is None:
            return self.tower.forward(history.obs), carry
        hidden, carry = self.history.step(history, carry)
        return self.tower.forward(hidden, self.shortcut.forward(history.obs)), carry


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
        towers = (Tower(width, sizes.hidden, outputs, generator) for _ in range(2))
        self.towers = nn.ModuleList(towers)

    def hidden(self, history: History) -> Any:
        """Return what it remembers at each step; None without a memory."""
        return None if self.history is None else self.history.forward(history)

    def forward(self, hidden: Any, obs: Any, action: Any) -> tuple[Any, Any]:
        """Return two estimates, `(..., 1)`, or `(..., actions)` for discrete ones."""
        inputs = self._inputs(hidden, obs, action)
        first, second = self.towers
        return first.forward(*inputs), second.forward(*inputs)

    def first(self, hidden: Any, obs: Any, action: Any) -> Any:
        """Return the first estimate alone."""
        return self.towers[0].forward(*self._inputs(hidden, obs, action))

    def _inputs(self, hidden: Any, obs: Any, action: Any) -> tuple[Any, ...]:
        x = obs if self._discrete else torch.cat([obs, action], -1)
        return (x,) if self.history is None else (hidden, self.shortcut.forward(x))
