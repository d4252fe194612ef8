"""All that one slot's env is built from, so that it can be built again elsewhere.

In the process that made it a RebuildSpec holds the user's own functions and arrays.
When it is pickled it packs them, and what a worker is given before any factory runs.
"""

from __future__ import annotations

import operator
import os
import sys
from dataclasses import dataclass, field, fields, replace
from typing import Any

import gymnasium
import numpy as np
from numpy.typing import NDArray

from corral.engine.worker import serialization
from corral.engine.worker.commands import Job, ShardOptions
from corral.engine.worker.worker import Worker, worker_rng
from corral.errors import FactoryError, OptionError

# Bytes of shared arrays that are packed; larger ones are given when it is opened.
MAX_SHARED_BYTES = 64 << 20


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What the process looked like that a RebuildSpec was packed in."""

    path: list[str]
    directory: str
    registry: list[bytes]

    @classmethod
    def here(cls) -> Surroundings:
        """This process."""
        try:
            directory = os.getcwd()
        except OSError:
            directory = "a directory that was deleted"
        return cls(
            serialization.absolute_path(), directory, serialization.pack_registry()
        )

    def adopt(self) -> None:
        """Make importable here what was importable there; this process's path first."""
        sys.path.extend(entry for entry in self.path if entry not in sys.path)
        for spec in serialization.unpacked_specs(self.registry):
            gymnasium.registry.setdefault(spec.id, spec)


@dataclass(frozen=True, slots=True)
class RebuildSpec:
    """One slot, its worker, and the functions that build its env.

    Attributes:
        functions: (factory, worker_init, per_worker, task_by), or bytes that open to
            them.
        left_out: The shared arrays that were too big to be packed.
        surroundings: None in the process that made it.
        missing: Why it cannot be opened, if it cannot.
        batched: Whether the slot was one of a batch; opened, it is a batch of one.
        packed_in: The pid of the process that packed it; None in that process, and in
            files of earlier versions.
    """

    slot: int
    worker: int
    shard: range
    root_seed: int
    isolate_rng: bool
    device: str | None
    functions: Any
    shared: dict[str, NDArray[Any]] = field(default_factory=dict)
    left_out: tuple[str, ...] = ()
    surroundings: Surroundings | None = None
    missing: str = ""
    batched: bool = False
    packed_in: int | None = None

    def packed(self) -> RebuildSpec:
        """The RebuildSpec as it travels."""
        if self.surroundings is not None:
            return self
        functions, missing = None, ""
        try:
            first = f"the factory of slot {self.slot}"
            names = (first, "worker_init", "per_worker", "task_by")
            for function, what in zip(self.functions, names, strict=True):
                serialization.pack(function, what)
            functions = serialization.Unpacked(serialization.dumps(self.functions))
        except FactoryError as error:
            missing = str(error)
        size = sum(np.asarray(array).nbytes for array in self.shared.values())
        fits = size <= MAX_SHARED_BYTES
        return replace(
            self,
            functions=functions,
            shared=dict(self.shared) if fits else {},
            left_out=() if fits else tuple(self.shared),
            surroundings=Surroundings.here(),
            missing=missing,
            packed_in=os.getpid(),
        )

    def packed_like(self, other: RebuildSpec, packed: RebuildSpec) -> RebuildSpec:
        """The same; what it has in common with a packed one is not packed again."""
        ours, theirs = self.functions, other.functions
        if not isinstance(ours, tuple) or any(map(operator.is_not, ours, theirs)):
            return self.packed()
        return replace(packed, slot=self.slot, worker=self.worker, shard=self.shard)

    def open(
        self,
        shared: dict[str, NDArray[Any]] | None = None,
        beside: RebuildSpec | None = None,
    ) -> Worker:
        """A worker with this slot alone, or with its neighbour; nothing is built yet.

        Args:
            shared: arrays that were too big to be packed, or others in their place.
            beside: the slot before or after it.
        """
        arrays = {**self.shared, **(shared or {})}
        if self.missing:
            raise FactoryError(self.missing)
        absent = [name for name in self.left_out if name not in arrays]
        if absent:
            raise OptionError(
                f"the shared arrays {', '.join(absent)} were too big to be saved; pass "
                "them: shared={...}"
            )
        if self.surroundings is not None:
            self.surroundings.adopt()
        opened = serialization.opened(self.functions)
        # Faults that were saved before there was a task_by have none.
        factory, worker_init, per_worker, task_by = (*opened, None)[:4]
        factories = {self.slot: factory}
        if beside is not None:
            factories[beside.slot] = serialization.opened(beside.functions)[0]
        first = min(factories)
        worker = Worker(
            Job(
                worker=self.worker,
                slots=range(first, first + len(factories)),
                factories=[factories[slot] for slot in sorted(factories)],
                options=ShardOptions(
                    self.root_seed,
                    task_by=task_by,
                    isolate_rng=self.isolate_rng,
                    batched=self.batched,
                ),
                worker_init=worker_init,
                per_worker=per_worker,
                shared=arrays,
                device=self.device,
            )
        )
        worker.context.slots = self.shard
        worker.context.rng = worker_rng(self.root_seed, self.shard)
        return worker

    def __reduce__(self) -> tuple[Any, ...]:
        packed = self.packed()
        return RebuildSpec, tuple(getattr(packed, name.name) for name in fields(packed))

    def __deepcopy__(self, memo: dict[int, Any]) -> RebuildSpec:
        return self
