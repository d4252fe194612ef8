"""Reports of runs without their pictures: most of what a small run costs."""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

import pytest

_PAGES = ("corral.train.run.report", "corral.zoo.tinyphysics.page")


@contextmanager
def undrawn() -> Iterator[None]:
    """Meanwhile every picture of a run is an empty one."""
    with pytest.MonkeyPatch.context() as patch:
        for name in _PAGES:
            with suppress(ModuleNotFoundError):  # nor is there a run
                page = importlib.import_module(name)
                patch.setattr(page, "lines", _empty)
                patch.setattr(page, "histogram", _empty)
        yield


def _empty(*arguments: Any, **options: Any) -> str:
    return "<svg></svg>"
