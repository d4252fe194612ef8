"""What is wrong with an environment, and why: `check` one.

Lazy, so that `import corral` does not bring the checks along.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from corral.tools.doctor.examination import check
    from corral.tools.doctor.report import Finding, Report

_HOMES = {"Finding": "report", "Report": "report", "check": "examination"}

__all__ = ["Finding", "Report", "check"]
__path__: list[str] = []  # modules below it are found by engine/old_paths.py


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        home = importlib.import_module(f"corral.tools.doctor.{_HOMES[name]}")
        return getattr(home, name)
    raise AttributeError(f"corral.doctor has no {name!r}; it has {', '.join(__all__)}")
