"""Questions to envs that a worker's end or a signal interrupts."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NoReturn

import pytest
from asked_env import Asked

import corral
from corral import Pool


def make_pool(count: int = 2, **options: Any) -> Pool:
    settings: dict[str, Any] = {"backend": "process", "workers": 2, "seed": 5}
    settings |= {"isolation": "shared"} | options
    return Pool(settings.pop("env", Asked), count, **settings)


# TimeoutErrors that are not Corral's --------------------------------------------------


@pytest.fixture
def alarm() -> Iterator[None]:
    """SIGALRM raises a TimeoutError, as many programs limit what takes long."""

    def handler(*_: object) -> NoReturn:
        raise TimeoutError("my alarm")

    before = signal.signal(signal.SIGALRM, handler)
    yield
    signal.signal(signal.SIGALRM, before)


@pytest.mark.parametrize("backend", ["process", "thread"])
def test_a_signal_handlers_timeout_ends_the_wait_for_answers(
    alarm, backend: str, tmp_path: Path
) -> None:
    with make_pool(backend=backend) as pool:
        with pytest.raises(TimeoutError, match="my alarm"):
            pool.call("alarm", os.getpid(), tmp_path / "heard", slots=[0])
        (tmp_path / "heard").touch()
        assert pool.call("echo", 3) == (3, 3)


def test_a_signal_handlers_timeout_is_its_own_with_gymnasiums_names(
    alarm, tmp_path: Path
) -> None:
    made = corral.make(Asked, 1, backend="process", isolation="shared", seed=5)
    with made as envs:
        with pytest.raises(TimeoutError, match="my alarm"):
            envs.call("alarm", os.getpid(), tmp_path / "heard")
        (tmp_path / "heard").touch()
        assert envs.call("echo", 3) == (3,)


def test_a_timeout_of_what_is_called_on_restarts_is_raised_as_it_is() -> None:
    def report(_: corral.Fault) -> NoReturn:
        raise TimeoutError("the metrics server did not answer")

    with make_pool(on_fault="restart") as pool:
        pool.call_on_restart(report)
        with pytest.raises(TimeoutError, match="the metrics server"):
            pool.call("die", slots=[0])
        assert pool.call("echo", 3) == (3, 3)
