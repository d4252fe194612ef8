"""Where and with what something was measured."""

from __future__ import annotations

import platform
from collections.abc import Iterable
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from corral.engine.executors.assign import usable_cores
from corral.engine.worker import compiled
from corral.train.run.process_usage import total_memory

ALWAYS_LISTED = ("corral", "gymnasium", "numpy")
DISTRIBUTIONS = {"sb3": "stable-baselines3"}
"""Names under which peers are installed, where they differ from ours for them."""


def facts() -> dict[str, Any]:
    """The machine, in a few words and numbers."""
    return {
        "cores": usable_cores(),
        "processor": _processor(),
        "memory_bytes": total_memory(),
        "platform": platform.platform(),
        "python": platform.python_version(),
        "compiled": compiled.COMPILED,
    }


def _processor() -> str:
    try:
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    except OSError:
        pass
    return platform.processor() or platform.machine()


def versions(peers: Iterable[str] = ()) -> dict[str, str]:
    """Of everything that was measured."""
    found = {}
    for name in dict.fromkeys([*ALWAYS_LISTED, *peers]):
        try:
            found[name] = version(DISTRIBUTIONS.get(name, name))
        except PackageNotFoundError:
            found[name] = "unknown"
    return found
