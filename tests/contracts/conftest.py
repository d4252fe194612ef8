"""Pools of every kind, closed whatever happens."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import psutil
import pytest

from corral import Pool

BACKENDS = ("serial", "thread", "process")


@pytest.fixture(params=BACKENDS)
def backend(request: pytest.FixtureRequest) -> str:
    """Every executor in turn."""
    return str(request.param)


@pytest.fixture
def make_pool(backend: str) -> Iterator[Callable[..., Pool]]:
    """A way to make pools on this backend; two workers where there can be two."""
    pools: list[Pool] = []

    def make(env: Any, num_envs: int | None = None, **options: Any) -> Pool:
        options.setdefault("seed", 7)
        # How executors behave is tested here, not which envs may share a process.
        options.setdefault("isolation", "shared")
        if backend != "serial":
            options.setdefault("workers", 2)
        pools.append(Pool(env, num_envs, backend=backend, **options))
        return pools[-1]

    yield make
    for pool in pools:
        pool.close()


@pytest.fixture
def no_child_stays() -> Iterator[None]:
    """After the test no child process is left, and none that waits to be reaped."""
    before = set(psutil.Process().children(recursive=True))
    yield
    assert set(psutil.Process().children(recursive=True)) <= before
