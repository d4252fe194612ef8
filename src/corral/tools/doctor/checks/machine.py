"""The machine: cores, memory, descriptors, which twins are in use, GPUs."""

from __future__ import annotations

import os
import resource
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from corral.engine.executors.assign import cgroup_limit, usable_cores
from corral.engine.transport import free_memory
from corral.engine.worker import compiled
from corral.tools.doctor.contract import Check
from corral.tools.doctor.finding import Finding
from corral.tools.doctor.subject import Subject

THREAD_VARIABLES = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")
DESCRIPTORS_PER_WORKER = 12
"""Descriptors that a pool holds for each worker, and some to spare."""
_GIB = 1 << 30


def examine(subject: Subject) -> Iterator[Finding]:
    """What the machine gives."""
    yield _cores()
    yield _twins()
    yield _descriptors()
    yield Finding("machine", "ok", _memory())
    yield Finding("machine", "ok", _blas())
    found = gpus()
    if found:
        yield Finding("machine", "ok", f"{found} GPUs", data={"gpus": found})


def _cores() -> Finding:
    cores, all_cores, limit = usable_cores(), os.cpu_count() or 1, cgroup_limit()
    parts = [f"{cores} usable cores"]
    if cores < all_cores:
        parts.append(f"of {all_cores}, by affinity or the container's limit")
    data: dict[str, Any] = {"cores": cores, "all_cores": all_cores}
    if limit < float("inf"):
        data["cgroup_limit"] = limit
    return Finding("machine", "ok", " ".join(parts), data=data)


def _twins() -> Finding:
    kinds = dict(compiled.IMPLEMENTATIONS)
    if compiled.COMPILED:
        text = "doorbell, recorder and readout are the compiled ones"
        return Finding("machine", "ok", text, data=kinds)
    used = ", ".join(f"{part}: {kind}" for part, kind in kinds.items())
    return Finding(
        "machine",
        "note",
        f"{used}; not all C parts are in use, and cheap steps take longer for it",
        "install Corral where there is a C compiler, and unset CORRAL_PURE_PYTHON",
        data=kinds,
    )


def _descriptors() -> Finding:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    workers = max(0, soft - 64) // DESCRIPTORS_PER_WORKER
    text = f"ulimit -n is {soft}: enough for some {workers} worker processes"
    data = {"descriptors": soft, "hard_limit": hard}
    if workers >= 4 * usable_cores():
        return Finding("machine", "ok", text, data=data)
    return Finding("machine", "note", text, f"ulimit -n {hard}", data=data)


def _memory() -> str:
    left = free_memory.available()
    parts = [] if left is None else [f"{left.bytes / _GIB:.1f} GiB of memory left"]
    try:
        shared = os.statvfs("/dev/shm")
        size = shared.f_frsize * shared.f_blocks / _GIB
        parts.append(f"/dev/shm {size:.1f} GiB (Corral's blocks are not kept there)")
    except OSError:
        parts.append("no /dev/shm, which Corral does not need")
    return ", ".join(parts)


def _blas() -> str:
    given = [
        f"{name}={os.environ[name]}" for name in THREAD_VARIABLES if name in os.environ
    ]
    here = ", ".join(given) or "as many BLAS threads as cores"
    return f"{here} in this process; 1 in each worker (threads_per_worker)"


def gpus(devices: Path = Path("/dev")) -> int:
    """How many, counted without a library of theirs."""
    return sum(
        path.name.removeprefix("nvidia").isdigit() for path in devices.glob("nvidia*")
    )


CHECK = Check("machine", examine, needs_profile=False)
