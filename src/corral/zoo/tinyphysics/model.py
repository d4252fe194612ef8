"""The car as an ONNX model: the last 20 rows -> how likely each next token is.

    states  float32 [b, 20, 4]     steer, roll lataccel, speed, acceleration
    tokens  int64   [b, 20]        lateral accelerations, up to the row before
    output  float32 [b, 20, 1024]  logits of the next token

The one module of the zoo that imports onnxruntime.
"""

from __future__ import annotations

import os
from contextlib import suppress
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from corral.errors import OptionError, requires
from corral.zoo.tinyphysics.route import CONTEXT
from corral.zoo.tinyphysics.tokens import TOKENS

INPUTS = {
    "states": ("tensor(float)", [CONTEXT, 4]),
    "tokens": ("tensor(int64)", [CONTEXT]),
}
EXPECTED = (
    f"states float32 [b, {CONTEXT}, 4] and tokens int64 [b, {CONTEXT}] in, "
    f"float32 [b, {CONTEXT}, {TOKENS}] out"
)
# onnxruntime's log level.
ERRORS_ONLY = 3
CUDA = "CUDAExecutionProvider"
# Batch sizes for comparing two sessions: kernels take rows by fours to twelves.
COUNTS = (1, 7, 13)


class Model:
    """One session on one thread, for any number of routes at once.

    Args:
        path: an ONNX file; the small generated model if None.
        device: "cpu", or "cuda:0" and so on, which needs onnxruntime-gpu.
    """

    def __init__(self, path: str | None = None, device: str = "cpu") -> None:
        # Only now: it imports onnx, and the options of a run are shown without it.
        from corral.zoo.tinyphysics.onnx_graphs import last_row_only, small_model

        self.path = path
        self.device = device
        content = small_model() if path is None else _content(path)
        session = _session(path, content, device)
        _check(path, session)
        first_axis = session.get_inputs()[0].shape[0]
        # The number of routes per call, where the model fixes it.
        self.rows: int | None = first_axis if isinstance(first_axis, int) else None
        self._outputs = [session.get_outputs()[0].name]
        # Whether it computes its last row alone.
        self.lean = False
        self._session = session
        # The whole model is used if it has another architecture.
        if session.get_outputs()[0].shape[1] == CONTEXT:
            with suppress(Exception):
                lean = _session(path, last_row_only(content), device)
                counts = COUNTS if self.rows is None else (self.rows,)
                self.lean = all(self._agree(lean, session, count) for count in counts)
                self._session = lean if self.lean else session

    def _agree(self, lean: Any, whole: Any, count: int) -> bool:
        """Whether both sessions return the same bits for a batch of this size."""
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
        """Return the logits of the next row, (routes, TOKENS)."""
        feed = {"states": states, "tokens": tokens}
        output: NDArray[np.float32] = self._session.run(self._outputs, feed)[0]
        return output[:, -1]

    def __reduce__(self) -> tuple[Any, ...]:
        # A session cannot leave its process: another process opens its own.
        return load_model, (self.path, self.device)


def load_model(path: str | None = None, device: str = "cpu") -> Model:
    """Return the model of this file, loaded once per process.

    Under threads `per_worker=partial(Model, path)` gives each worker its own.
    """
    return _loaded(path, device, None if path is None else _file(path))


@lru_cache(maxsize=8)
def _loaded(path: str | None, device: str, file: tuple[Any, ...] | None) -> Model:
    return Model(path, device)


def _file(path: str) -> tuple[Any, ...] | None:
    """What tells this file from another one of the same name."""
    with suppress(OSError):  # `_content` reports it
        found = os.stat(path)
        return os.path.abspath(path), found.st_mtime_ns, found.st_size
    return None


def _session(path: str | None, content: bytes, device: str) -> Any:
    with requires("tinyphysics needs onnxruntime: pip install 'corral[tinyphysics]'"):
        import onnxruntime
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    options.log_severity_level = ERRORS_ONLY
    providers = _providers(device, onnxruntime.get_available_providers())
    if device != "cpu" and hasattr(onnxruntime, "preload_dlls"):
        onnxruntime.preload_dlls()  # CUDA's libraries, where pip has put them
    try:
        session = onnxruntime.InferenceSession(content, options, providers)
    except Exception as error:  # onnxruntime has no exception class of its own
        reason = str(error).partition("\n")[0]
        raise OptionError(
            f"the model {path} is not an ONNX model ({reason}); expected {EXPECTED}"
        ) from None
    # If CUDA fails to load, onnxruntime silently falls back to the CPU.
    if device != "cpu" and CUDA not in session.get_providers():
        raise OptionError(
            f"device is {device!r}, but onnxruntime could not use it; check that there "
            "is a GPU, and that CUDA and cuDNN have the versions that this onnxruntime "
            "was built for"
        )
    return session


def _content(path: str) -> bytes:
    try:
        return Path(path).read_bytes()
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
        raise OptionError(f"device is {device!r}: choose cpu, cuda, cuda:1 and so on")
    if CUDA not in available:
        raise OptionError(
            f"device is {device!r}, but this onnxruntime has no CUDA: pip install "
            "onnxruntime-gpu instead, or choose cpu"
        )
    return [(CUDA, {"device_id": int(number or 0)}), "CPUExecutionProvider"]


def _check(path: str | None, session: Any) -> None:
    """Refuse a model with other inputs or outputs, and list those that it has."""
    inputs, outputs = session.get_inputs(), session.get_outputs()
    found = {one.name: (one.type, list(one.shape[1:])) for one in inputs}
    kind, shape = outputs[0].type, outputs[0].shape
    if found == INPUTS and kind == "tensor(float)" and [*shape[2:]] == [TOKENS]:
        return
    given, returned = (
        " ".join(f"{one.name} {one.type} {one.shape}" for one in ports)
        for ports in (inputs, outputs)
    )
    raise OptionError(
        f"the model {path} is another kind of model: expected {EXPECTED}; found "
        f"{given} -> {returned}"
    )
