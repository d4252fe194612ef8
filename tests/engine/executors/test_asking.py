"""The order in which workers are asked: who waits for whose core."""

from __future__ import annotations

from typing import Any

import pytest
from contracts.envs import Countdown

import corral
from corral.engine.worker.commands import Ask


class Bell:
    """A bell whose waiter sleeps on the caller's core, or on another."""

    def __init__(self, bell: Any, sleeps_here: bool) -> None:
        self._bell, self.sleeps_here = bell, sleeps_here

    def __getattr__(self, name: str) -> Any:
        return getattr(self._bell, name)


@pytest.mark.parametrize("backend", ["process", "thread"])
def test_worker_with_the_callers_core_is_asked_last(backend: str) -> None:
    with corral.Pool(Countdown, 4, backend=backend, workers=4) as pool:
        executor: Any = pool._executor
        for link in executor._links:
            link.bell = Bell(link.bell, link.worker == 1)
        question = Ask("get_attr", (0,), "render_mode")
        asked = list(executor.each_asked(dict.fromkeys(range(4), question)))
        assert asked == [0, 2, 3, 1]
        assert [*executor.answers(asked, 10.0)] == asked
