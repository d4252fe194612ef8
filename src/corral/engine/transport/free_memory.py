"""Memory that can still be allocated: the machine's, or the container's.

The kernel creates a block of shared memory without a look at what is left. It kills a
process when the pages are first written to. So a pool looks here before it asks for a
big block.

Guarantees:
    - Nothing is refused that fits: memory that the kernel can take back counts as free.
Assumes:
    - What was free a moment ago still is. If other processes take it meanwhile, the
      kernel decides which of them it kills.
"""

from __future__ import annotations

import errno
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

# Smaller requests are not checked.
UNCHECKED_BYTES = 16 << 20
_GIB = 1 << 30
# What version 1 of the control groups says for none is a number just below 2**63.
_NO_LIMIT = 1 << 60


class FreeMemory(NamedTuple):
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
    """The least that the machine and our control groups leave; None if unknown."""
    return min([*_machine(root), *_groups(root)], default=None)


def _machine(root: Path) -> Iterator[FreeMemory]:
    values = _table(root / "proc/meminfo")
    if "MemAvailable" in values:
        kib = values["MemAvailable"] + values.get("SwapFree", 0)
        yield FreeMemory(kib * 1024, f"the machine's {values['MemTotal'] >> 20} GiB")


# Versions 2 and 1 of the control groups: folder, limit, use, prefix in the table.
_GROUPS = {
    "": ("sys/fs/cgroup", "memory.max", "memory.current", ""),
    "memory": (
        "sys/fs/cgroup/memory",
        "memory.limit_in_bytes",
        "memory.usage_in_bytes",
        "total_",
    ),
}


def _groups(root: Path) -> Iterator[FreeMemory]:
    """Our control group, and those it is in: each may have a limit."""
    for line in _lines(root / "proc/self/cgroup"):
        _, kind, path = line.split(":", 2)
        if kind not in _GROUPS:
            continue
        top, *names = _GROUPS[kind]
        # In a container the path may be the host's, and lead nowhere: so also the top.
        inner = Path(path.lstrip("/"))
        for folder in (inner, *inner.parents, Path()):
            yield from _group(root / top / folder, *names)


def _group(folder: Path, most: str, now: str, prefix: str) -> Iterator[FreeMemory]:
    limit, used = _number(folder / most), _number(folder / now)
    if limit is None or used is None or limit > _NO_LIMIT:
        return
    # The kernel can take back what it keeps of files that are on disk anyway.
    table = _table(folder / "memory.stat")
    files = (f"{prefix}active_file", f"{prefix}inactive_file")
    free = limit - used + sum(table.get(name, 0) for name in files)
    swap, swapped = (_number(folder / f"memory.swap.{n}") for n in ("max", "current"))
    if swap is not None and swapped is not None:
        free += max(0, swap - swapped)
    yield FreeMemory(max(0, free), f"the container's {limit / _GIB:.2f} GiB")


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
