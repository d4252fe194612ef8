"""What goes into an exported policy, and what comes out, by name."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from gymnasium import Space, spaces
from numpy.typing import NDArray

from corral.errors import OptionError
from corral.learners.nets.encoders import characters
from corral.rollouts.space_rows import OBJECT_DTYPE, SpacePart, SpaceParts, sampled

ACTION = "action"
Arrays = list[NDArray[Any]]


@dataclass(frozen=True, slots=True)
class Inputs:
    """The leaves of observations that an exported policy takes.

    Attributes:
        names: Of the leaves: "observation", or their paths in a Dict; in a Tuple
            "observation_0" and so on.
        parts: The parts of observations that these are.
        texts: Name -> the space of a text.
    """

    space: Space[Any]
    names: list[str]
    parts: list[SpacePart]
    texts: dict[str, spaces.Text]

    @classmethod
    def of(
        cls,
        space: Space[Any],
        reads: Mapping[str, str] | None = None,
        taken: Collection[str] = (),
    ) -> Inputs:
        """Name the leaves; OptionError if one has no fixed size.

        Args:
            space: of observations.
            reads: parts that are read -> names; None for all.
            taken: names that other inputs have.
        """
        parts, texts = {part.name: part for part in SpaceParts(space).parts}, {}
        if reads is None:
            reads = {name: _input_name(name, taken) for name in parts}
        for name, part in parts.items():
            leaf = _leaf(space, part.path)
            if isinstance(leaf, spaces.Text):
                texts[reads[name]] = leaf
            elif part.dtype == OBJECT_DTYPE:
                raise OptionError(
                    f"observations of {leaf} cannot be exported: torch and ONNX take "
                    "tensors, and its values have no fixed size; wrap the env to "
                    "return arrays, or use corral.load_policy(run) in Python"
                )
        return cls(space, list(reads.values()), [parts[name] for name in reads], texts)

    def sampled(self, rows: int, seed: int = 0) -> Any:
        """A batch of random observations."""
        return sampled(self.space, rows, seed)

    def leaves(self, batch: Any) -> Arrays:
        """The arrays of a batch, in the order of the names."""
        pairs = zip(self.names, self.parts, strict=True)
        return [self._array(name, part.of(batch)) for name, part in pairs]

    def _array(self, name: str, values: Any) -> NDArray[Any]:
        if name in self.texts:
            values = characters(self.texts[name], values)
        return np.ascontiguousarray(values)


def _input_name(path: str, taken: Collection[str]) -> str:
    """ONNX allows no name twice, nor one that begins with a digit, as in a Tuple."""
    if not path:
        return "observation"
    return f"observation_{path}" if path[0].isdigit() or path in taken else path


def _leaf(space: Any, path: tuple[Any, ...]) -> Any:
    for key in path:
        space = space[key]
    return space


@dataclass(frozen=True, slots=True)
class Signature:
    """All inputs and outputs of an exported policy.

    Attributes:
        takes: More inputs, `(rows,)`: the reward of the last step.
        carry: What a memory takes and returns -> width.
    """

    inputs: Inputs
    takes: tuple[str, ...]
    carry: dict[str, int]

    @classmethod
    def of(cls, module: Any, space: Space[Any]) -> Signature:
        """Read them from a module; one of the user's may have observations alone."""
        takes = tuple(getattr(module, "takes", ()))
        carry = dict(getattr(module, "carry", {}))
        taken = {ACTION, *takes, *carry, *map(_next, carry)}
        inputs = Inputs.of(space, getattr(module, "reads", None), taken)
        return cls(inputs, takes, carry)

    @property
    def input_names(self) -> list[str]:
        """In the order of the arguments."""
        return [*self.inputs.names, *self.takes, *self.carry]

    @property
    def output_names(self) -> list[str]:
        """In the order of what is returned."""
        return [ACTION, *map(_next, self.carry)]

    def first(self, batch: Any) -> Arrays:
        """The arguments for the first step of an episode."""
        leaves = self.inputs.leaves(batch)
        rows = len(leaves[0])
        more = [np.zeros(rows, np.float32) for _ in self.takes]
        widths = self.carry.values()
        carry = [np.zeros((rows, width), np.float32) for width in widths]
        return [*leaves, *more, *carry]

    def about(self, arguments: Arrays, action: NDArray[Any]) -> dict[str, Any]:
        """Names, shapes and dtypes, for policy.json."""
        pairs = zip(self.input_names, arguments, strict=True)
        found: dict[str, Any] = {
            "inputs": [_described(name, array) for name, array in pairs],
            "output": _described(ACTION, action),
        }
        if self.carry:
            found["carry"] = {_next(name): name for name in self.carry}
        if self.inputs.texts:
            # The number of a character is its place in here, from 1; 0 after the end.
            texts = self.inputs.texts.items()
            lists = {name: text.character_list for name, text in texts}
            found["characters"] = {name: "".join(one) for name, one in lists.items()}
        return found


def _next(name: str) -> str:
    return f"next_{name}"


def _described(name: str, array: NDArray[Any]) -> dict[str, Any]:
    shape = ["rows", *array.shape[1:]]
    return {"name": name, "shape": shape, "dtype": str(array.dtype)}
