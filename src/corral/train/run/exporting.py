"""A run's policy as files that need nothing of Corral.

    policy.pt2     torch.export.load("policy.pt2").module()(observation)
    policy.onnx    onnxruntime.InferenceSession("policy.onnx")
    policy.pth     the weights alone: torch.load("policy.pth")
    policy.json    names, shapes and dtypes of inputs and of the action

Raw observations come in, rows first; the most likely actions come out, as the env takes
them. Before a file is kept, what it computes is compared with the run's policy.
"""

from __future__ import annotations

import copy
import importlib.util
import json
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from gymnasium import Space, spaces
from numpy.typing import NDArray

from corral.errors import OptionError, RunFailed, WriteFailed, requires
from corral.rollouts.space_rows import OBJECT_DTYPE, SpaceParts
from corral.train.run.trained_policy import TrainedPolicy, load_run

with requires("exporting needs torch: pip install 'corral[train]'"):
    import torch

FORMATS = ("torch", "onnx")
ACTION = "action"
# Observations that the files are compared on.
COMPARED_ROWS = 64
# Largest difference of a float, relative to the range of 1.
TOLERANCE = 1e-4
OPSET = 17


@dataclass(frozen=True, slots=True)
class Inputs:
    """The leaves of observations that an exported policy takes.

    Attributes:
        names: Of the leaves: "observation", or their paths in a Dict; in a Tuple
            "observation_0" and so on.
    """

    space: Space[Any]
    parts: SpaceParts
    names: list[str]

    @classmethod
    def of(cls, space: Space[Any]) -> Inputs:
        """Name the leaves; OptionError if one has no fixed size."""
        parts = SpaceParts(space)
        for part in parts.parts:
            if part.dtype == OBJECT_DTYPE:
                raise OptionError(
                    f"observations of {space} cannot be exported: values of no fixed "
                    "size are not tensors"
                )
        names = [_input_name(part.name) for part in parts.parts]
        return cls(space, parts, names)

    def sampled(self, rows: int, seed: int = 0) -> Any:
        """A batch of random observations."""
        space = copy.deepcopy(self.space)
        space.seed(seed)
        values = [space.sample() for _ in range(rows)]
        arrays = [
            np.stack([np.asarray(part.of(value), part.dtype) for value in values])
            for part in self.parts.parts
        ]
        return self.parts.batch(arrays)

    def leaves(self, batch: Any) -> list[NDArray[Any]]:
        """The arrays of a batch, in the order of the names."""
        return [np.ascontiguousarray(part.of(batch)) for part in self.parts.parts]


def export_run(
    run: Path,
    out: Path | None = None,
    which: str = "best",
    formats: Sequence[str] = FORMATS,
    *,
    trust: bool = False,
) -> list[Path]:
    """Write the policy of a run to files; return their paths.

    Args:
        run: its directory, or a checkpoint in it.
        out: folder to write to; `export` in the run's directory if None.
        which: best or last, where a directory is named.
        formats: "torch", "onnx".
        trust: run the code that its config names, even if it is not signed by you.
    """
    with load_run(run, which, trust) as loaded:
        parts = loaded.parts
        policy = TrainedPolicy.of(loaded)
        inputs = Inputs.of(policy.observation_space)
        module = parts.learner.policy_module(parts.obs_norm).eval()
        module.requires_grad_(False)
        folder = _folder(out or loaded.directory.path / "export")
        # Of Stable-Baselines3: its zip, and its VecNormalize.
        written = parts.learner.export(folder)
    compared = Comparison.of(policy, inputs)
    compared.check("the exported module", module(*compared.tensors()).numpy())
    if "torch" in formats:
        written += _write_torch(module, inputs, compared, folder)
    if "onnx" in formats:
        written.append(_write_onnx(module, inputs, compared, folder))
    about = folder / "policy.json"
    about.write_text(json.dumps(_about(policy, inputs), indent=2) + "\n")
    return [*written, about]


def _folder(path: Path) -> Path:
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise WriteFailed(f"{path} cannot be created: {error.strerror}") from error
    return path


@dataclass(frozen=True, slots=True)
class Comparison:
    """Observations, and the actions of the run's policy for them."""

    leaves: list[NDArray[Any]]
    actions: NDArray[Any]
    space: Space[Any]

    @classmethod
    def of(cls, policy: TrainedPolicy, inputs: Inputs) -> Comparison:
        """Ask the policy about random observations."""
        batch = inputs.sampled(COMPARED_ROWS)
        actions = np.asarray(policy.act(batch))
        return cls(inputs.leaves(batch), actions, policy.action_space)

    def tensors(self) -> list[Any]:
        """The observations for torch."""
        return [torch.from_numpy(leaf) for leaf in self.leaves]

    def check(self, name: str, actions: NDArray[Any]) -> None:
        """Raise RunFailed if a file does not act as the policy does."""
        expected = self.actions
        if isinstance(self.space, spaces.Box):
            # Rounded differently, a number near a bound may move by the last bits.
            same = np.allclose(actions, expected, rtol=TOLERANCE, atol=TOLERANCE)
        else:  # a tie may be decided by the last bits
            same = np.mean(actions == expected) > 1 - 2 / COMPARED_ROWS
        if actions.shape != expected.shape or not same:
            raise RunFailed(
                f"{name} does not act as the policy does: {actions[:1]!r} instead of "
                f"{expected[:1]!r} for the first of {len(expected)} observations"
            )


def _write_torch(
    module: Any, inputs: Inputs, compared: Comparison, folder: Path
) -> list[Path]:
    program, weights = folder / "policy.pt2", folder / "policy.pth"
    example = tuple(torch.from_numpy(leaf) for leaf in _example(inputs))
    rows = torch.export.Dim("rows", min=1)
    try:
        written = torch.export.export(
            module, example, dynamic_shapes=(tuple({0: rows} for _ in example),)
        )
    except Exception as error:  # a network of the user's may do anything
        raise _not_exported("torch.export", error) from error
    torch.export.save(written, program)
    found = torch.export.load(program).module()(*compared.tensors())
    compared.check(str(program), found.numpy())
    torch.save(module.state_dict(), weights)
    return [program, weights]


def _write_onnx(
    module: Any, inputs: Inputs, compared: Comparison, folder: Path
) -> Path:
    path = folder / "policy.onnx"
    example = tuple(torch.from_numpy(leaf) for leaf in _example(inputs))
    axes = {name: {0: "rows"} for name in (*inputs.names, ACTION)}
    try:
        with warnings.catch_warnings():
            # The exporter that needs no further package warns that there is another.
            warnings.simplefilter("ignore")
            torch.onnx.export(
                module,
                example,
                str(path),
                input_names=inputs.names,
                output_names=[ACTION],
                dynamic_axes=axes,
                opset_version=OPSET,
                dynamo=False,
            )
    except Exception as error:
        raise _not_exported("ONNX", error) from error
    if importlib.util.find_spec("onnxruntime") is not None:
        import onnxruntime

        session = onnxruntime.InferenceSession(str(path))
        taken = {one.name for one in session.get_inputs()}  # a net may ignore a leaf
        pairs = zip(inputs.names, compared.leaves, strict=True)
        given = {name: leaf for name, leaf in pairs if name in taken}
        compared.check(str(path), session.run([ACTION], given)[0])
    return path


def _input_name(path: str) -> str:
    """ONNX allows no name that begins with a digit, as places in a Tuple do."""
    if not path:
        return "observation"
    return path if not path[0].isdigit() else f"observation_{path}"


def _example(inputs: Inputs) -> list[NDArray[Any]]:
    return inputs.leaves(inputs.sampled(3))


def _not_exported(format_: str, error: Exception) -> OptionError:
    lines = str(error).strip().splitlines() or [type(error).__name__]
    return OptionError(
        f"the network cannot be written as {format_}: {type(error).__name__}: "
        f"{lines[0]}. Leave this format out (--formats), or write the network without "
        "steps that depend on the values of its inputs"
    )


def _about(policy: TrainedPolicy, inputs: Inputs) -> dict[str, Any]:
    pairs = zip(inputs.names, inputs.parts.parts, strict=True)
    return {
        "env": policy.config.env,
        "checkpoint": str(policy.checkpoint),
        "inputs": [
            {"name": name, "shape": ["rows", *part.shape], "dtype": str(part.dtype)}
            for name, part in pairs
        ],
        "output": {
            "name": ACTION,
            "shape": ["rows", *(policy.action_space.shape or ())],
            "dtype": str(policy.action_space.dtype),
        },
        "torch": 'torch.export.load("policy.pt2").module()(*inputs)',
        "onnx": 'onnxruntime.InferenceSession("policy.onnx").run(None, inputs)',
    }
