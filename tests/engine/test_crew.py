"""corral.Crew: `corral.map` on workers that stay."""

from __future__ import annotations

import os
import pickle
import signal
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest
from running import wait_until

import corral
from corral.errors import (
    ClosedError,
    FactoryError,
    Fault,
    ItemError,
    OptionError,
    OrderError,
    OwnershipError,
    StartError,
    WorkerDied,
    WorkerHung,
)

BACKENDS = ["serial", "thread", "process"]
MakeCrew = Callable[..., corral.Crew]


@pytest.fixture(autouse=True)
def nothing_left() -> Iterator[None]:
    before = psutil.Process().children(recursive=True)
    yield
    assert psutil.Process().children(recursive=True) == before
    assert not [t for t in threading.enumerate() if t.name.startswith("corral")]


@pytest.fixture
def make() -> Iterator[MakeCrew]:
    """A way to make crews, closed whatever happens."""
    crews: list[corral.Crew] = []

    def make_one(**options: Any) -> corral.Crew:
        crews.append(corral.Crew(**options))
        return crews[-1]

    yield make_one
    for crew in crews:
        crew.close()


def two(backend: str) -> dict[str, Any]:
    """Two workers, where there can be two."""
    return {"backend": backend, "workers": 1 if backend == "serial" else 2}


def whereabouts(_: object) -> tuple[int, int]:
    return os.getpid(), threading.get_ident()


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


# Workers that stay --------------------------------------------------------------------


@pytest.mark.parametrize("backend", BACKENDS)
def test_calls_with_other_functions_run_in_the_same_workers(make, backend):
    crew = make(**two(backend))
    homes = set(crew.map(whereabouts, range(40)))
    assert crew.map(abs, [-1, 2, -3]) == [1, 2, 3]
    factor = 3
    assert crew.map(lambda item: factor * item, range(5)) == [0, 3, 6, 9, 12]
    assert len(homes | set(crew.map(whereabouts, range(40)))) <= crew.workers
    assert crew.map(abs, []) == []


@pytest.mark.parametrize("backend", BACKENDS)
def test_resources_are_built_once(make, backend, tmp_path: Path):
    def load():
        (tmp_path / str(time.perf_counter_ns())).touch()
        return "loaded"

    crew = make(**two(backend), per_worker=load)
    for _ in range(3):
        assert set(crew.map(lambda _: corral.this_worker().resource, range(9))) == {
            "loaded"
        }
    assert len(list(tmp_path.iterdir())) == crew.workers


class Traced:
    """A function that leaves a mark where it is unpickled."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def __call__(self, item: int) -> int:
        return item + 1

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        (self.folder / str(time.perf_counter_ns())).touch()


def test_function_is_sent_once_per_call_and_worker(make, tmp_path: Path):
    crew, traced = make(workers=1), Traced(tmp_path)
    for calls in (1, 2, 3):
        assert crew.map(traced, range(7)) == [1, 2, 3, 4, 5, 6, 7]
        assert len(list(tmp_path.iterdir())) == calls


def test_function_that_cannot_be_opened_never_runs_the_one_before(make):
    class Odd:
        def __call__(self, item: int) -> int:
            return item

        def __reduce__(self) -> Any:
            return int, ("not a number",)

    crew = make(workers=1, on_fault="restart", max_restarts=1)
    assert crew.map(abs, [-1]) == [1]
    faults = crew.map(Odd(), [-1, -2])
    assert [(fault.error_type, fault.item) for fault in faults] == [
        ("ValueError", 0),
        ("ValueError", 1),
    ]
    assert crew.map(abs, [-1]) == [1]


# Shared arrays ------------------------------------------------------------------------


def seen(item: int) -> tuple[float, int]:
    worker = corral.this_worker()
    return float(worker.shared["table"][item]), worker.version


@pytest.mark.parametrize("backend", BACKENDS)
def test_updated_arrays_are_there_in_the_next_call(make, backend):
    table = np.array([1.0, 2.0, 3.0])
    crew = make(**two(backend), shared={"table": table})
    assert crew.version == 0
    assert crew.map(seen, [0, 2]) == [(1.0, 0), (3.0, 0)]
    table[:] = 9  # the caller's own array is another
    assert crew.map(seen, [0, 2]) == [(1.0, 0), (3.0, 0)]
    assert crew.update(table=[4, 5, 6]) == crew.version == 1
    assert crew.map(seen, [0, 1, 2]) == [(4.0, 1), (5.0, 1), (6.0, 1)]
    assert crew.update(table=table) == 2
    assert crew.map(seen, [1]) == [(9.0, 2)]


@pytest.mark.parametrize("backend", BACKENDS)
def test_workers_cannot_write_to_shared_arrays(make, backend):
    def write(_: object) -> None:
        corral.this_worker().shared["table"][0] = 7

    crew = make(**two(backend), shared={"table": np.zeros(3)})
    with pytest.raises(ItemError, match="read-only"):
        crew.map(write, [0])
    crew.update(table=np.ones(3))
    assert crew.map(seen, [0]) == [(1.0, 1)]


@pytest.mark.parametrize("backend", ["serial", "process"])
def test_update_that_does_not_fit_is_refused_and_changes_nothing(make, backend):
    crew = make(backend=backend, workers=1, shared={"table": np.ones(3), "n": [1]})
    for arrays, text in (
        (
            {"table": np.zeros(4)},
            r"shape \(4,\) .* shared array has \(3,\) and float64",
        ),
        ({"table": np.zeros(3, complex)}, "dtype complex128"),
        ({"n": np.zeros(1)}, "dtype float64; the shared array has"),
        ({"chart": np.zeros(3)}, "no such array; its arrays are: table, n"),
    ):
        with pytest.raises(OptionError, match=text):
            crew.update(**{"table": np.zeros(3)} | arrays)
    for change in (crew.update, crew.share):
        with pytest.raises(OptionError, match=r"shared as .table. is no array \("):
            change(table=[[1], [1, 2]])
    assert crew.version == 0 and crew.map(seen, [0]) == [(1.0, 0)]


@pytest.mark.parametrize("backend", BACKENDS)
def test_arrays_can_be_shared_later_and_in_another_shape(make, backend):
    def look(name: str) -> tuple[Any, int]:
        worker = corral.this_worker()
        array = worker.shared[name]
        return array.tolist(), array.flags.writeable, worker.version

    crew = make(**two(backend), shared={"first": np.arange(2)})
    goal = np.array([7.0])
    assert crew.share(goal=goal, limits=[[1, 2]]) == crew.version == 1
    goal[:] = 0  # the caller's own array is another
    assert crew.map(look, ["first", "goal", "limits"]) == [
        ([0, 1], False, 1),
        ([7.0], False, 1),
        ([[1, 2]], False, 1),
    ]
    crew.update(goal=goal, first=[5, 6])
    assert crew.map(look, ["first", "goal"]) == [([5, 6], False, 2), ([0.0], False, 2)]
    crew.share(first=np.zeros((1, 1)), goal=np.ones(3))
    assert crew.map(look, ["first", "goal", "limits"]) == [
        ([[0.0]], False, 3),
        ([1.0, 1.0, 1.0], False, 3),
        ([[1, 2]], False, 3),
    ]
    crew.update(goal=[2, 2, 2])
    assert crew.map(look, ["goal"]) == [([2.0, 2.0, 2.0], False, 4)]
    with pytest.raises(OptionError, match="holds Python objects"):
        crew.share(goal=np.array([object()]))
    assert crew.version == 4


def test_memory_that_is_shared_again_and_again_is_released(make):
    def held(_: object) -> int:
        return Path("/proc/self/maps").read_text().count("memfd:corral")

    def in_use() -> tuple[int, list[int]]:
        crew.share(table=np.zeros(10_000))
        return len(os.listdir("/proc/self/fd")), crew.map(held, range(1))

    crew = make(workers=1)
    first = in_use()
    assert [in_use() for _ in range(20)] == [first] * 20


def test_replaced_worker_has_function_arrays_and_version(make, tmp_path: Path):
    def work(item: int) -> tuple[float, int]:
        if item == 1 and not (tmp_path / "died").exists():
            (tmp_path / "died").touch()
            die()
        return seen(item)

    crew = make(workers=1, on_fault="restart", shared={"table": np.arange(3.0)})
    crew.update(table=np.arange(3.0) + 10)
    assert crew.map(work, range(3)) == [(10.0, 1), (11.0, 1), (12.0, 1)]
    (tmp_path / "died").unlink()
    crew.share(table=np.arange(4.0) + 20)
    assert crew.map(work, range(4)) == [(20.0, 2), (21.0, 2), (22.0, 2), (23.0, 2)]


# Errors -------------------------------------------------------------------------------


@pytest.mark.parametrize("backend", BACKENDS)
def test_exception_names_the_item_and_the_crew_goes_on(make, backend):
    crew = make(**two(backend))
    homes = set(crew.map(whereabouts, range(40)))
    for _ in range(2):
        with pytest.raises(ItemError, match=r"item 3.*: ZeroDivisionError"):
            crew.map(lambda item: 1 // (item - 3), range(10**9))
        assert crew.map(abs, range(-4, 4)) == [4, 3, 2, 1, 0, 1, 2, 3]
    assert len(homes | set(crew.map(whereabouts, range(40)))) <= crew.workers


def test_workers_that_are_busy_after_an_error_are_replaced(make, monkeypatch):
    monkeypatch.setattr("corral.engine.map_run.OTHER_ITEMS_SECONDS", 0.05)

    def work(item: int) -> None:
        if item == 1:
            raise ValueError("stop")
        time.sleep(600)

    crew = make(workers=2)
    with pytest.raises(ItemError, match="item 1"):
        crew.map(work, range(4))
    assert crew.map(abs, range(-4, 0)) == [4, 3, 2, 1]


def test_threads_that_are_busy_after_an_error_finish_first(make, monkeypatch):
    monkeypatch.setattr("corral.engine.map_run.OTHER_ITEMS_SECONDS", 0.05)
    begun, go_on = threading.Event(), threading.Event()

    def work(item: int) -> str:
        if item == 1:
            begun.wait()
            raise ValueError("stop")
        begun.set()
        go_on.wait()
        return "nobody waits for this"

    crew = make(workers=2, backend="thread")
    with pytest.raises(ItemError, match="item 1"):
        crew.map(work, range(4))
    go_on.set()
    assert crew.map(abs, range(-4, 0)) == [4, 3, 2, 1]


def test_worker_that_died_is_replaced_after_its_error(make):
    crew = make(workers=2)
    for _ in range(2):
        with pytest.raises(WorkerDied, match=r"item 5, worker .*SIGKILL") as caught:
            crew.map(lambda item: die() if item == 5 else item, range(10**9))
        assert caught.value.fault.item == 5
        assert crew.map(abs, range(-4, 0)) == [4, 3, 2, 1]


def killed(pid: int) -> None:
    os.kill(pid, signal.SIGKILL)
    wait_until(lambda: psutil.Process(pid).status() == psutil.STATUS_ZOMBIE)


@pytest.mark.parametrize(
    "options", [{}, {"on_fault": "restart"}, {"on_fault": "restart", "max_restarts": 0}]
)
def test_worker_that_died_between_two_calls_is_replaced_and_costs_no_item(
    make, options
):
    crew = make(workers=2, **options)
    for count in (1, 2):  # workers that die
        pids = {child.pid for child in psutil.Process().children(recursive=True)}
        homes = {pid for pid, _ in crew.map(whereabouts, range(40))} & pids
        for pid in sorted(homes)[:count]:
            killed(pid)
        assert crew.map(abs, [-1, -2, -3]) == [1, 2, 3]


def test_worker_that_died_between_two_calls_and_cannot_be_started_again_is_an_error(
    make, tmp_path: Path
):
    def load() -> None:
        if (tmp_path / "lost").exists():
            raise OSError("the model is gone")

    crew = make(workers=1, worker_init=load)
    ((pid, _),) = crew.map(whereabouts, [0])
    (tmp_path / "lost").touch()
    killed(pid)
    with pytest.raises(StartError, match="the model is gone"):
        crew.map(abs, [-1])
    (tmp_path / "lost").unlink()
    assert crew.map(abs, [-1]) == [1]


def test_next_steps_name_options_that_a_crew_has(make):
    crew = make(workers=1)
    with pytest.raises(WorkerDied, match="fewer workers") as died:
        crew.map(lambda _: die(), [0])
    with pytest.raises(ItemError, match="return plain data") as unsent:
        crew.map(lambda _: threading.Lock(), [0])
    for error in (died.value, unsent.value):
        for other in ("isolation", "memory_limit", "pool"):
            assert other not in str(error).partition("Next steps")[2]


def test_item_that_hangs_costs_its_worker_and_not_the_crew(make):
    crew = make(workers=1, item_timeout=0.5)
    with pytest.raises(WorkerHung, match=r"item 1, worker .*longer than 0.5 s"):
        crew.map(lambda item: time.sleep(600 * item), range(3))
    assert crew.map(abs, [-1]) == [1]


def test_item_that_keeps_failing_is_a_fault_among_the_results(make):
    crew = make(workers=2, on_fault="restart", max_restarts=1)
    for _ in range(2):
        results = crew.map(lambda item: die() if item == 2 else item, range(5))
        assert [one for one in results if not isinstance(one, Fault)] == [0, 1, 3, 4]
        assert (results[2].kind, results[2].item, results[2].restarts) == ("died", 2, 1)


def test_worker_that_cannot_be_started_again_is_tried_in_every_call(
    make, tmp_path: Path
):
    def load() -> None:
        if (tmp_path / "lost").exists():
            raise OSError("the model is gone")

    def work(_: object) -> None:
        (tmp_path / "lost").touch()
        die()

    crew = make(workers=1, on_fault="restart", max_restarts=1, worker_init=load)
    for fn in (work, abs):
        with pytest.raises(StartError, match="the model is gone"):
            crew.map(fn, [1])
    (tmp_path / "lost").unlink()
    assert crew.map(abs, [-1]) == [1]


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("error", [LookupError, KeyboardInterrupt])
def test_items_that_raise_leave_the_crew_as_it_was(make, backend, error):
    def items() -> Iterator[int]:
        yield -1
        raise error("enough")

    crew = make(**two(backend))
    with pytest.raises(error, match="enough"):
        crew.map(abs, items())
    assert crew.map(abs, [-1, -2]) == [1, 2]


def test_ctrl_c_in_the_middle_of_a_message_leaves_a_crew_to_close(make, monkeypatch):
    crew = make(workers=1)

    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(crew._executor, "_announce", interrupted)
    with pytest.raises(KeyboardInterrupt):
        crew.map(abs, [-1])
    with pytest.raises(ClosedError, match="was interrupted; close this crew"):
        crew.map(abs, [-1])


def test_ctrl_c_in_an_item_of_the_caller_leaves_the_crew_as_it_was(make):
    def interrupted(_: object) -> None:
        raise KeyboardInterrupt

    crew = make(backend="serial")
    with pytest.raises(KeyboardInterrupt):
        crew.map(interrupted, [0])
    assert crew.map(abs, [-1, -2]) == [1, 2]


def test_what_cannot_be_sent_is_named_and_the_crew_goes_on(make):
    lock, crew = threading.Lock(), make(workers=2)
    with pytest.raises(FactoryError, match=r"the function .*its variable 'lock'"):
        crew.map(lambda _: lock, [0])
    with pytest.raises(FactoryError, match="item 1 cannot be sent"):
        crew.map(abs, [0, lock])
    assert crew.map(abs, [-1]) == [1]


# One process, one thread, one call at a time ------------------------------------------


@pytest.mark.parametrize("backend", BACKENDS)
def test_closed_crew_refuses_everything(make, backend):
    crew = make(**two(backend), shared={"table": np.zeros(3)})
    crew.close()
    crew.close()
    assert crew.closed
    with pytest.raises(ClosedError, match="this crew is closed; make another one"):
        crew.map(abs, [1])
    with pytest.raises(ClosedError, match="this crew is closed"):
        crew.update(table=np.zeros(3))


@pytest.mark.parametrize("backend", BACKENDS)
def test_map_within_a_map_of_the_same_crew_is_refused(make, backend):
    crew = make(**two(backend))

    def items() -> Iterator[int]:
        yield -1
        with pytest.raises(OrderError, match="this crew is running a map"):
            crew.map(abs, [1])
        with pytest.raises(OrderError, match="this crew is running a map"):
            crew.update()
        yield -2

    assert crew.map(abs, items()) == [1, 2]


def test_crew_belongs_to_one_thread(make):
    crew, errors = make(backend="serial"), []

    def use() -> None:
        try:
            crew.map(abs, [1])
        except OwnershipError as error:
            errors.append(str(error))

    thread = threading.Thread(target=use)
    thread.start()
    thread.join()
    assert "this crew belongs to the thread that made it" in errors[0]


def test_crew_belongs_to_one_process(make):
    crew = make(workers=1)
    read, write = os.pipe()
    child = os.fork()
    if not child:
        try:
            crew.map(abs, [1])
        except OwnershipError as error:
            os.write(write, str(error).encode())
        finally:
            os._exit(0)
    os.waitpid(child, 0)
    os.close(write)
    with open(read) as told:
        assert "this crew belongs to the parent of this forked process" in told.read()
    assert crew.map(abs, [-1]) == [1]


def test_crew_cannot_be_pickled(make):
    with pytest.raises(TypeError, match="a crew owns workers"):
        pickle.dumps(make(backend="serial"))


def test_worker_that_cannot_be_built_is_an_error_at_the_start():
    with pytest.raises(StartError, match="no such model"):
        corral.Crew(
            workers=2, per_worker=lambda: exec("raise OSError('no such model')")
        )


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"backend": "auto"}, "backend is 'auto'; choose one of serial"),
        ({"workers": 0}, "workers is 0"),
        ({"workers": 2, "backend": "serial"}, "one worker"),
        ({"on_fault": "ignore"}, "on_fault is 'ignore'"),
        ({"max_restarts": -1}, "max_restarts is -1"),
        ({"item_timeout": 0}, "item_timeout is 0"),
        ({"item_timeout": float("inf")}, "item_timeout is inf; it must be seconds"),
        ({"worker_init": 3}, "worker_init is 3; it must be a function"),
        ({"per_worker": 3}, "per_worker is 3; it must be a function"),
        ({"on_fault": "restart", "backend": "thread"}, "has none"),
        ({"shared": {"table": np.array([object()])}}, "holds Python objects"),
        ({"shared": [1]}, r"shared is \[1\]; it must be a dict of arrays"),
    ],
)
def test_bad_options_are_refused(options, text):
    with pytest.raises(OptionError, match=text):
        corral.Crew(**options)


def test_what_cannot_be_called_is_refused(make):
    with pytest.raises(OptionError, match="fn is 3"):
        make(backend="serial").map(3, [1])


# Devices ------------------------------------------------------------------------------


def test_cuda_works_in_workers_although_the_caller_uses_it(make):
    torch = pytest.importorskip("torch", reason="torch is not installed")
    if not torch.cuda.is_available():
        pytest.skip("there is no CUDA device")
    assert torch.ones(3, device="cuda").sum().item() == 3

    def work(item: int) -> tuple[str, float]:
        import torch

        device = corral.this_worker().device
        return device, torch.full((2,), float(item), device=device).sum().item()

    crew = make(workers=2, devices="auto")
    for _ in range(2):
        results = crew.map(work, range(4))
        assert {device for device, _ in results} <= {
            f"cuda:{number}" for number in range(torch.cuda.device_count())
        }
        assert [value for _, value in results] == [0.0, 2.0, 4.0, 6.0]
