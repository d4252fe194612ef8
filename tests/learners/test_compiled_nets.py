"""The C part of nets comes to the bits that numpy comes to."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
from gymnasium import spaces

from corral.learners.nets import compiled, heads
from corral.learners.nets.heads import FORBIDDEN, Categorical
from corral.learners.nets.numpy_forward import ACTIVATIONS, UFUNCS, TurnsForward
from corral.learners.torch_import import torch

pytestmark = pytest.mark.skipif(
    compiled.C_PART is None, reason="there is no C part of nets here"
)
ROWS = (1, 2, 3, 4, 7, 16, 64)
RNG = np.random.default_rng(0)


class Drawn:
    """Generators whose numbers are known."""

    def __init__(self, numbers: Any) -> None:
        self.numbers = numbers

    def random(self, count: int) -> Any:
        assert count == 1
        return self.numbers


def numbers(*shape: int) -> Any:
    return RNG.standard_normal(shape).astype(np.float32)


def layers(*sizes: int) -> list[tuple[Any, Any]]:
    """As views of torch's weights are: transposed."""
    return [(numbers(b, a).T, numbers(b)) for a, b in itertools.pairwise(sizes)]


@pytest.mark.parametrize("copies", [None, 1, 2])
@pytest.mark.parametrize("activation", list(UFUNCS))
@pytest.mark.parametrize("sizes", [(4, 2), (4, 64, 64, 2), (27, 31, 8), (1, 5, 1)])
def test_dense_layers(
    sizes: tuple[int, ...],
    activation: str,
    copies: int | None,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for rows in ROWS:
        tower, obs = layers(*sizes), 3 * numbers(rows, sizes[0])
        curve = ACTIVATIONS[activation], UFUNCS[activation]
        in_c = TurnsForward(*curve, tower, tower, rows, copies)
        with monkeypatch.context() as patched:
            patched.setattr(compiled, "Dense", None)
            in_numpy = TurnsForward(*curve, tower, tower, rows, copies)
        assert in_c._compiled is not None and in_numpy._compiled is None
        found = in_c.outputs(obs)
        assert found.tobytes() == in_numpy.outputs(obs).tobytes()
        # Weights that are loaded in place are used from then on.
        tower[0][0][...] = numbers(*tower[0][0].shape)
        assert found.tobytes() != in_c.outputs(obs).tobytes()
        assert in_c.outputs(obs).tobytes() == in_numpy.outputs(obs).tobytes()


def test_observations_of_other_forms_are_computed_too() -> None:
    tower = layers(6, 8, 2)
    forward = TurnsForward(ACTIVATIONS["tanh"], np.tanh, tower, tower, 4, None)
    obs = numbers(4, 6)
    expected = forward.outputs(obs).tobytes()
    for other in (obs.reshape(4, 2, 3), obs.astype(np.float64), np.asfortranarray(obs)):
        assert forward.outputs(other).tobytes() == expected


def sampled(head: Categorical, outputs: Any, drawn: Any) -> tuple[Any, Any]:
    """What is sampled from, in numpy: the normalised outputs."""
    return head.sample(head.normalised(outputs), Drawn(drawn))  # type: ignore[arg-type]


@pytest.mark.parametrize("options", range(2, 12))
def test_a_choice(options: int) -> None:
    head = Categorical(spaces.Discrete(options), 3, torch.Generator())
    sample = head.sampler()
    for rows, scale in itertools.product(ROWS, (0.01, 1.0, 30.0)):
        outputs = np.float32(scale) * numbers(rows, options)
        drawn = RNG.random((rows, 1))
        drawn[0] = 1.0 - 2.0**-53  # the largest
        found = sample(outputs, Drawn(drawn))  # type: ignore[arg-type]
        for one, other in zip(found, sampled(head, outputs, drawn), strict=True):
            assert one.dtype == other.dtype and one.shape == other.shape
            assert one.tobytes() == other.tobytes()


@pytest.mark.parametrize("odd", [FORBIDDEN, -np.inf, np.nan, np.inf])
@pytest.mark.filterwarnings("ignore:invalid value")
def test_a_choice_from_odd_outputs(odd: float) -> None:
    head = Categorical(spaces.Discrete(3), 3, torch.Generator())
    for place in range(3):
        outputs = numbers(5, 3)
        outputs[1:4, place] = odd
        drawn = np.linspace(0.0, 1.0 - 2.0**-53, 5)[:, None]
        found = head.sampler()(outputs, Drawn(drawn))  # type: ignore[arg-type]
        for one, other in zip(found, sampled(head, outputs, drawn), strict=True):
            assert one.tobytes() == other.tobytes()


def test_a_choice_that_numpy_warns_of_is_left_to_numpy() -> None:
    outputs = np.array([[np.inf, np.inf]], np.float32)
    assert compiled.choose(outputs, np.zeros((1, 1))) is None
    head = Categorical(spaces.Discrete(2), 3, torch.Generator())
    with pytest.warns(RuntimeWarning, match="invalid value"):
        head.sampler()(outputs, Drawn(np.zeros((1, 1))))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "arguments",
    [
        (layers(4, 2), np.tanh, 0, 1),
        (layers(4, 2), np.tanh, 3, 2),
        ([], np.tanh, 1, 1),
        ([*layers(4, 3), *layers(2, 2)], np.tanh, 1, 1),
        ([(np.zeros((4, 2)), np.zeros(2))], np.tanh, 1, 1),
        (layers(4, 2), len, 1, 1),
        (layers(4, 2), np.bitwise_not, 1, 1),
    ],
)
def test_layers_that_cannot_be_computed_are_refused(arguments: Any) -> None:
    with pytest.raises((TypeError, ValueError)):
        compiled.Dense(*arguments)


def test_inputs_that_do_not_fit_are_refused() -> None:
    dense = compiled.Dense(layers(4, 2), np.tanh, 3, 3)
    bad = (numbers(2, 4), numbers(3, 5), np.zeros((3, 4)), numbers(12), [1.0], None)
    for inputs in (*bad, np.asfortranarray(numbers(3, 4))):
        with pytest.raises(ValueError, match="inputs must be"):
            dense.outputs(inputs)
    with pytest.raises((TypeError, ValueError)):
        heads.compiled.choose(numbers(2, 2), np.zeros((3, 1)))
