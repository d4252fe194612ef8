"""A run's policy as files that do not need Corral.

    policy.pt2     torch.export.load("policy.pt2").module()(observation)
    policy.onnx    onnxruntime.InferenceSession("policy.onnx")
    policy.pth     the weights alone: torch.load("policy.pth")
    policy.json    names, shapes and dtypes of inputs and of the action

Raw observations come in, rows first; the most likely actions come out, as the env takes
them. A policy with a memory also takes what it remembers, zeros at first, and returns
it after the action, for the next step. Texts come in as numbers of characters. Before a
file is kept, what it computes is compared with the run's policy.
"""

from __future__ import annotations

import importlib.util
import json
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from corral.errors import OptionError, RunFailed, WriteFailed, requires
from corral.train.run.export_inputs import Arrays, Signature
from corral.train.run.trained_policy import TrainedPolicy, load_run

with requires("exporting needs torch: pip install 'corral[train]'"):
    import torch

FORMATS = ("torch", "onnx")
# Observations that the files are compared on, and steps if there is a memory.
COMPARED_ROWS, COMPARED_STEPS = 64, 3
# Largest difference of a float, relative to the range of 1.
TOLERANCE = 1e-4
OPSET = 17
# The arguments of an exported policy -> what it returns.
Program = Callable[[Arrays], Arrays]


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
        module = parts.learner.policy_module(parts.obs_norm).eval()
        module.requires_grad_(False)
        signature = Signature.of(module, policy.observation_space)
        folder = _folder(out or loaded.directory.path / "export")
        # Of Stable-Baselines3: its zip, and its VecNormalize.
        written = parts.learner.export(folder)
    compared = Comparison.of(policy, signature)
    compared.check("the exported module", _program(module))
    if "torch" in formats:
        written += _write_torch(module, compared, folder)
    if "onnx" in formats:
        written.append(_write_onnx(module, compared, folder))
    about = folder / "policy.json"
    about.write_text(json.dumps(_about(policy, compared), indent=2) + "\n")
    return [*written, about]


def _folder(path: Path) -> Path:
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise WriteFailed(f"{path} cannot be created: {error.strerror}") from error
    return path


@dataclass(frozen=True, slots=True)
class Comparison:
    """Observations of one step or more, and the actions of the run's policy."""

    signature: Signature
    batches: list[Any]
    actions: list[NDArray[Any]]

    @classmethod
    def of(cls, policy: TrainedPolicy, signature: Signature) -> Comparison:
        """Ask the policy about random observations."""
        steps = range(COMPARED_STEPS if signature.carry else 1)
        batches = [signature.inputs.sampled(COMPARED_ROWS, seed) for seed in steps]
        policy.reset()
        actions = [policy.act(batch, reward=cls._reward()) for batch in batches]
        return cls(signature, batches, [_plain(one) for one in actions])

    @staticmethod
    def _reward() -> NDArray[np.float32]:
        """Of the last step, which some policies with a memory see."""
        return np.linspace(-1, 1, COMPARED_ROWS, dtype=np.float32)

    def check(self, name: str, program: Program) -> None:
        """Raise RunFailed if a program does not act as the policy does."""
        given = self.signature.first(self.batches[0])
        for batch, expected in zip(self.batches, self.actions, strict=True):
            leaves = self.signature.inputs.leaves(batch)
            actions, *carry = program([*leaves, *given[len(leaves) :]])
            given = [*leaves, *(self._reward() for _ in self.signature.takes), *carry]
            self._check(name, actions, expected)

    def _check(self, name: str, actions: NDArray[Any], expected: NDArray[Any]) -> None:
        if expected.dtype.kind == "f":
            # Rounded differently, a number near a bound may move by the last bits.
            same = np.allclose(actions, expected, rtol=TOLERANCE, atol=TOLERANCE)
        else:  # a tie may be decided by the last bits
            same = np.mean(actions == expected) > 1 - 2 / COMPARED_ROWS
        if actions.shape != expected.shape or not same:
            raise RunFailed(
                f"{name} does not act as the policy does: {actions[:1]!r} instead of "
                f"{expected[:1]!r} for the first of {len(expected)} observations"
            )


def _plain(action: Any) -> NDArray[Any]:
    """Actions as an array; those of a team are the only value of a dict."""
    return np.asarray(
        next(iter(action.values())) if isinstance(action, dict) else action
    )


def _program(module: Any) -> Program:
    """A torch module as a program of arrays."""

    def program(arguments: Arrays) -> Arrays:
        outputs = module(*map(torch.from_numpy, arguments))
        whole = outputs if isinstance(outputs, tuple) else (outputs,)
        return [one.numpy() for one in whole]

    return program


def _write_torch(module: Any, compared: Comparison, folder: Path) -> list[Path]:
    program, weights = folder / "policy.pt2", folder / "policy.pth"
    example = _example(compared.signature)
    rows = torch.export.Dim("rows", min=1)
    try:
        written = torch.export.export(
            module, example, dynamic_shapes=(tuple({0: rows} for _ in example),)
        )
    except Exception as error:  # a network of the user's may do anything
        raise _not_exported("torch.export", error) from error
    torch.export.save(written, program)
    compared.check(str(program), _program(torch.export.load(program).module()))
    torch.save(module.state_dict(), weights)
    return [program, weights]


def _write_onnx(module: Any, compared: Comparison, folder: Path) -> Path:
    path, signature = folder / "policy.onnx", compared.signature
    inputs, outputs = signature.input_names, signature.output_names
    try:
        with warnings.catch_warnings():
            # The exporter that needs no further package warns that there is another.
            warnings.simplefilter("ignore")
            torch.onnx.export(
                module,
                _example(signature),
                str(path),
                input_names=inputs,
                output_names=outputs,
                dynamic_axes={name: {0: "rows"} for name in (*inputs, *outputs)},
                opset_version=OPSET,
                dynamo=False,
            )
    except Exception as error:
        raise _not_exported("ONNX", error) from error
    if importlib.util.find_spec("onnxruntime") is not None:
        import onnxruntime

        session = onnxruntime.InferenceSession(str(path))
        taken = {one.name for one in session.get_inputs()}  # a net may ignore a leaf

        def program(arguments: Arrays) -> Arrays:
            pairs = zip(inputs, arguments, strict=True)
            given = {name: array for name, array in pairs if name in taken}
            found: Arrays = session.run(outputs, given)
            return found

        compared.check(str(path), program)
    return path


def _example(signature: Signature) -> tuple[Any, ...]:
    return tuple(map(torch.from_numpy, signature.first(signature.inputs.sampled(3))))


def _not_exported(format_: str, error: Exception) -> OptionError:
    lines = str(error).strip().splitlines() or [type(error).__name__]
    return OptionError(
        f"the network cannot be written as {format_}: {type(error).__name__}: "
        f"{lines[0]}. Leave this format out (--formats), or write the network without "
        "steps that depend on the values of its inputs"
    )


def _about(policy: TrainedPolicy, compared: Comparison) -> dict[str, Any]:
    signature = compared.signature
    first = signature.first(compared.batches[0])
    return {
        "env": policy.config.env,
        "checkpoint": str(policy.checkpoint),
        **signature.about(first, compared.actions[0]),
        "torch": 'torch.export.load("policy.pt2").module()(*inputs)',
        "onnx": 'onnxruntime.InferenceSession("policy.onnx").run(None, inputs)',
    }
