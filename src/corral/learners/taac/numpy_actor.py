"""The forward pass of TAAC's actor in numpy, on the same weights.

For a few teams torch takes several times as long as the arithmetic. Every team is
multiplied by itself: its last bits depend neither on other teams nor on its place.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from corral.learners.nets.heads import FORBIDDEN
from corral.learners.nets.numpy_forward import LARGEST_PRODUCT, Layers, views_of
from corral.learners.taac.nets import Actor

Array = NDArray[Any]
# A dense layer: its weight and bias, whether a leaky ReLU follows, and arrays for the
# results of both, or None for new ones.
Dense = tuple[Array, Array, bool, Array | None, Array | None]
# The slope of torch's leaky ReLU below 0.
SLOPE = np.float32(0.01)


def numpy_actor_of(actor: Actor, agents: int) -> NumpyActor | None:
    """Its mirror; None on a GPU, and for teams that had better be left to torch."""
    weights = [one for one in actor.parameters() if one.ndim == 2]
    if any(one.device.type != "cpu" for one in weights):
        return None
    largest = max(one.numel() for one in weights)
    return NumpyActor(actor) if agents * largest <= LARGEST_PRODUCT else None


class NumpyActor:
    """What an actor computes, in arrays that are views of its weights."""

    def __init__(self, actor: Actor) -> None:
        attention = actor.attention
        self.heads, self.own_embedding = attention.heads, actor.own_embedding
        self.normalised = actor.head.normalised
        self.embedding = views_of(actor.embedding.layers)
        self.inner = views_of([attention.query, attention.key, attention.value])
        self.output = views_of([attention.output])
        self.last = views_of([*actor.body.layers, actor.head.layer])

    def outputs(self, obs: Array, present: Array, allowed: Array | None) -> Array:
        """The head's outputs, `(rows x agents, ...)`; arguments as of the actor's."""
        once = TurnsActor(self, len(obs), obs.shape[1], once=True)
        found: Array = self.normalised(once.outputs(obs, present, allowed))
        return found

    def in_turns(self, rows: int, agents: int) -> TurnsActor:
        """The same for so many teams in turn after turn, while no weight changes.

        The head has not normalised its outputs.
        """
        return TurnsActor(self, rows, agents)


class TurnsActor:
    """An actor's pass for a fixed number of teams, in the same arrays each time.

    Between two turns the envs evict everything from the caches. Then each new array and
    each call costs more than the arithmetic of a few teams, so there are few of both.

    Args:
        actor: the net.
        rows: teams.
        agents: of each team.
        once: whether there is one turn only, which is not worth preparing.
    """

    def __init__(
        self, actor: NumpyActor, rows: int, agents: int, once: bool = False
    ) -> None:
        self._own_embedding = actor.own_embedding
        shape = None if once else (rows, agents)
        self._embedding, self._output, self._last = (
            _dense(layers, shape)
            for layers in (actor.embedding, actor.output, actor.last)
        )
        weights, biases = zip(*actor.inner, strict=True)
        # Query, key and value in one call, still matrix by matrix.
        self._inner = np.stack([one.T for one in weights]).swapaxes(1, 2)[:, None]
        self._bias = np.stack(biases)[:, None, None]
        width = self._bias.shape[-1]
        self._inner_parts = np.empty((3, rows, agents, width), np.float32)
        apart = (rows, agents, actor.heads, -1)
        # Each `(rows, heads, agents, numbers)`.
        query, key, value = self._inner_parts.reshape(3, *apart).swapaxes(2, 3)
        self._query, self._key, self._value = query, key.swapaxes(2, 3), value
        self._scale = np.float32(1 / math.sqrt(query.shape[-1]))
        self._scores = np.empty((rows, actor.heads, agents, agents), np.float32)
        self._mixed = np.empty_like(self._inner_parts[0])
        self._mixed_apart = self._mixed.reshape(apart).swapaxes(1, 2)

    def outputs(
        self, obs: Array, present: Array | None, allowed: Array | None
    ) -> Array:
        """As of `NumpyActor`, not normalised; `present` is None if all agents are."""
        embedded = _through(self._embedding, obs)
        parts, scores = self._inner_parts, self._scores
        np.add(np.matmul(embedded, self._inner, parts), self._bias, parts)
        np.multiply(np.matmul(self._query, self._key, scores), self._scale, scores)
        if present is not None and not present.all():
            itself = np.eye(present.shape[1], dtype=np.bool_)
            hidden = ~(present[:, None, None, :] | itself)
            np.putmask(scores, np.broadcast_to(hidden, scores.shape), -np.inf)
        scores -= np.maximum.reduce(scores, -1, keepdims=True)
        np.exp(scores, scores)
        scores /= np.add.reduce(scores, -1, keepdims=True)
        self._mixed_apart[...] = scores @ self._value
        seen = _through(self._output, self._mixed)
        if self._own_embedding:
            seen = np.concatenate([seen, embedded], -1)
        outputs = _through(self._last, seen)
        if allowed is not None:
            forbidden = ~allowed & allowed.any(-1, keepdims=True)
            outputs[forbidden] = FORBIDDEN
        return outputs.reshape(-1, outputs.shape[-1])


def _dense(layers: Layers, shape: tuple[int, int] | None) -> list[Dense]:
    """These layers, for rows of this shape where they are used again."""
    made: list[Dense] = []
    for number, (weight, bias) in enumerate(layers, 1):
        leaky, biases, result, room = number < len(layers), bias, None, None
        if shape is not None:
            biases, result, room = np.empty((3, *shape, len(bias)), np.float32)
            # One for each row is added in a third of the time of one for all.
            biases[...] = bias
        made.append((weight, biases, leaky, result, room))
    return made


def _through(layers: list[Dense], x: Array) -> Array:
    for weight, bias, leaky, result, room in layers:
        x = np.matmul(x, weight, result)
        x += bias
        if leaky:
            np.maximum(x, np.multiply(x, SLOPE, room), out=x)
    return x
