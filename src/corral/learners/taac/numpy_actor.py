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
from corral.learners.nets.numpy_forward import LARGEST_PRODUCT, views_of
from corral.learners.taac.nets import Actor

Array = NDArray[Any]
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
        # Kept apart: a module takes long to look up its attributes.
        self._heads, self._own = attention.heads, actor.own_embedding
        self._normalised = actor.head.normalised
        self._embedding = views_of(actor.embedding.layers)
        self._attention = views_of(
            [attention.query, attention.key, attention.value, attention.output]
        )
        self._body = views_of(actor.body.layers)
        self._last = views_of([actor.head.layer])

    def outputs(self, obs: Array, present: Array, allowed: Array | None) -> Array:
        """The head's outputs, `(rows x agents, ...)`; arguments as of the actor's."""
        embedded = _through(self._embedding, obs)
        attended = self._attended(embedded, present)
        seen = np.concatenate([attended, embedded], -1) if self._own else attended
        outputs = _through(self._last, _leaky(_through(self._body, seen)))
        if allowed is not None:
            forbidden = ~allowed & allowed.any(-1, keepdims=True)
            outputs[forbidden] = FORBIDDEN
        found: Array = self._normalised(outputs.reshape(-1, outputs.shape[-1]))
        return found

    def _attended(self, x: Array, present: Array) -> Array:
        rows, agents, width = x.shape
        *inner, last = self._attention
        heads = (rows, agents, self._heads, -1)
        query, key, value = (
            _through([layer], x).reshape(heads).swapaxes(1, 2) for layer in inner
        )
        scores = query @ key.swapaxes(2, 3)
        scores *= np.float32(1 / math.sqrt(query.shape[-1]))
        if not present.all():
            hidden = ~(present[:, None, None, :] | np.eye(agents, dtype=np.bool_))
            np.putmask(scores, np.broadcast_to(hidden, scores.shape), -np.inf)
        scores -= np.maximum.reduce(scores, -1, keepdims=True)
        shares = np.exp(scores, out=scores)
        shares /= np.add.reduce(shares, -1, keepdims=True)
        mixed = (shares @ value).swapaxes(1, 2).reshape(rows, agents, width)
        return _through([last], mixed)


def _through(layers: list[tuple[Array, Array]], x: Array) -> Array:
    for number, (weight, bias) in enumerate(layers):
        x = x @ weight if not number else _leaky(x) @ weight
        x += bias
    return x


def _leaky(x: Array) -> Array:
    return np.maximum(x, SLOPE * x)
