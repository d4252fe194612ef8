"""What is opened in this room's tests is closed, whatever happens."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest


@pytest.fixture
def opened() -> Iterator[Callable[[Any], Any]]:
    """Remember what was opened, and close it whatever happens: `opened(make(...))`."""
    kept: list[Any] = []

    def keep(envs: Any) -> Any:
        kept.append(envs)
        return envs

    yield keep
    for envs in kept:
        if not envs.closed:
            envs.close()
