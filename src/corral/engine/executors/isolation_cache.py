"""A cache of trials of envs that share a process.

The key is the factories with all their arguments. An entry is valid as long as the text
of the envs' modules has not changed, and nothing was installed since.

    this process   every answer, also "not known"
    the user's     certain answers, for factories that any process can import:
    folder         not for lambdas, closures and classes of a notebook
"""

from __future__ import annotations

import hashlib
import os
import sys
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

from corral.engine.adapters import isolation
from corral.engine.executors.contract import Assignment
from corral.engine.worker import serialization
from corral.engine.worker.isolation_probe import SharingAnswer
from corral.engine.worker.shared_state import digest_of

# The version of the file and of the trial; entries of other versions are ignored.
FORMAT = 2
MAX_CACHE_FILES = 256
_here: dict[str, SharingAnswer] = {}


@dataclass(frozen=True, slots=True)
class CacheKey:
    """The envs that an answer is about.

    Attributes:
        stable: Whether it means the same in another process.
    """

    digest: str
    stable: bool


def cache_key_of(assignment: Assignment, guests: list[int]) -> CacheKey | None:
    """The key of these slots' envs; None if there is none.

    Factories that cannot be pickled have none, nor does a directory that was deleted.
    """
    options = assignment.options
    asked = (
        [assignment.factories[slot] for slot in guests],
        assignment.worker_init,
        assignment.per_worker,
        options.sample_task,
        options.task_by,
        options.isolate_rng,
        sorted(assignment.shared),
        serialization.pack_registry(),
    )
    try:
        packed, directory = serialization.dumps(asked), os.getcwd()
    except Exception:
        return None
    said = repr((FORMAT, sys.version, _installed(), sys.path, directory))
    digest = hashlib.sha256(packed + said.encode()).hexdigest()
    return CacheKey(digest, b"cloudpickle" not in packed)


def _installed() -> list[tuple[str, int]]:
    """When something was last installed, or removed."""
    return [
        (entry, os.stat(entry).st_mtime_ns)
        for entry in sys.path
        if entry.endswith(("site-packages", "dist-packages")) and os.path.isdir(entry)
    ]


def read_cached(key: CacheKey) -> SharingAnswer | None:
    """The answer; None if there is none, or the modules have changed since."""
    found = _here.get(key.digest)
    if found is None and key.stable:
        found = _read(_path(key))
    if found is None or any(digest_of(p) != d for p, d in found.sources.items()):
        return None
    return replace(found, extra=0)


def write_cached(key: CacheKey, sharing: SharingAnswer) -> None:
    """Store the answer, unless the folder cannot be written to."""
    if not sharing.sources and sharing.safe is not None:
        return  # without sources it could not be invalidated
    _here[key.digest] = sharing
    if key.stable and sharing.safe is not None and all(sharing.sources.values()):
        with suppress(OSError):
            path = _path(key)
            isolation.write_value(path, FORMAT, sharing)
            files = sorted(path.parent.iterdir(), key=os.path.getmtime)
            for oldest in files[:-MAX_CACHE_FILES]:
                oldest.unlink(missing_ok=True)


# On disk ------------------------------------------------------------------------------


def _path(key: CacheKey) -> Path:
    return isolation.folder() / "tried" / f"{key.digest[:32]}.json"


def _read(path: Path) -> SharingAnswer | None:
    try:
        with open(path, encoding="utf-8") as file:
            text = "" if _may_be_others(file.fileno()) else file.read()
    except (OSError, ValueError):
        return None
    found = isolation.read_value(text, FORMAT, SharingAnswer)
    kinds = {"safe": bool, "reason": str, "sources": dict}
    whole = found is not None and all(
        isinstance(getattr(found, name), kind) for name, kind in kinds.items()
    )
    return found if whole else None


def _may_be_others(descriptor: int) -> bool:
    """Whether another user wrote the file, or could have."""
    if not hasattr(os, "getuid"):
        return False
    status = os.fstat(descriptor)
    return status.st_uid != os.getuid() or bool(status.st_mode & 0o022)
