"""Memory that can still be allocated: the machine's, or the container's.

A block of shared memory is given without a look at what is left; it is when its pages
are first written to that a process is killed for them. So who wants a big one looks
here first.

Guarantees:
    - Nothing is refused that fits: memory that the kernel can take back counts as free.
Assumes:
    - What was free a moment ago still is. Where others take it meanwhile, the kernel
      decides who is killed.
"""

from __future__ import annotations

import errno
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

UNCHECKED_BYTES = 16 << 20
"""Bytes that are worth no look."""
_GIB = 1 << 30
_NO_LIMIT = 1 << 60
"""What version 1 of the control groups says for none is a number just below 2**63."""


@dataclass(frozen=True, slots=True)
class FreeMemory:
    """How many bytes, and by whose account."""

    bytes: int
    account: str


def check(wanted: int, what: str) -> None:
    """Refuse what will not fit.

    Raises:
        OSError: ENOMEM; the text has the numbers.
    """
    if wanted < UNCHECKED_BYTES:
        return
    left = available()
    if left is not None and wanted > left.bytes:
        raise OSError(
            errno.ENOMEM,
            f"{what} needs {wanted / _GIB:.2f} GiB, and {left.bytes / _GIB:.2f} GiB "
            f"are left of {left.account}",
        )


def available(root: Path = Path("/")) -> FreeMemory | None:
    """The least that anybody leaves us; None if nobody says anything."""
    accounts = [*_machine(root), *_groups(root)]
    return min(accounts, key=lambda left: left.bytes, default=None)


def _machine(root: Path) -> Iterator[FreeMemory]:
    values = _table(root / "proc/meminfo")
    if "MemAvailable" in values:
        kib = values["MemAvailable"] + values.get("SwapFree", 0)
        yield FreeMemory(kib * 1024, f"the machine's {values['MemTotal'] >> 20} GiB")


def _groups(root: Path) -> Iterator[FreeMemory]:
    """Our control group, and those it is in: each may have a limit."""
    for line in _lines(root / "proc/self/cgroup"):
        _, kind, path = line.split(":", 2)
        if kind == "":
            top, one = root / "sys/fs/cgroup", _group
        elif kind == "memory":
            top, one = root / "sys/fs/cgroup/memory", _old_group
        else:
            continue
        # In a container the path may be the host's, and lead nowhere: so also the top.
        inner = Path(path.lstrip("/"))
        for folder in (top / inner, *(top / parent for parent in inner.parents), top):
            yield from one(folder)


def _group(folder: Path) -> Iterator[FreeMemory]:
    limit, used = _number(folder / "memory.max"), _number(folder / "memory.current")
    if limit is None or used is None:
        return
    parts = _table(folder / "memory.stat")
    swap = _left(folder / "memory.swap.max", folder / "memory.swap.current")
    free = limit - used + _reclaimable(parts, "") + swap
    yield FreeMemory(max(0, free), f"the container's {limit / _GIB:.2f} GiB")


def _old_group(folder: Path) -> Iterator[FreeMemory]:
    """The same in version 1."""
    limit = _number(folder / "memory.limit_in_bytes")
    used = _number(folder / "memory.usage_in_bytes")
    if limit is None or used is None or limit > _NO_LIMIT:
        return
    free = limit - used + _reclaimable(_table(folder / "memory.stat"), "total_")
    yield FreeMemory(max(0, free), f"the container's {limit / _GIB:.2f} GiB")


def _reclaimable(parts: dict[str, int], prefix: str) -> int:
    """What the kernel keeps of files that are on disk anyway."""
    return sum(
        parts.get(f"{prefix}{name}", 0) for name in ("active_file", "inactive_file")
    )


def _left(limit: Path, used: Path) -> int:
    most, now = _number(limit), _number(used)
    return 0 if most is None or now is None else max(0, most - now)


def _number(path: Path) -> int | None:
    """The number in a file; None for "max", or if there is no such file."""
    lines = _lines(path)
    return int(lines[0]) if lines and lines[0].strip().isdigit() else None


def _table(path: Path) -> dict[str, int]:
    """Names and numbers, as in `MemFree:  123 kB` and `inactive_file 123`."""
    rows = (line.replace(":", " ").split() for line in _lines(path))
    return {row[0]: int(row[1]) for row in rows if len(row) > 1 and row[1].isdigit()}


def _lines(path: Path) -> list[str]:
    try:
        return path.read_text(encoding="ascii").splitlines()
    except OSError:
        return []
