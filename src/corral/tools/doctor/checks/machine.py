"""The machine: cores, memory, descriptors, whether the C parts are in use, GPUs."""

from __future__ import annotations

import os
import resource
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from corral.engine.executors.assign import cgroup_limit, usable_cores
from corral.engine.transport import free_memory
from corral.engine.worker import compiled
from corral.tools.doctor.report import Finding, note, ok
from corral.tools.doctor.subject import Subject

THREAD_VARIABLES = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")
# Descriptors that a pool holds for each worker, and some to spare.
DESCRIPTORS_PER_WORKER = 12


def check_machine(subject: Subject) -> Iterator[Finding]:
    """What the machine gives."""
    yield _cores()
    yield _compiled()
    yield _descriptors()
    if (left := free_memory.available()) is not None:
        yield ok(f"{left.bytes / 2**30:.1f} GiB of memory left")
    given = {name: os.environ.get(name) for name in THREAD_VARIABLES}
    here = ", ".join(f"{name}={value}" for name, value in given.items() if value)
    here = here or "one BLAS thread per core"
    yield ok(f"{here} in this process, one in each worker (threads_per_worker)")
    # Counted without a library of theirs.
    names = [path.name.removeprefix("nvidia") for path in Path("/dev").glob("nvidia*")]
    gpus = sum(name.isdigit() for name in names)
    if gpus:
        yield ok(f"{gpus} GPUs", data={"gpus": gpus})


def _cores() -> Finding:
    cores, all_cores, limit = usable_cores(), os.cpu_count() or 1, cgroup_limit()
    text = f"{cores} usable cores"
    if cores < all_cores:
        text += f" of {all_cores}, by affinity or the container's limit"
    data: dict[str, Any] = {"cores": cores, "all_cores": all_cores}
    if limit < float("inf"):
        data["cgroup_limit"] = limit
    return ok(text, data=data)


def _compiled() -> Finding:
    kinds = dict(compiled.IMPLEMENTATIONS)
    if compiled.COMPILED:
        return ok("all C parts (doorbell, recorder, readout) are in use", data=kinds)
    used = ", ".join(f"{part}: {kind}" for part, kind in kinds.items())
    return note(
        f"{used}; not all C parts are in use, which makes cheap steps slower",
        "install Corral where there is a C compiler, and unset CORRAL_PURE_PYTHON",
        data=kinds,
    )


def _descriptors() -> Finding:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    workers = max(0, soft - 64) // DESCRIPTORS_PER_WORKER
    text = f"ulimit -n is {soft}, enough for about {workers} worker processes"
    data = {"descriptors": soft, "hard_limit": hard}
    if workers >= 4 * usable_cores():
        return ok(text, data=data)
    return note(text, f"ulimit -n {hard}", data=data)
