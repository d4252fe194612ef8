"""Memories: a GRU or an LSTM between the encoder and the towers.

    features, carry = memory.step(x, carry)                    one row per slot
    features = memory.unroll(x, batch_sizes, carry)            packed sequences
    features = memory.sequences(x)                             (time, rows, n)

Packed: the first rows of all sequences, longest first, then the second rows of those
that have one, and so on; `batch_sizes` says how many each time.
"""

from __future__ import annotations

from typing import Any, Literal

from corral.learners.torch_import import nn, torch

MemoryKind = Literal["none", "gru", "lstm"]


class Memory(nn.Module):  # type: ignore[misc]
    """What a GRU and an LSTM have in common: weights, per gate."""

    gates = 0

    def __init__(self, inputs: int, width: int, generator: Any) -> None:
        super().__init__()
        self.width = width
        rows = self.gates * width
        self.inward = nn.Parameter(torch.empty(rows, inputs))
        self.onward = nn.Parameter(torch.empty(rows, width))
        self.inward_bias = nn.Parameter(torch.zeros(rows))
        self.onward_bias = nn.Parameter(torch.zeros(rows))
        for weight in (self.inward, self.onward):
            for gate in weight.detach().chunk(self.gates):
                nn.init.orthogonal_(gate, generator=generator)
        self._weights = list(self.parameters())

    def in_own_storage(self) -> None:
        """Keep the weights where they are, in a storage that starts with them.

        They must follow each other. cuDNN looks for them at the start of their storage;
        elsewhere it warns, and copies them at every call.
        """
        counts = [weight.numel() for weight in self._weights]
        all_ = self._weights[0].detach().as_strided((sum(counts),), (1,))
        parts = torch.from_dlpack(all_).split(counts)
        for weight, part in zip(self._weights, parts, strict=True):
            weight.data = part.view_as(weight)

    def zeros(self, rows: int, device: Any = None) -> Any:
        """What is remembered at the start of an episode."""
        return torch.zeros(rows, self.width, device=device)


class Gru(Memory):
    """A gated recurrent unit; its carry is a tensor of (rows, width)."""

    gates = 3

    def step(self, x: Any, carry: Any) -> tuple[Any, Any]:
        """One row for each slot."""
        carry = torch.gru_cell(x, carry, *self._weights)
        return carry, carry

    def unroll(self, x: Any, batch_sizes: Any, carry: Any) -> Any:
        """Whole sequences, packed."""
        return torch.gru(
            x, batch_sizes, carry[None], self._weights, True, 1, 0.0, True, False
        )[0]

    def sequences(self, x: Any) -> Any:
        """Whole sequences of one length, which start with nothing remembered."""
        carry = self.zeros(x.shape[1], x.device)[None]
        weights = self._weights
        return torch.gru(x, carry, weights, True, 1, 0.0, True, False, False)[0]


class Lstm(Memory):
    """A long short-term memory; its carry is a pair of (rows, width)."""

    gates = 4

    def zeros(self, rows: int, device: Any = None) -> Any:
        """What is remembered at the start of an episode."""
        return (super().zeros(rows, device), super().zeros(rows, device))

    def step(self, x: Any, carry: Any) -> tuple[Any, Any]:
        """One row for each slot."""
        carry = torch.lstm_cell(x, carry, *self._weights)
        return carry[0], carry

    def unroll(self, x: Any, batch_sizes: Any, carry: Any) -> Any:
        """Whole sequences, packed."""
        state = [part[None] for part in carry]
        return torch.lstm(
            x, batch_sizes, state, self._weights, True, 1, 0.0, True, False
        )[0]

    def sequences(self, x: Any) -> Any:
        """Whole sequences of one length, which start with nothing remembered."""
        state = [part[None] for part in self.zeros(x.shape[1], x.device)]
        weights = self._weights
        return torch.lstm(x, state, weights, True, 1, 0.0, True, False, False)[0]


MEMORIES: dict[str, type[Memory]] = {"gru": Gru, "lstm": Lstm}
