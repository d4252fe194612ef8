"""`devices="auto"`, and names of devices that do not exist."""

from __future__ import annotations

import ctypes
import sys
from types import SimpleNamespace
from typing import Any

import pytest

import corral
from corral.engine.executors import devices
from corral.engine.executors.devices import devices_for, visible
from corral.errors import OptionError


class Driver:
    """The driver's library, of a machine with so many GPUs."""

    def __init__(self, count: int, working: bool = True) -> None:
        self.count, self.working, self.open = count, working, 0

    def nvmlInit_v2(self) -> int:
        self.open += self.working
        return 0 if self.working else 9

    def nvmlDeviceGetCount_v2(self, found: Any) -> int:
        ctypes.cast(found, ctypes.POINTER(ctypes.c_uint))[0] = self.count
        return 0

    def nvmlShutdown(self) -> int:
        self.open -= 1
        return 0


@pytest.fixture
def driver(monkeypatch: pytest.MonkeyPatch) -> Any:
    """A machine with another number of GPUs, in a process without torch."""

    def install(count: int, variable: str | None = None, **kwargs: Any) -> Driver:
        library = Driver(count, **kwargs)
        monkeypatch.delitem(sys.modules, "torch", raising=False)
        monkeypatch.setattr(devices.ctypes, "CDLL", lambda name: library)
        monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
        if variable is not None:
            monkeypatch.setenv("CUDA_VISIBLE_DEVICES", variable)
        return library

    return install


@pytest.mark.parametrize(
    ("count", "variable", "found"),
    [
        (2, None, ("cuda:0", "cuda:1")),
        (4, "3,1", ("cuda:0", "cuda:1")),
        (4, "", ("cpu",)),
        (4, "-1", ("cpu",)),
        (0, None, ("cpu",)),
        (0, "0", ("cpu",)),
    ],
)
def test_auto_is_every_cuda_device_or_else_the_cpu(driver, count, variable, found):
    library = driver(count, variable)
    assert devices_for("auto") == found
    assert library.open == 0


def test_driver_that_does_not_work_is_none(driver):
    driver(2, working=False)
    assert devices_for("auto") == ("cpu",)


def test_no_driver_is_no_device(driver, monkeypatch):
    def missing(name: str) -> None:
        raise OSError(name)

    driver(2)
    monkeypatch.setattr(devices.ctypes, "CDLL", missing)
    assert devices_for("auto") == ("cpu",)


def test_torch_is_asked_where_the_caller_has_imported_it(driver, monkeypatch):
    driver(4)
    torch = SimpleNamespace(cuda=SimpleNamespace(device_count=lambda: 1))
    monkeypatch.setitem(sys.modules, "torch", torch)
    assert devices_for("auto") == ("cuda:0",)


@pytest.mark.parametrize(
    ("variable", "installed", "left"),
    [
        (None, 3, 3),
        ("1", 3, 1),
        (" 0, 2 ", 3, 2),
        ("0,7,1", 3, 1),  # CUDA stops at the first that is not there
        ("GPU-3f,MIG-0a", 3, 2),
        ("GPU-3f", 0, 0),
        ("no", 3, 0),
    ],
)
def test_visible_devices_are_those_that_cuda_counts(variable, installed, left):
    assert visible(variable, installed) == left


def test_device_that_does_not_exist_is_refused_before_a_worker_starts(driver):
    driver(2)
    assert devices_for(["cuda:1", "cpu", "cuda"]) == ("cuda:1", "cpu", "cuda")
    with pytest.raises(OptionError, match=r"has cuda:2, but .* are cuda:0 to cuda:1"):
        devices_for(["cuda:0", "cuda:2"])
    driver(0)
    with pytest.raises(OptionError, match=r"has cuda:0, .* can use no CUDA device"):
        corral.Crew(workers=1, devices=["cuda:0"])


@pytest.mark.parametrize("asked", ["cuda:0", [0], "", ["cuda0"]])
def test_devices_that_are_no_list_of_names_are_refused(asked):
    with pytest.raises(OptionError, match=r"devices (is|has) "):
        devices_for(asked)


@pytest.mark.parametrize("backend", ["serial", "thread", "process"])
def test_devices_go_round_robin(driver, backend):
    driver(2)
    workers = 1 if backend == "serial" else 3
    crew = corral.Crew(backend=backend, workers=workers, devices="auto")
    with crew:
        found = crew.map(lambda _: vars_of(corral.this_worker()), range(60))
    assert set(found) <= {(0, "cuda:0"), (1, "cuda:1"), (2, "cuda:0")}


def vars_of(worker: Any) -> tuple[int, str]:
    return worker.index, worker.device
