"""What was seen of envs that shared a process, kept so that it is not tried again.

Kept by the factories and all that is given to them, and true as long as the text of
the modules that the envs are made of is what it was, and nothing was installed since.

    this process   everything, what is not known too
    the user's     what was seen for certain, of factories that any process can import:
    folder         not of lambdas, closures and classes of a notebook
"""

from __future__ import annotations

import hashlib
import json
import os
import sys
import tempfile
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from corral.engine.adapters import isolation
from corral.engine.executors.contract import Assignment
from corral.engine.worker import serialization
from corral.engine.worker.isolation_probe import SharingAnswer
from corral.engine.worker.shared_state import digest_of

FORMAT = 2
"""Of the file, and of how envs are tried: another one forgets everything."""
MAX_CACHE_FILES = 256
_here: dict[str, SharingAnswer] = {}


@dataclass(frozen=True, slots=True)
class CacheKey:
    """What was asked about."""

    digest: str
    stable: bool
    """Whether it means the same in another process."""


def cache_key_of(assignment: Assignment, guests: list[int]) -> CacheKey | None:
    """The envs of these slots with all they are given; None if they cannot be sent."""
    options = assignment.options
    asked = (
        [assignment.factories[slot] for slot in guests],
        assignment.worker_init,
        assignment.per_worker,
        options.sample_task,
        options.isolate_rng,
        sorted(assignment.shared),
        serialization.pack_registry(),
    )
    try:
        packed = serialization.dumps(asked)
    except Exception:
        return None
    said = repr((FORMAT, sys.version, _installed(), sys.path, os.getcwd()))
    digest = hashlib.sha256(packed + said.encode()).hexdigest()
    return CacheKey(digest, b"cloudpickle" not in packed)


def _installed() -> list[tuple[str, int]]:
    """When something was last installed, or removed."""
    found = []
    for entry in sys.path:
        if entry.endswith(("site-packages", "dist-packages")):
            with suppress(OSError):
                found.append((entry, os.stat(entry).st_mtime_ns))
    return found


def read_cached(key: CacheKey) -> SharingAnswer | None:
    """What is known; None if nothing is, or the text has changed since."""
    found = _here.get(key.digest)
    if found is None and key.stable:
        found = _read(_path(key))
    if found is None or any(digest_of(p) != d for p, d in found.sources.items()):
        return None
    return replace(found, extra=0)


def write_cached(key: CacheKey, sharing: SharingAnswer) -> None:
    """Keep it; a folder that cannot be written to is no reason to fail."""
    if not sharing.sources and sharing.safe is not None:
        return  # nobody could tell when it is no longer true
    _here[key.digest] = sharing
    if key.stable and sharing.safe is not None and all(sharing.sources.values()):
        with suppress(OSError):
            _write(_path(key), sharing)


# On disk ------------------------------------------------------------------------------


def _path(key: CacheKey) -> Path:
    return isolation.folder() / "tried" / f"{key.digest[:32]}.json"


def _read(path: Path) -> SharingAnswer | None:
    try:
        with open(path, encoding="utf-8") as file:
            if _may_be_others(file.fileno()):
                return None
            kept: dict[str, Any] = json.load(file)
        if kept.pop("format") != FORMAT:
            return None
        found = SharingAnswer(**kept)
        whole = isinstance(found.safe, bool) and isinstance(found.reason, str)
        return found if whole and isinstance(found.sources, dict) else None
    except (OSError, ValueError, TypeError, AttributeError, KeyError):
        return None  # there is none, or it is damaged: then nothing is known


def _may_be_others(descriptor: int) -> bool:
    """Whether somebody else wrote it, or could have."""
    if not hasattr(os, "getuid"):
        return False
    status = os.fstat(descriptor)
    return status.st_uid != os.getuid() or bool(status.st_mode & 0o022)


def _write(path: Path, sharing: SharingAnswer) -> None:
    """In the place of an earlier one; never half of it."""
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    text = json.dumps({"format": FORMAT, **asdict(sharing)}, indent=2)
    with tempfile.NamedTemporaryFile(
        "w", dir=path.parent, suffix=".draft", delete=False, encoding="utf-8"
    ) as draft:
        draft.write(text + "\n")
    os.replace(draft.name, path)
    _prune(path.parent)


def _prune(folder: Path) -> None:
    """Forget those that were written first."""
    files = list(folder.iterdir())
    if len(files) <= MAX_CACHE_FILES:
        return
    ages = []
    for file in files:
        with suppress(OSError):
            ages.append((file.stat().st_mtime, file))
    for _, file in sorted(ages)[: len(files) - MAX_CACHE_FILES]:
        with suppress(OSError):
            file.unlink()
