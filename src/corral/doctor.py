"""What is wrong with an environment, and why: `check` one.

Lazy, so that `import corral` does not bring the checks along.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from corral.engine.lazy_names import lazy

if TYPE_CHECKING:
    from corral.tools.doctor.examination import check
    from corral.tools.doctor.report import Finding, Report


__all__ = ["Finding", "Report", "check"]
__path__: list[str] = []  # modules below it are found by engine/old_paths.py

__getattr__ = lazy(
    "corral.doctor",
    {
        "corral.tools.doctor.examination": "check",
        "corral.tools.doctor.report": "Finding Report",
    },
)
