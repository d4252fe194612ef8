"""Where something was measured, and what this process and its children use.

The one place that imports psutil.
"""

from __future__ import annotations

import os
import platform
import re
import time
from collections.abc import Iterable
from contextlib import suppress
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from corral.engine.executors.assign import usable_cores
from corral.engine.faults.process_usage import memory_of, run_delay
from corral.engine.worker import compiled
from corral.errors import requires

with requires(
    "measuring memory and CPU needs psutil: pip install 'corral[bench]', or "
    "'corral[train]' to train"
):
    import psutil

ALWAYS_LISTED = ("corral", "gymnasium", "numpy")
# Names under which peers are installed, where they differ from ours for them.
DISTRIBUTIONS = {"sb3": "stable-baselines3"}


def facts() -> dict[str, Any]:
    """The machine, in a few words and numbers."""
    return {
        "cores": usable_cores(),
        "processor": _processor(),
        "memory_bytes": int(psutil.virtual_memory().total),
        "platform": platform.platform(),
        "python": platform.python_version(),
        "compiled": compiled.COMPILED,
    }


def _processor() -> str:
    with suppress(OSError):
        text = Path("/proc/cpuinfo").read_text()
        if found := re.search(r"^model name\s*:\s*(.+)", text, flags=re.M):
            return found[1].strip()
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


def cpu_seconds() -> float:
    """CPU time of this process and its children so far, ended ones included."""
    while True:
        ended, living = os.times()[2:4], 0.0
        for child in _children():
            with suppress(psutil.Error):  # it ended meanwhile
                living += sum(child.cpu_times()[:4])  # and its ended children's
        if ended == os.times()[2:4]:  # else one of them counts twice, or not
            return time.process_time() + sum(ended) + living


def queued_seconds() -> float:
    """How long this thread was ready to run without getting a core; 0 if unknown."""
    return run_delay("thread-self") or 0.0


def memory() -> int:
    """Bytes of this process and its children, shared pages counted once."""
    pids = [os.getpid(), *(child.pid for child in _children())]
    return sum(memory_of(pid) or 0 for pid in pids)


def _children() -> list[psutil.Process]:
    return psutil.Process().children(recursive=True)
