"""Whether envs may share a process: what an env declares, or what the doctor saved.

    metadata["corral.isolation"] = "slot"      one process per slot
    metadata["corral.isolation"] = "shared"    several may share a process

`corral doctor ENV --save` writes its verdict into a folder of the user's, one JSON file
for each env. It is valid for the edition of the env that was examined: the version of
its package, or the text of its module where it belongs to none.
"""

from __future__ import annotations

import functools
import hashlib
import json
import os
import re
import sys
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal, TypeVar, get_args

from corral.engine.whole_file import replacing

# The key of an env's metadata.
ISOLATION_KEY = "corral.isolation"
# The environment variable that names another folder.
FOLDER_VARIABLE = "CORRAL_VERDICTS"
FORMAT = 1
Isolation = Literal["slot", "shared"]
Value = TypeVar("Value")


@dataclass(frozen=True, slots=True)
class IsolationVerdict:
    """Whether envs of a kind may share a process.

    Attributes:
        subject: The env's id, else its class.
        edition: The package and its version, or a digest of the module's text.
        threads: Whether two threads may have one each; None if that was not tried.
        isolate_rng: Whether it draws from global generators.
    """

    subject: str
    edition: str
    isolation: Isolation
    threads: bool | None = None
    isolate_rng: bool = False
    reason: str = ""


def isolation_of(env: Any) -> IsolationVerdict | None:
    """What the env declares, else what was saved; None without either."""
    metadata: dict[str, Any] = getattr(env, "metadata", None) or {}
    declared: Any = metadata.get(ISOLATION_KEY)
    if declared in get_args(Isolation):
        reason = f'metadata["{ISOLATION_KEY}"] is "{declared}"'
        return IsolationVerdict(subject_of(env), "", declared, reason=reason)
    return saved_verdict(env)


# Subjects -----------------------------------------------------------------------------


def subject_of(env: Any) -> str:
    """Its id, else the class that is inside its wrappers."""
    registered = getattr(getattr(env, "spec", None), "id", None)
    if registered:
        return str(registered)
    kind = type(getattr(env, "unwrapped", env))
    return f"{kind.__module__}:{kind.__qualname__}"


def edition_of(env: Any) -> str:
    """Its package and version, else a digest of its module; "" if neither is known."""
    module = type(getattr(env, "unwrapped", env)).__module__
    source = Path(getattr(sys.modules.get(module), "__file__", None) or "")
    # A package that is worked on keeps its version while its text changes.
    if {"site-packages", "dist-packages"} & set(source.parts):
        found = _distribution(module.partition(".")[0])
        if found:
            return found
    try:
        text = source.read_bytes()
    except OSError:  # a notebook's, or typed at the prompt
        return ""
    return f"source {hashlib.sha256(text).hexdigest()[:16]}"


@functools.cache
def _distribution(module: str) -> str:
    """What a module was installed with, and its version; "" if that is not known."""
    # Here, since it takes 20 ms and most workers never need it.
    from importlib import metadata

    # Python 3.10's `packages_distributions` reads no list of files.
    for one in metadata.distributions():
        named = (one.read_text("top_level.txt") or "").split()
        files = () if named else (file.parts[0] for file in one.files or ())
        if module in named or {module, f"{module}.py"} & {*files}:
            return f"{one.name} {one.version}"
    return ""


# Saved --------------------------------------------------------------------------------


def folder() -> Path:
    """Where verdicts are kept."""
    home = os.environ.get("XDG_CONFIG_HOME") or os.path.expanduser("~/.config")
    return Path(os.environ.get(FOLDER_VARIABLE) or f"{home}/corral/verdicts")


def save_verdict(verdict: IsolationVerdict) -> Path:
    """Save it, in the place of an earlier one."""
    path = _path(verdict.subject)
    write_value(path, FORMAT, verdict)
    return path


def saved_verdict(env: Any) -> IsolationVerdict | None:
    """What was saved of this env, if it has not changed since."""
    try:
        text = _path(subject_of(env)).read_text(encoding="utf-8")
    except (OSError, ValueError):
        return None
    verdict = read_value(text, FORMAT, IsolationVerdict)
    if verdict is None or verdict.isolation not in get_args(Isolation):
        return None
    return verdict if verdict.edition == edition_of(env) else None


def write_value(path: Path, form: int, value: Any) -> None:
    """Write a dataclass as JSON, in the place of an earlier file; never half of it."""
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    text = json.dumps({"format": form, **asdict(value)}, indent=2)
    with replacing(path, mode=0o600) as file:
        file.write(f"{text}\n".encode())


def read_value(text: str, form: int, kind: type[Value]) -> Value | None:
    """The dataclass that `write_value` wrote; None for anything else."""
    try:
        kept = json.loads(text)
        return kind(**kept) if kept.pop("format") == form else None
    except (ValueError, TypeError, AttributeError, KeyError):
        return None


def _path(subject: str) -> Path:
    """A file name for the subject: readable and unique."""
    plain = re.sub(r"[^A-Za-z0-9.]+", "-", subject)[:60]
    digest = hashlib.sha256(subject.encode()).hexdigest()[:8]
    return folder() / f"{plain}-{digest}.json"
