"""Reports of runs without their pictures: most of what a small run costs."""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import cache
from types import ModuleType
from typing import Any

import pytest

_PAGES = (
    "corral.train.reports.adaptation",
    "corral.train.run.report",
    "corral.zoo.tinyphysics.page",
)
_CHARTS = ("histogram", "lines", "maps")


@contextmanager
def undrawn() -> Iterator[None]:
    """Meanwhile every picture of a run is an empty one."""
    with pytest.MonkeyPatch.context() as patch:
        for page in _pages():
            for chart in set(_CHARTS) & set(vars(page)):
                patch.setattr(page, chart, _empty)
        yield


@cache
def _pages() -> list[ModuleType]:
    """Those that can be imported; where one cannot, there is no such run either."""
    pages = []
    for name in _PAGES:
        with suppress(ModuleNotFoundError):
            pages.append(importlib.import_module(name))
    return pages


def _empty(*arguments: Any, **options: Any) -> str:
    return "<svg></svg>"
