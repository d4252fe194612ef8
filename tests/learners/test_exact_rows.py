"""Rows of exact passes depend on nothing but their own numbers and the weights."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="torch is not installed")

from gymnasium import spaces  # noqa: E402
from torch import nn  # noqa: E402

from corral.learners.exact_rows import PASS_ROWS, ExactRows  # noqa: E402
from corral.learners.nets.memory import MEMORIES  # noqa: E402
from corral.learners.optimiser import as_vector  # noqa: E402
from corral.learners.taac.nets import Actor  # noqa: E402
from corral.learners.taac.settings import TAACConfig  # noqa: E402

ROWS = 2 * PASS_ROWS + 5
# Sizes that had rows with other last bits: by place, address, or threads.
INPUTS = [1, 3, 4, 5, 17, 27, 64]
OUTPUTS = [1, 2, 5, 8, 11, 16, 33]


@pytest.fixture(autouse=True)
def threads() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    yield
    torch.set_num_threads(before)


def forward_of(net: Any) -> Callable[[Any], Any]:
    def forward(rows: np.ndarray) -> np.ndarray:
        with torch.inference_mode():
            return net(torch.from_numpy(rows)).numpy()

    return forward


def at_an_odd_address(net: Any) -> Any:
    """A copy whose weights are views of one vector, as a learner has them."""
    other = copy.deepcopy(net)
    as_vector(other, [nn.Parameter(torch.zeros(1)), *other.parameters()])
    return other


def check(net: Any, *shape: int, passes: bool = True) -> None:
    """Every row is equal alone, in another place, and with weights elsewhere."""
    obs = np.random.default_rng(1).standard_normal((ROWS, *shape)).astype(np.float32)
    rows = ExactRows()
    whole = rows(forward_of(net), obs, ROWS)
    assert rows._alone is not passes
    np.testing.assert_allclose(whole, forward_of(net)(obs), rtol=1e-3, atol=1e-5)
    forward = forward_of(at_an_odd_address(net))
    for first in (1, 7):
        assert (rows(forward, obs[first:], ROWS - first) == whole[first:]).all()
    for row in range(PASS_ROWS + 1):
        assert (rows(forward, obs[row : row + 1], 1) == whole[row]).all()


@pytest.mark.parametrize("outputs", OUTPUTS)
@pytest.mark.parametrize("inputs", INPUTS)
def test_a_dense_layer(inputs: int, outputs: int) -> None:
    check(nn.Linear(inputs, outputs), inputs)


@pytest.mark.parametrize(
    "curve", [nn.Tanh, nn.Sigmoid, nn.SiLU, nn.ELU, nn.Softplus, nn.GELU, nn.Mish]
)
@pytest.mark.parametrize("width", [3, 9, 67])
def test_activations_after_odd_numbers_of_outputs(curve: Any, width: int) -> None:
    """The last 16 numbers of 16 x 9 are no whole step of a vector loop."""
    check(nn.Sequential(nn.Linear(7, width), curve(), nn.Linear(width, 2)), 7)


@pytest.mark.parametrize(
    "net",
    [
        nn.Sequential(nn.Linear(5, 9), nn.LayerNorm(9), nn.ReLU(), nn.Linear(9, 3)),
        nn.Sequential(nn.Linear(5, 40), nn.Tanh(), nn.Linear(40, 7), nn.Softmax(-1)),
        nn.Sequential(nn.Unflatten(1, (5, 1)), nn.Flatten(), nn.Linear(5, 6)),
    ],
    ids=["norm", "softmax", "views"],
)
def test_functions_that_are_known(net: Any) -> None:
    check(net, 5)


class Remembers(nn.Module):
    """A memory that starts with what it sees."""

    def __init__(self, kind: str, inputs: int, width: int) -> None:
        super().__init__()
        self.memory = MEMORIES[kind](inputs, width, torch.Generator().manual_seed(0))
        self.first = nn.Linear(inputs, width)

    def forward(self, x: Any) -> Any:
        carry = self.first(x)
        if isinstance(self.memory.zeros(1), tuple):
            carry = (carry, carry)
        for _ in range(2):
            found, carry = self.memory.step(x, carry)
        return found


@pytest.mark.parametrize(("inputs", "width"), [(3, 5), (27, 9), (6, 64)])
@pytest.mark.parametrize("kind", ["gru", "lstm"])
def test_a_memory(kind: str, inputs: int, width: int) -> None:
    check(Remembers(kind, inputs, width), inputs)


class Team(nn.Module):
    """An actor of TAAC whose agents are all present."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        config = TAACConfig(hidden=12, embedding=width, heads=heads)
        generator = torch.Generator().manual_seed(0)
        self.actor = Actor(7, spaces.Discrete(3), config, generator)

    def forward(self, obs: Any) -> Any:
        present = torch.ones(obs.shape[:2], dtype=torch.bool)
        return self.actor(obs, present)[0].reshape(len(obs), -1)


@pytest.mark.parametrize(("width", "heads"), [(8, 2), (12, 1), (32, 4)])
def test_agents_that_attend_to_each_other(width: int, heads: int) -> None:
    check(Team(width, heads), 5, 7)


@pytest.mark.parametrize(
    ("net", "shape"),
    [
        (nn.Sequential(nn.Conv2d(3, 5, 3), nn.Flatten(), nn.Linear(180, 7)), (3, 8, 8)),
        (nn.Sequential(nn.Linear(5, 9), nn.ELU(inplace=True), nn.Linear(9, 3)), (5,)),
        (
            nn.Sequential(nn.Linear(9, 9), nn.Unflatten(1, (3, 3)), nn.AvgPool1d(3)),
            (9,),
        ),
        (nn.Bilinear(5, 5, 7), (5,)),
    ],
    ids=["images", "in place", "pool", "bilinear"],
)
def test_nets_with_other_functions_are_computed_row_by_row(
    net: Any, shape: Any
) -> None:
    if isinstance(net, nn.Bilinear):
        net = Twice(net)
    check(net, *shape, passes=False)


class Twice(nn.Module):
    """Two inputs that are equal."""

    def __init__(self, net: Any) -> None:
        super().__init__()
        self.net = net

    def forward(self, x: Any) -> Any:
        return self.net(x, x)


class Sequence(nn.Module):
    """A row is a sequence of numbers, for a layer that takes sequences."""

    def __init__(self, layer: Any) -> None:
        super().__init__()
        self.widened, self.layer = nn.Conv1d(1, 12, 3), layer

    def forward(self, x: Any) -> Any:
        x = self.widened(x.unsqueeze(1)).transpose(1, 2)
        attends = isinstance(self.layer, nn.MultiheadAttention)
        return self.layer(*[x] * (3 if attends else 1))[0].flatten(1)


SEQUENCES = {
    "gru": partial(nn.GRU, 12, 5, batch_first=True),
    "lstm": partial(nn.LSTM, 12, 5, 2, batch_first=True, bidirectional=True),
    "attention": partial(nn.MultiheadAttention, 12, 3, batch_first=True),
}


@pytest.mark.parametrize("kind", SEQUENCES)
def test_sequences_are_computed_row_by_row(kind: str) -> None:
    check(Sequence(SEQUENCES[kind]()), 6, passes=False)


@pytest.mark.parametrize("kind", ["dense", *SEQUENCES])
def test_the_number_of_threads_changes_nothing(kind: str) -> None:
    dense = nn.Sequential(nn.Linear(27, 100), nn.Tanh(), nn.Linear(100, 5))
    net = dense if kind == "dense" else Sequence(SEQUENCES[kind]())
    obs = np.random.default_rng(1).standard_normal((25, 27)).astype(np.float32)
    found = []
    for threads in (1, 2):
        torch.set_num_threads(threads)
        found.append(ExactRows()(forward_of(net), obs, 25))
        assert torch.get_num_threads() == threads
    assert (found[0] == found[1]).all()


def test_weights_that_changed_are_used() -> None:
    layer, rows, obs = nn.Linear(3, 2), ExactRows(), np.ones((1, 3), np.float32)
    before = rows(forward_of(layer), obs, 1)
    with torch.no_grad():
        layer.bias += 1
        layer.weight *= 2
    bias = layer.bias.detach().numpy()
    found = rows(forward_of(layer), obs, 1)
    np.testing.assert_allclose(found - bias, 2 * (before - bias + 1), rtol=1e-5)
