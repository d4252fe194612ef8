"""A net's forward pass in numpy, on the same weights.

To act on a few rows torch takes four times as long as the arithmetic. So a plain net on
the CPU (numbers in, dense layers, no memory) has a mirror: arrays that are views of its
weights, so that what it learns is seen here without a copy.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from corral.learners.nets import compiled
from corral.learners.nets.actor_critic import ActorCritic
from corral.learners.nets.encoders import Flat

Array = NDArray[Any]
Layers = list[tuple[Array, Array]]
Curve = Callable[[Array], Array]

# OpenBLAS computes larger products with more threads, which then spin on the cores that
# the envs need. Torch has its own number of threads.
LARGEST_PRODUCT = 2**18
# The same for one row times a matrix.
LARGEST_ROW_PRODUCT = 9 * 2**10


ACTIVATIONS: dict[str, Curve] = {
    "tanh": lambda x: np.tanh(x, x),
    "relu": lambda x: np.maximum(x, 0.0, out=x),
    "elu": lambda x: np.where(x > 0.0, x, np.expm1(np.minimum(x, 0.0))),
    "silu": lambda x: x / (1.0 + np.exp(-x)),
}


# What the activations are made of, for the C part.
UFUNCS: dict[str, Any] = {"tanh": np.tanh, "relu": np.maximum}


def numpy_forward_of(net: ActorCritic) -> NumpyForward | None:
    """Its mirror, if it can have one."""
    if not net.is_standard:
        return None
    parts = list(net.encoder.parts)
    plain = net.memory is None and len(parts) == 1 and isinstance(parts[0], Flat)
    on_cpu = net.value.weight.device.type == "cpu"
    return NumpyForward(net) if plain and on_cpu else None


class NumpyForward:
    """What a plain net computes, in arrays."""

    def __init__(self, net: ActorCritic) -> None:
        self._head = net.head
        self._activation = ACTIVATIONS[net.actor.activation]
        self._ufunc = UFUNCS.get(net.actor.activation)
        self._actor = views_of([*net.actor.layers, net.head.layer])
        self._critic = views_of([*net.critic.layers, net.value])
        sizes = [weight.size for weight, _ in (*self._actor, *self._critic)]
        # With more it had better be left to torch.
        self.most_rows = LARGEST_PRODUCT // max(sizes)
        # Two equal rows times a matrix stay in one thread where one row does not.
        self._copies = 1 if max(sizes) <= LARGEST_ROW_PRODUCT else 2
        # Whether `judged_by_row` had not better be left to torch as well.
        self.by_row = self._copies <= self.most_rows

    def judged(self, obs: Array) -> tuple[Array, Array]:
        """Outputs of the head, and values."""
        x = obs.reshape(len(obs), -1).astype(np.float32, copy=False)
        outputs = self._head.normalised(self._through(self._actor, x))
        return outputs, self._through(self._critic, x)[:, 0]

    def values(self, obs: Array) -> Array:
        """Values alone, as `judged` has them."""
        x = obs.reshape(len(obs), -1).astype(np.float32, copy=False)
        return self._through(self._critic, x)[:, 0]

    def judged_by_row(self, obs: Array) -> tuple[Array, Array]:
        """The same; a row's last bits depend neither on the others nor on its place.

        In a product of two matrices they do: its kernels take some rows together and
        the rest in another order. So each row is multiplied by itself, or with a copy
        of itself.
        """
        x = obs.reshape(len(obs), 1, -1).astype(np.float32, copy=False)
        x = x.repeat(self._copies, 1)
        outputs = self._head.normalised(self._through(self._actor, x)[:, 0])
        return outputs, self._through(self._critic, x)[:, 0, 0]

    def in_turns(self, rows: int, by_row: bool) -> TurnsForward:
        """The same for so many rows in turn after turn."""
        curves = self._activation, self._ufunc
        copies = self._copies if by_row else None
        return TurnsForward(*curves, self._actor, self._critic, rows, copies)

    def _through(self, layers: Layers, x: Array) -> Array:
        return _through(layers, x, self._activation)


class TurnsForward:
    """Outputs of the actor turn by turn, and the values of many turns afterwards.

    To the last bit the same as in one pass, as long as no weight changes.

    Args:
        activation: of both towers.
        ufunc: what it is made of, if the C part knows it.
        actor: its layers.
        critic: its layers.
        rows: of each turn.
        copies: how many copies of a row are multiplied together, or None for all rows.
    """

    def __init__(
        self,
        activation: Curve,
        ufunc: Any,
        actor: Layers,
        critic: Layers,
        rows: int,
        copies: int | None,
    ) -> None:
        self._activation, self._critic = activation, critic
        self._actor, self._rows, self._copies = actor, rows, copies or 1
        self._flat = (rows, len(actor[0][0]))
        # What is multiplied together.
        self._shape = (rows, copies, self._flat[1]) if copies else self._flat
        # The same product of two matrices, in half the time for a few rows.
        self._product: Any = np.matmul if copies else np.ndarray.dot
        self._compiled = None
        if compiled.Dense is not None and ufunc is not None:
            count = rows * self._copies
            self._compiled = compiled.Dense(actor, ufunc, count, copies or rows)
        else:
            # One bias for each row is added in a third of the time of one for all.
            each = (*self._shape[:-1], 1)
            self._actor = [(weight, np.tile(bias, each)) for weight, bias in actor]

    def outputs(self, obs: Array) -> Array:
        """Outputs of the actor, for `(rows, ...)`; the head has not normalised them."""
        if obs.shape != self._flat:
            obs = obs.reshape(self._flat)
        if obs.dtype != np.float32:
            obs = obs.astype(np.float32)
        if self._copies > 1:
            obs = obs.repeat(self._copies, 0)
        if self._compiled is not None and obs.flags.c_contiguous:
            found: Array = self._compiled.outputs(obs)
        else:
            x = obs.reshape(self._shape)
            x = _through(self._actor, x, self._activation, self._product)
            found = x.reshape(self._rows * self._copies, -1)
        return found if self._copies == 1 else found[:: self._copies].copy()

    def values(self, obs: Array) -> Array:
        """Values, for `(turns, rows, ...)`."""
        x: Array = obs.reshape(-1, self._flat[1]).astype(np.float32, copy=False)
        if self._copies > 1:
            x = x.repeat(self._copies, 0)
        # numpy multiplies the matrices of a stack one by one, as in their turns.
        x = x.reshape(-1, *self._shape[-2:])
        x = _through(self._critic, x, self._activation)
        return x.reshape(-1, self._copies)[:, 0].reshape(-1, self._rows)


def _through(
    layers: Layers, x: Array, activation: Curve, product: Any = np.matmul
) -> Array:
    for weight, bias in layers[:-1]:
        x = product(x, weight)
        x += bias
        x = activation(x)
    weight, bias = layers[-1]
    x = product(x, weight)
    x += bias
    return x


def views_of(layers: Iterable[Any]) -> Layers:
    """The weights of dense layers, `(inputs, outputs)`, and their biases."""
    return [
        (layer.weight.detach().numpy().T, layer.bias.detach().numpy())
        for layer in layers
    ]
