"""Heads: a net's last outputs as a choice of an action, one class per space.

    outputs = head.forward(features)
    chosen, log_prob = head.sample(outputs, rng)              arrays, to act
    chosen, log_prob = head.mode(outputs)
    action = head.to_action(chosen)                           as the env takes it
    head.log_prob(outputs, chosen), head.entropy(outputs)     tensors, to learn

Written out rather than taken from torch.distributions, whose checks and objects take
longer than the arithmetic; and acting is done in numpy, which takes a third of torch's
time for a few rows.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from corral.core import Generators
from corral.errors import SpaceMismatch
from corral.learners.nets import compiled
from corral.learners.nets.mlp import dense
from corral.learners.torch_import import functional, nn, torch

Array = NDArray[Any]
# What was chosen, and the logarithms of how likely that was; one row per row.
Choice = tuple[Array, Array]
# Small, so that a new policy prefers nothing.
OUTPUT_GAIN = 0.01
# The output of an option that must not be chosen; finite, so that no gradient is nan.
FORBIDDEN = -1e9
HALF_LOG_TAU = 0.5 * math.log(2.0 * math.pi)


class Head(nn.Module):  # type: ignore[misc]
    """Base of all heads: one dense layer, and choices of `count` numbers.

    Without `inputs` it has no layer: an actor of the user's returns its outputs.

    Attributes:
        outputs: Numbers that an action is made from.
        exact: Whether the action says what was chosen; if not, the rollout keeps both.
    """

    exact = True

    def __init__(
        self, space: spaces.Space[Any], inputs: int | None, outputs: int, generator: Any
    ) -> None:
        super().__init__()
        self.outputs = outputs
        self._shape: Any = space.shape
        self._dtype = space.dtype
        self._count = int(np.prod(space.shape or ()))
        self.layer: Any = None
        self._weights: Any = None
        if inputs is not None:
            self.layer = dense(inputs, outputs, OUTPUT_GAIN, generator)
            self._weights = (self.layer.weight, self.layer.bias)

    def forward(self, features: Any, allowed: Any = None) -> Any:
        """(rows, inputs) -> (rows, outputs)."""
        if self._weights is None:
            return features
        return functional.linear(features, *self._weights)

    def normalised(self, outputs: Array) -> Array:
        """What `forward` does after the layer, to arrays."""
        return outputs

    def sample(self, outputs: Array, rng: Generators) -> Choice:
        """Choose at random."""
        raise NotImplementedError

    def sampler(self) -> Callable[[Array, Generators], Choice]:
        """What samples from outputs before `normalised`, while no weight changes."""
        return self.sample

    def log_prob(self, outputs: Any, chosen: Any) -> Any:
        """The log-probability of a choice."""
        raise NotImplementedError

    def cloning_loss(self, outputs: Any, chosen: Any) -> Any:
        """How unlike a choice it is."""
        return -self.log_prob(outputs, chosen).mean()

    def from_action(self, action: Array) -> Any:
        """What had been chosen, if the action was not cut to bounds."""
        return torch.as_tensor(np.asarray(action)).float().reshape(-1, self._count)


class Categorical(Head):
    """Choices of one option each: Discrete and MultiDiscrete.

    Its outputs are log-probabilities, the options of all choices side by side. Chosen:
    (rows, choices), the places of the options there.
    """

    def __init__(
        self,
        space: spaces.Discrete | spaces.MultiDiscrete,
        inputs: int | None,
        generator: Any,
    ) -> None:
        counts = space.n if isinstance(space, spaces.Discrete) else space.nvec
        ends = np.cumsum(counts)
        super().__init__(space, inputs, int(ends[-1]), generator)
        self._begins = ends - np.ravel(counts)
        pairs = zip(self._begins, ends, strict=True)
        self._options = [slice(*pair) for pair in pairs]
        # One choice needs no slices, which would cost the backward pass as well.
        self._is_one = len(self._options) == 1
        start = np.asarray(space.start, np.int64)
        # What to add to places for actions.
        self._shift = start - self._begins.reshape(start.shape)
        self._are_actions = space.dtype == np.intp and not self._shift.any()

    def parts(self, outputs: Any) -> list[Any]:
        """Return the outputs of each choice."""
        return [outputs[:, options] for options in self._options]

    def forward(self, features: Any, allowed: Any = None) -> Any:
        """(rows, inputs) -> (rows, options of all choices).

        Args:
            features: of each row.
            allowed: (rows, options), 0 for options that must not be chosen; None for
                all. A choice without any allowed option has all of them.
        """
        outputs = super().forward(features)
        if allowed is not None:
            outputs = outputs.masked_fill(self._forbidden(allowed), FORBIDDEN)
        if self._is_one:
            return torch.log_softmax(outputs, -1)
        logs = [torch.log_softmax(part, -1) for part in self.parts(outputs)]
        return torch.cat(logs, -1)

    def _forbidden(self, allowed: Any) -> Any:
        """Which options must not be chosen."""
        parts = [part != 0 for part in self.parts(allowed)]
        return torch.cat([~part & part.any(-1, keepdim=True) for part in parts], -1)

    def normalised(self, outputs: Array) -> Array:
        """The same of arrays."""
        if self._is_one:
            return _log_softmax(outputs)
        return np.concatenate([_log_softmax(one) for one in self.parts(outputs)], -1)

    def sample(self, logs: Array, rng: Generators) -> Choice:
        """Choose at random; one number is drawn per choice."""
        drawn = rng.random(self._count)
        if self._is_one:
            picked, log_prob = _pick(logs, drawn)
            return picked[:, None], log_prob
        pairs = enumerate(self.parts(logs))
        return self._chosen(
            logs, [_pick(part, drawn[:, at, None])[0] for at, part in pairs]
        )

    def sampler(self) -> Callable[[Array, Generators], Choice]:
        """What samples from outputs before `normalised`."""
        choose: Any = compiled.choose if self._is_one else None

        def sample(outputs: Array, rng: Generators) -> Choice:
            return self.sample(self.normalised(outputs), rng)

        def sample_one(outputs: Array, rng: Generators) -> Choice:
            drawn = rng.random(1)
            found: Choice | None = choose(outputs, drawn)
            if found is None:
                picked, log_prob = _pick(self.normalised(outputs), drawn)
                return picked[:, None], log_prob
            return found

        return sample if choose is None else sample_one

    def mode(self, logs: Array) -> Choice:
        """The likeliest of each."""
        return self._chosen(logs, [part.argmax(-1) for part in self.parts(logs)])

    def _chosen(self, logs: Array, picked: list[Array]) -> Choice:
        rows = np.arange(len(logs))
        if self._is_one:  # half the time of what follows
            return picked[0][:, None], logs[rows, picked[0]]
        places = np.stack(picked, 1) + self._begins
        return places, np.asarray(sum(logs[rows, column] for column in places.T))

    def log_prob(self, logs: Any, chosen: Any) -> Any:
        """The log-probability of a choice."""
        each = logs.gather(-1, chosen)
        return each[:, 0] if self._is_one else each.sum(1)

    def entropy(self, logs: Any) -> Any:
        """In nats."""
        return -(logs * logs.exp()).sum(-1)

    def to_action(self, chosen: Array) -> Array:
        """As the env takes it."""
        shaped = chosen.reshape(-1, *self._shape)
        if self._are_actions:  # as of most envs
            return shaped
        return np.asarray(shaped + self._shift, self._dtype)

    def from_action(self, action: Array) -> Any:
        """What had been chosen."""
        places = torch.as_tensor(np.asarray(action) - self._shift)
        return places.long().reshape(-1, self._count)


class Bernoulli(Head):
    """Bits: MultiBinary. Chosen: (rows, bits) of 0.0 and 1.0."""

    def __init__(
        self, space: spaces.MultiBinary, inputs: int | None, generator: Any
    ) -> None:
        super().__init__(space, inputs, int(np.prod(space.shape)), generator)

    def sample(self, logits: Array, rng: Generators) -> Choice:
        """Choose at random; one number is drawn per bit."""
        chance = 1.0 / (1.0 + np.exp(-logits))
        return self._chosen(logits, rng.random(self._count) < chance)

    def mode(self, logits: Array) -> Choice:
        """The likelier of both."""
        return self._chosen(logits, logits > 0)

    def _chosen(self, logits: Array, bits: Array) -> Choice:
        lost = np.logaddexp(0.0, np.where(bits, -logits, logits))
        return bits.astype(np.float32), -lost.sum(-1)

    def log_prob(self, logits: Any, chosen: Any) -> Any:
        """The log-probability of a choice."""
        signed = torch.where(chosen > 0, logits, -logits)
        return functional.logsigmoid(signed).sum(-1)

    def entropy(self, logits: Any) -> Any:
        """In nats."""
        chance = torch.sigmoid(logits)
        lost = chance * functional.logsigmoid(logits)
        return -(lost + (1 - chance) * functional.logsigmoid(-logits)).sum(-1)

    def to_action(self, chosen: Array) -> Array:
        """As the env takes it."""
        return chosen.astype(self._dtype).reshape(-1, *self._shape)


class Gaussian(Head):
    """Numbers around a mean: Box. Chosen: (rows, numbers).

    What was chosen may be out of bounds; the action is cut to them. The deviation is
    the same for every observation.
    """

    exact = False

    def __init__(
        self, space: spaces.Box, inputs: int | None, generator: Any, log_std: float
    ) -> None:
        super().__init__(space, inputs, int(np.prod(space.shape)), generator)
        self._low, self._high = space.low, space.high
        self.log_std = nn.Parameter(torch.full((self._count,), float(log_std)))

    def sample(self, mean: Array, rng: Generators) -> Choice:
        """Choose at random; one number is drawn per number."""
        return self.sampler()(mean, rng)

    def sampler(self) -> Callable[[Array, Generators], Choice]:
        """What samples while no weight changes."""
        log_std, count = self.log_std.detach().cpu().numpy(), self._count
        deviation = np.exp(log_std)
        scale = np.float32(log_std.sum() + count * HALF_LOG_TAU)

        def sample(mean: Array, rng: Generators) -> Choice:
            drawn = rng.normal(count).astype(np.float32)
            log_prob = np.einsum("rn,rn->r", drawn, drawn) * np.float32(-0.5)
            return mean + deviation * drawn, log_prob - scale

        return sample

    def mode(self, mean: Array) -> Choice:
        """The mean."""
        scale = float(self.log_std.detach().sum()) + self._count * HALF_LOG_TAU
        return mean, np.full(len(mean), -scale, np.float32)

    def log_prob(self, mean: Any, chosen: Any) -> Any:
        """The logarithm of the density of a choice."""
        apart = (chosen - mean) * (-self.log_std).exp()
        scale = self.log_std.sum() + self._count * HALF_LOG_TAU
        return -0.5 * (apart * apart).sum(-1) - scale

    def entropy(self, mean: Any) -> Any:
        """In nats; the same for every row."""
        one = self.log_std.sum() + self._count * (0.5 + HALF_LOG_TAU)
        return one.expand(len(mean))

    def cloning_loss(self, mean: Any, chosen: Any) -> Any:
        """How far the mean is from a choice; the deviation is left to exploration."""
        return functional.mse_loss(mean, chosen)

    def to_action(self, chosen: Array) -> Array:
        """As the env takes it: within bounds, in the space's dtype."""
        numbers = chosen.reshape(-1, *self._shape)
        # clip() takes thrice as long for a few rows.
        within: Array = np.minimum(np.maximum(numbers, self._low), self._high)
        return within.astype(self._dtype, copy=False)


def head_for(
    space: spaces.Space[Any], inputs: int | None, generator: Any, log_std: float
) -> Any:
    """The head that chooses actions of a space."""
    if isinstance(space, spaces.Box) and np.issubdtype(space.dtype, np.floating):
        return Gaussian(space, inputs, generator, log_std)
    if isinstance(space, (spaces.Discrete, spaces.MultiDiscrete)):
        return Categorical(space, inputs, generator)
    if isinstance(space, spaces.MultiBinary):
        return Bernoulli(space, inputs, generator)
    raise SpaceMismatch(
        f"the action space is {space}; there are heads for Discrete, MultiDiscrete, "
        "MultiBinary and Box of floats. Wrap the env to take one of these"
    )


# Of so few numbers a method of an array takes twice as long as the ufunc behind it, and
# operands of several shapes or dtypes thrice as long as alike ones.


def _log_softmax(outputs: Array) -> Array:
    outputs = outputs - np.maximum.reduce(outputs, -1, keepdims=True)
    outputs -= np.log(np.add.reduce(np.exp(outputs), -1, keepdims=True))
    return outputs


def _pick(logs: Array, drawn: Array) -> Choice:
    """(rows, options), (rows, 1) -> the option in whose share of [0, 1) the number is.

    By what is before an option, not by what is behind it: chances that add up to a
    little less than 1 must not leave a number without an option. It may then be a last
    option that must not be chosen: the likeliest takes its place.
    """
    before = np.exp(logs[:, :-1])
    if before.shape[1] == 1:
        picked = (drawn >= before.astype(np.float64))[:, 0].astype(np.intp)
    else:
        picked = np.add.reduce(drawn >= before.cumsum(-1), -1)
    rows = np.arange(len(logs))
    found = logs[rows, picked]
    if np.fmin.reduce(found, initial=0.0) <= FORBIDDEN / 2:
        picked = np.where(found <= FORBIDDEN / 2, logs.argmax(-1), picked)
        found = logs[rows, picked]
    return picked, found
