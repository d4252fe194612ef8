"""The car as an ONNX model: what it did of late -> what it may do next.

    states  float32 [b, 20, 4]     steer, roll lataccel, speed, acceleration
    tokens  int64   [b, 20]        lateral accelerations, up to the row before
    output  float32 [b, 20, 1024]  how likely each token is next

The one place of the zoo that imports onnxruntime.
"""

from __future__ import annotations

import os
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from corral.errors import MissingExtra, OptionError
from corral.zoo.tinyphysics.last_row import last_row_only
from corral.zoo.tinyphysics.route import CONTEXT
from corral.zoo.tinyphysics.small_model import small_model
from corral.zoo.tinyphysics.tokens import TOKENS

INPUTS = {
    "states": ("tensor(float)", [CONTEXT, 4]),
    "tokens": ("tensor(int64)", [CONTEXT]),
}
EXPECTED = (
    f"states float32 [b, {CONTEXT}, 4] and tokens int64 [b, {CONTEXT}] in, "
    f"float32 [b, {CONTEXT}, {TOKENS}] out"
)
QUIET = 3
"""Errors only, please."""
COUNTS = (1, 7, 13)
"""Batches that two sessions are compared by: kernels take rows by fours to twelves."""


class Model:
    """One session on one thread, for as many routes at once as asked.

    Args:
        path: of an ONNX file; the small generated model if None.
        device: "cpu", or "cuda:0" and so on, which needs onnxruntime-gpu.
    """

    def __init__(self, path: str | None = None, device: str = "cpu") -> None:
        self.path = path
        self.device = device
        content = small_model() if path is None else _content(path)
        session = _session(path, content, device)
        _check(path, session)
        self.rows: int | None = None
        """How many routes it takes at once, where that is fixed."""
        if isinstance(session.get_inputs()[0].shape[0], int):
            self.rows = session.get_inputs()[0].shape[0]
        self._outputs = [session.get_outputs()[0].name]
        lean = self._leaner(content, session)
        self.lean = lean is not None
        """Whether it computes its last row alone."""
        self._session = session if lean is None else lean

    def _leaner(self, content: bytes, whole: Any) -> Any:
        """A session that computes the last row alone, to the last bit; else None."""
        if whole.get_outputs()[0].shape[1] != CONTEXT:
            return None
        try:
            lean = _session(self.path, last_row_only(content), self.device)
            counts = COUNTS if self.rows is None else (self.rows,)
            same = all(self._agree(lean, whole, count) for count in counts)
        except Exception:  # of another architecture: the whole model does as well
            return None
        return lean if same else None

    def _agree(self, lean: Any, whole: Any, count: int) -> bool:
        """Whether both say the same about so many rows."""
        draw = np.random.RandomState(count)
        feed = {
            "states": draw.normal(size=(count, CONTEXT, 4)).astype(np.float32),
            "tokens": draw.randint(TOKENS, size=(count, CONTEXT)).astype(np.int64),
        }
        ours, theirs = (one.run(self._outputs, feed)[0] for one in (lean, whole))
        return np.array_equal(ours[:, -1], theirs[:, -1])

    def logits(
        self, states: NDArray[np.float32], tokens: NDArray[np.int64]
    ) -> NDArray[np.float32]:
        """(rows, TOKENS): of the row that comes next."""
        feed = {"states": states, "tokens": tokens}
        output: NDArray[np.float32] = self._session.run(self._outputs, feed)[0]
        return output[:, -1]

    def __reduce__(self) -> tuple[Any, ...]:
        # A session stays in its process; elsewhere another is made.
        return load_model, (self.path, self.device)


def load_model(path: str | None = None, device: str = "cpu") -> Model:
    """The model of that file, loaded once in each process.

    Under threads `per_worker=partial(Model, path)` gives each worker its own.
    """
    return _loaded(path, device, None if path is None else _file(path))


@lru_cache(maxsize=8)
def _loaded(path: str | None, device: str, file: tuple[Any, ...] | None) -> Model:
    return Model(path, device)


def _file(path: str) -> tuple[Any, ...] | None:
    """Tells a file from another that has, or had, the same name."""
    try:
        found = os.stat(path)
    except OSError:  # the model says so better
        return None
    return os.path.abspath(path), found.st_mtime_ns, found.st_size


def _session(path: str | None, content: bytes, device: str) -> Any:
    try:
        import onnxruntime
    except ImportError as error:
        raise MissingExtra(
            "tinyphysics needs onnxruntime: pip install 'corral[tinyphysics]'"
        ) from error
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    options.log_severity_level = QUIET
    providers = _providers(device, onnxruntime.get_available_providers())
    if device != "cpu" and hasattr(onnxruntime, "preload_dlls"):
        onnxruntime.preload_dlls()  # CUDA's libraries, where pip has put them
    try:
        session = onnxruntime.InferenceSession(content, options, providers)
    except Exception as error:  # onnxruntime's own have no class of their own
        reason = str(error).partition("\n")[0]
        raise OptionError(
            f"the model {path} is no ONNX model ({reason}); expected {EXPECTED}"
        ) from None
    # Where CUDA cannot be used, onnxruntime goes on without a word.
    if device != "cpu" and "CUDAExecutionProvider" not in session.get_providers():
        raise OptionError(
            f"device is {device!r}, and onnxruntime could not use it: is there a GPU, "
            "and are CUDA and cuDNN of the version that onnxruntime was built for?"
        )
    return session


def _content(path: str) -> bytes:
    try:
        with open(path, "rb") as file:
            return file.read()
    except OSError as error:
        raise OptionError(
            f"the model {path} cannot be read: {error.strerror}; expected an ONNX "
            f"file with {EXPECTED}"
        ) from None


def _providers(device: str, available: list[str]) -> list[Any]:
    kind, _, number = device.partition(":")
    if kind == "cpu":
        return ["CPUExecutionProvider"]
    if kind != "cuda" or not (number or "0").isdecimal():
        raise OptionError(
            f"device is {device!r}: choose cpu, cuda, or cuda:1 and so on"
        )
    if "CUDAExecutionProvider" not in available:
        raise OptionError(
            f"device is {device!r}, and this onnxruntime has no CUDA: pip install "
            "onnxruntime-gpu in its place, or choose cpu"
        )
    chosen = ("CUDAExecutionProvider", {"device_id": int(number or 0)})
    return [chosen, "CPUExecutionProvider"]


def _check(path: str | None, session: Any) -> None:
    """Refuse a model of another kind, and say what it has."""
    found = {one.name: (one.type, list(one.shape[1:])) for one in session.get_inputs()}
    outputs = session.get_outputs()
    kind, shape = outputs[0].type, outputs[0].shape
    fits = kind == "tensor(float)" and len(shape) == 3 and shape[-1] == TOKENS
    if found == INPUTS and fits:
        return
    ports = [*session.get_inputs(), "->", *outputs]
    shown = " ".join(
        one if isinstance(one, str) else f"{one.name} {one.type} {one.shape}"
        for one in ports
    )
    raise OptionError(
        f"the model {path} is another kind of model: expected {EXPECTED}; found {shown}"
    )
