"""Forward passes in which a row depends neither on the other rows nor on its place.

The order in which torch adds up a product depends on the number of rows, on a row's
place among them, on addresses in memory, and on the number of threads: its kernels
treat edges in another way. There are no edges where all three sizes of a product are
multiples of 16 and its memory starts at a multiple of 64 bytes. So every pass has 16
rows, and its products are computed with such copies, filled up with zeros. Functions
such as tanh have edges too, at the end of the memory; they get full rows as well.

A net that calls other functions (a convolution, say) is computed row by row, in one
thread: there the edges are the same for every row.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
from numpy.typing import NDArray

from corral.engine.tree import mapped
from corral.learners.torch_import import TorchFunctionMode, functional, nn, torch

PASS_ROWS = 16
# Sizes of products are multiples of it.
WIDTH = 16
ALIGNMENT = 64
# torch computes more numbers than this in several threads.
MOST_NUMBERS = 2**15

# Functions of one number that round differently at edges.
_CURVES = "elu exp gelu log log1p logsigmoid mish selu sigmoid silu softplus tanh"
CURVES = frozenset(_CURVES.split())
# What is rounded in the same way everywhere, or not at all, or in each row by itself.
_PLACELESS = (
    "__and__ __bool__ __eq__ __get__ __getitem__ __invert__ __len__ __or__ "
    "_is_all_true _set_grad_enabled add add_ all any arange argmax as_tensor bool "
    "broadcast_tensors cat chunk clamp clamp_ clone contiguous cpu detach dim div "
    "double embedding expand expand_as eye flatten float from_numpy full ge gt "
    "hardtanh hardtanh_ is_complex is_floating_point layer_norm le leaky_relu "
    "leaky_relu_ log_softmax logsumexp long lt masked_fill maximum minimum mul mul_ "
    "ne neg numel numpy one_hot ones ones_like permute relu relu6 relu_ reshape rsub "
    "size softmax split sqrt squeeze stack sub tensor to transpose type unflatten "
    "unsqueeze view where zeros zeros_like"
)
PLACELESS = frozenset(_PLACELESS.split())


class ExactRows:
    """Computes rows of a net, so that none depends on its batch to the last bit."""

    def __init__(self) -> None:
        # Whether the net calls functions whose rows may depend on their place.
        self._alone = False

    def __call__(self, forward: Callable[[Any], Any], inputs: Any, rows: int) -> Any:
        """What `forward` makes of the inputs, arrays of so many rows."""
        if not self._alone:
            try:
                return _in_passes(_FullSizes(False), forward, inputs, rows, PASS_ROWS)
            except _UnknownFunction:
                self._alone = True
        with _one_thread():
            return _in_passes(_FullSizes(True), forward, inputs, rows, 1)


@contextmanager
def _one_thread() -> Iterator[None]:
    """Compute in one thread: the caller may have more of them than a worker."""
    threads = torch.get_num_threads()
    if threads > 1:
        torch.set_num_threads(1)
    try:
        yield
    finally:
        if threads > 1:
            torch.set_num_threads(threads)


def _in_passes(
    mode: _FullSizes, forward: Callable[[Any], Any], inputs: Any, rows: int, size: int
) -> Any:
    """In passes of `size` rows; the last is filled up with the last row."""
    parts = []
    with mode:
        for begin in range(0, rows, size):
            index = np.minimum(np.arange(begin, begin + size), rows - 1)
            taken = mapped(lambda leaf, at=index: _aligned(leaf[at]), inputs)
            parts.append(forward(taken))
    return mapped(lambda *each: np.concatenate(each)[:rows], *parts)


def _aligned(array: NDArray[Any]) -> NDArray[Any]:
    if array.ctypes.data % ALIGNMENT == 0 or array.dtype.hasobject:
        return array
    memory = np.empty(array.nbytes + ALIGNMENT, np.uint8)
    begin = -memory.ctypes.data % ALIGNMENT
    copy = memory[begin : begin + array.nbytes].view(array.dtype).reshape(array.shape)
    copy[...] = array
    return copy


class _UnknownFunction(Exception):
    """A net calls a function that may treat rows differently."""


class _FullSizes(TorchFunctionMode):  # type: ignore[misc]
    """Computes products and curves with full sizes, in place of what a net calls.

    Args:
        others: whether functions that are not known may be called.
    """

    def __init__(self, others: bool) -> None:
        super().__init__()
        self._others = others
        # Weights with full sizes, while no weight changes. The weight is kept too: no
        # other one can then have its id.
        self._filled: dict[int, tuple[Any, Any]] = {}

    def __torch_function__(
        self, function: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        """Called by torch in the place of the function."""
        kwargs = kwargs or {}
        name = function.__name__
        if name in PLACELESS and "alpha" not in kwargs:
            return function(*args, **kwargs)
        if name in CURVES and not _in_place(args, kwargs):
            return _curve(function, *args, **kwargs)
        own = PRODUCTS.get(name)
        if own is not None:
            return own(self, *args, **kwargs)
        if not self._others:
            raise _UnknownFunction(name)
        return function(*mapped(self._weight, args), **mapped(self._weight, kwargs))

    def _weight(self, value: Any) -> Any:
        """A weight, aligned and without a gradient; any other value as it is."""
        if not isinstance(value, nn.Parameter):
            return value
        # torch multiplies in another order where one factor may need a gradient.
        if not value.data_ptr() % ALIGNMENT:
            return value.detach()
        return self._kept(value, lambda weight: weight.detach().clone())

    def _kept(self, weight: Any, change: Callable[[Any], Any]) -> Any:
        if id(weight) not in self._filled:
            self._filled[id(weight)] = (weight, change(weight))
        return self._filled[id(weight)][1]

    # Products -------------------------------------------------------------------------

    def linear(self, input: Any, weight: Any, bias: Any = None) -> Any:
        """`functional.linear`."""
        whole = self._kept(weight, _full)
        return self._product(input, whole.t(), weight.shape[0], bias)

    def addmm(self, input: Any, mat1: Any, mat2: Any) -> Any:
        """`torch.addmm` of a bias, rows and weights."""
        return self._product(mat1, self._kept(mat2, _full), mat2.shape[1], input)

    def _product(self, x: Any, weight: Any, outputs: int, bias: Any) -> Any:
        rows = x if x.ndim == 2 else x.reshape(-1, x.shape[-1])
        found = torch.mm(_full(rows), weight)
        if found.shape != (len(rows), outputs):
            found = found[: len(rows), :outputs]
        if bias is not None:
            found = found + bias
        return found if x.ndim == 2 else found.reshape(*x.shape[:-1], outputs)

    def gru_cell(self, x: Any, carry: Any, *weights: Any) -> Any:
        """`torch.gru_cell`."""
        inward, onward, inward_bias, onward_bias = weights
        new = self.linear(x, inward, inward_bias)
        old = self.linear(carry, onward, onward_bias)
        width = carry.shape[1]
        gates = _curve(torch.sigmoid, new[:, : 2 * width] + old[:, : 2 * width])
        reset, update = gates.chunk(2, 1)
        found = new[:, 2 * width :] + old[:, 2 * width :] * reset
        found = _curve(torch.tanh, found)
        return (carry - found) * update + found

    def lstm_cell(self, x: Any, carry: Any, *weights: Any) -> Any:
        """`torch.lstm_cell`."""
        inward, onward, inward_bias, onward_bias = weights
        gates = self.linear(x, inward, inward_bias)
        gates = gates + self.linear(carry[0], onward, onward_bias)
        found = _curve(torch.tanh, gates.chunk(4, 1)[2])
        enter, forget, _, leave = _curve(torch.sigmoid, gates).chunk(4, 1)
        cell = forget * carry[1] + enter * found
        return leave * _curve(torch.tanh, cell), cell

    def scaled_dot_product_attention(
        self, query: Any, key: Any, value: Any, attn_mask: Any = None
    ) -> Any:
        """`functional.scaled_dot_product_attention`; not all of its arguments."""
        scale, width = query.shape[-1] ** -0.5, value.shape[-1]
        query, key, value = (
            _full_width(part).contiguous() for part in (query, key, value)
        )
        found = functional.scaled_dot_product_attention(
            query, key, value, attn_mask, scale=scale
        )
        return found[..., :width]


PRODUCTS: dict[str, Callable[..., Any]] = {
    name: getattr(_FullSizes, name)
    for name in (
        "addmm",
        "gru_cell",
        "linear",
        "lstm_cell",
        "scaled_dot_product_attention",
    )
}


def _in_place(args: Any, kwargs: Any) -> bool:
    """Whether a function was called with `inplace=True`, which changes its argument."""
    return any(one is True for one in (*args[1:], *kwargs.values()))


def _full(matrix: Any) -> Any:
    """The matrix with sizes that are multiples of 16, and aligned."""
    rows, width = (-size % WIDTH for size in matrix.shape)
    fits = rows == width == 0 and matrix.is_contiguous()
    if fits and matrix.data_ptr() % ALIGNMENT == 0:
        return matrix.detach()
    return functional.pad(matrix.detach(), (0, width, 0, rows))


def _full_width(x: Any) -> Any:
    return functional.pad(x, (0, -x.shape[-1] % WIDTH))


def _curve(function: Callable[..., Any], x: Any, *args: Any, **kwargs: Any) -> Any:
    """A function of each number, in rows of full width and in one thread."""
    numbers = x.numel()
    if numbers % (2 * WIDTH) == 0 and numbers <= MOST_NUMBERS and x.is_contiguous():
        return function(x, *args, **kwargs)
    width = x.shape[-1] if x.ndim else 1
    flat = _full_width(x.reshape(-1, width)).reshape(-1)
    parts = [function(part, *args, **kwargs) for part in flat.split(MOST_NUMBERS)]
    found = parts[0] if len(parts) == 1 else torch.cat(parts)
    return found.reshape(-1, width + -width % WIDTH)[:, :width].reshape(x.shape)
