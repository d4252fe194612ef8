"""Runs without pictures, which measure speeds for a moment and wait for no disk.

All of it is most of what a small run takes.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import ModuleType
from typing import Any

import pytest

_PAGES = (
    "corral.train.reports.adaptation",
    "corral.train.run.report",
    "corral.zoo.tinyphysics.page",
)
_CHARTS = ("histogram", "lines", "maps")
_MEASURING = ("corral.train.run.acting", "corral.train.run.time_split")
_MOMENT = 0.01
"""Seconds; users' runs measure for 0.15 and 0.4."""


@contextmanager
def undrawn() -> Iterator[None]:
    """Meanwhile every picture of a run is an empty one."""
    with pytest.MonkeyPatch.context() as patch:
        for page in _modules(_PAGES):
            for chart in set(_CHARTS) & set(vars(page)):
                patch.setattr(page, chart, _empty)
        yield


@contextmanager
def hurried() -> Iterator[None]:
    """Meanwhile a run knows at once how fast its envs are and that files are whole."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", os.fstat)
        for module in _modules(_MEASURING):
            patch.setattr(module, "MEASURED_SECONDS", _MOMENT)
        yield


def _modules(names: tuple[str, ...]) -> Iterator[ModuleType]:
    """Those that were imported; most are when a test of a run is."""
    return (sys.modules[name] for name in names if name in sys.modules)


def _empty(*arguments: Any, **options: Any) -> str:
    return "<svg></svg>"
