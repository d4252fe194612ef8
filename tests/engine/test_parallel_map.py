"""corral.map: a plain parallel map, with a pool's workers and manners."""

from __future__ import annotations

import os
import random
import signal
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import psutil
import pytest
from running import wait_until

import corral
from corral.errors import (
    FactoryError,
    Fault,
    FaultError,
    ItemError,
    OptionError,
    StartError,
    WorkerDied,
    WorkerHung,
)

BACKENDS = ["serial", "thread", "process"]


@pytest.fixture(autouse=True)
def nothing_left():
    before = psutil.Process().children(recursive=True)
    yield
    assert psutil.Process().children(recursive=True) == before
    assert not [t for t in threading.enumerate() if t.name.startswith("corral")]


@pytest.mark.parametrize("backend", BACKENDS)
def test_results_come_in_the_order_of_the_items(backend):
    def slow_first(item):
        time.sleep(0.05 if item == 0 else 0)
        return item * item

    results = corral.map(slow_first, range(20), backend=backend)
    assert results == [item * item for item in range(20)]


@pytest.mark.parametrize("backend", BACKENDS)
def test_no_items_no_workers(backend):
    def never():
        raise AssertionError("a worker was started")

    assert corral.map(abs, iter(()), backend=backend, worker_init=never) == []


@pytest.mark.parametrize("backend", ["thread", "process"])
def test_item_goes_to_whichever_worker_is_free(backend, tmp_path: Path):
    def work(item):
        if item == 0:  # holds its worker until all others are done by the other one
            wait_until(lambda: len(list(tmp_path.iterdir())) == 9)
        (tmp_path / str(item)).touch()
        return corral.this_worker().index

    first, *others = corral.map(work, range(10), workers=2, backend=backend)
    assert set(others) == {1 - first}


def test_generator_without_end_is_not_read_ahead(tmp_path: Path):
    """Until the first item is done, no more items are read than there are workers."""
    read: list[int] = []

    def endless() -> Iterator[int]:
        number = 0
        while True:
            read.append(number)
            if len(read) == 3:  # both workers have an item, so one of them is done
                assert (tmp_path / "done").exists()
                raise LookupError("enough")
            yield number
            number += 1

    def work(item):
        (tmp_path / "done").touch()

    with pytest.raises(LookupError, match="enough"):
        corral.map(work, endless(), workers=2)
    assert read == [0, 1, 2]


@pytest.mark.parametrize("backend", BACKENDS)
def test_worker_has_resource_shared_arrays_and_device(backend):
    def work(item):
        worker = corral.this_worker()
        assert len(worker.slots) == 0 and worker.device == "cpu"
        return worker.resource["gain"] * worker.shared["table"][item]

    results = corral.map(
        work,
        [2, 0, 1],
        backend=backend,
        per_worker=lambda: {"gain": 10},
        shared={"table": np.array([1, 2, 3])},
        devices=["cpu"],
    )
    assert results == [30, 10, 20]


def test_thread_counts_and_process_count():
    def work(item):
        return os.environ["OMP_NUM_THREADS"], os.getpid()

    results = corral.map(work, range(3), workers=8, threads_per_worker=3)
    assert {threads for threads, _ in results} == {"3"}
    assert len({pid for _, pid in results} | {os.getpid()}) >= 2


@pytest.mark.parametrize("backend", BACKENDS)
def test_exception_names_the_item_and_has_the_traceback_as_cause(backend):
    def work(item):
        return 1 // (item - 3)

    with pytest.raises(ItemError, match=r"item 3.*: ZeroDivisionError") as caught:
        corral.map(work, range(100_000_000), backend=backend)
    assert isinstance(caught.value, FaultError)
    assert caught.value.fault.item == 3
    assert caught.value.fault.error_type == "ZeroDivisionError"
    assert isinstance(caught.value.fault.exception, ZeroDivisionError)
    assert "1 // (item - 3)" in str(caught.value.fault.traceback)
    cause = caught.value.__cause__
    assert "ZeroDivisionError" in str(cause) or isinstance(cause, ZeroDivisionError)


@pytest.mark.parametrize("backend", BACKENDS)
def test_sys_exit_in_the_function_is_an_exception_like_any_other(backend):
    with pytest.raises(ItemError, match=r"item 0.*SystemExit"):
        corral.map(lambda _: exec("raise SystemExit(3)"), [0], backend=backend)


def test_exception_ends_workers_that_are_busy():
    def work(item):
        if item == 1:
            raise ValueError("stop")
        time.sleep(600)

    with pytest.raises(ItemError, match="item 1"):
        corral.map(work, range(4), workers=2)


def test_worker_that_dies_names_the_item():
    def work(item):
        if item == 5:
            print("last words")
            os.kill(os.getpid(), signal.SIGKILL)
        return item

    with pytest.raises(WorkerDied, match=r"item 5, worker .*SIGKILL") as caught:
        corral.map(work, range(100_000_000), workers=2)
    assert caught.value.fault.item == 5
    assert "last words" in caught.value.fault.output
    assert "slots" not in str(caught.value)


def test_resource_that_cannot_be_built():
    with pytest.raises(StartError, match="no such model"):
        corral.map(abs, [1], per_worker=lambda: exec("raise OSError('no such model')"))


def test_what_cannot_be_pickled_is_named():
    lock = threading.Lock()
    with pytest.raises(FactoryError, match=r"the function .*its variable 'lock'"):
        corral.map(lambda _: lock, [0])
    with pytest.raises(FactoryError, match="item 1 cannot be sent"):
        corral.map(abs, [0, lock])
    with pytest.raises(ItemError, match=r"item 0.*sending a result to.*lock"):
        corral.map(lambda _: threading.Lock(), [0])
    assert corral.map(lambda _: lock, [0], backend="thread") == [lock]


def test_item_that_cannot_be_opened_is_the_items_fault():
    class Odd:
        def __reduce__(self):
            return int, ("not a number",)

    with pytest.raises(ItemError, match=r"item 1.*invalid literal"):
        corral.map(abs, [3, Odd()])


@pytest.mark.parametrize("backend", BACKENDS)
def test_items_and_results_bigger_than_a_pipe(backend):
    items = [np.full(300_000, number) for number in range(5)]
    results = corral.map(lambda item: item + 1, items, backend=backend)
    assert [int(result[-1]) for result in results] == [1, 2, 3, 4, 5]


def test_workers_have_different_random_numbers(tmp_path: Path):
    def draw(item):
        (tmp_path / str(item)).touch()
        wait_until(lambda: len(list(tmp_path.iterdir())) == 2)  # so both workers draw
        return random.random(), float(np.random.random())

    first, second = corral.map(draw, range(2), workers=2)
    assert first[0] != second[0] and first[1] != second[1]


def test_map_inside_a_worker():
    def outer(item):
        return corral.map(lambda inner: item * inner, range(3), workers=1)

    assert corral.map(outer, [1, 2], workers=1) == [[0, 1, 2], [0, 2, 4]]


# Restarts -----------------------------------------------------------------------------


def die(number: int = signal.SIGKILL) -> None:
    os.kill(os.getpid(), number)


def runs_of(path: Path) -> list[str]:
    """The items that were begun, in order; items write them one letter each."""
    return list(path.read_text()) if path.exists() else []


def begun(path: Path, item: object) -> int:
    """Write down that an item is run; how often it was before."""
    before = runs_of(path).count(str(item))
    with open(path, "a") as file:
        file.write(str(item))
    return before


@pytest.mark.parametrize("way", ["raise", "exit", "kill", "segfault", "hang", "stop"])
def test_item_that_fails_once_is_run_again(tmp_path: Path, way):
    def fail() -> None:
        if way == "raise":
            raise ValueError("once")
        if way == "exit":
            os._exit(3)
        if way == "hang":
            time.sleep(600)
        die(
            {"kill": signal.SIGKILL, "segfault": signal.SIGSEGV}.get(
                way, signal.SIGSTOP
            )
        )

    def work(item):
        if begun(tmp_path / "runs", item) == 0 and item == 2:
            fail()
        return item * item

    results = corral.map(
        work, range(6), workers=2, on_fault="restart", item_timeout=1.0
    )
    assert results == [0, 1, 4, 9, 16, 25]
    assert sorted(runs_of(tmp_path / "runs")) == sorted("0122345")


def test_item_that_always_fails_is_a_fault_among_the_results(tmp_path: Path):
    def work(item):
        begun(tmp_path / "runs", item)
        if item == 1:
            raise ValueError("never")
        if item == 3:
            print("last words")
            die()
        return item

    results = corral.map(work, range(5), workers=2, on_fault="restart", max_restarts=2)
    raised, died = results[1], results[3]
    assert [results[index] for index in (0, 2, 4)] == [0, 2, 4]
    assert isinstance(raised, Fault) and isinstance(died, Fault)
    assert (raised.kind, raised.item, raised.restarts) == ("raised", 1, 2)
    assert (raised.error_type, raised.error_text) == ("ValueError", "never")
    assert isinstance(raised.exception, ValueError)
    assert (died.kind, died.item, died.restarts) == ("died", 3, 2)
    assert (died.command, died.signal_name) == ("map", "SIGKILL")
    assert "last words" in died.output
    assert runs_of(tmp_path / "runs").count("1") == 3
    assert runs_of(tmp_path / "runs").count("3") == 3


def test_every_item_may_take_its_worker_down():
    def work(item):
        die()

    results = corral.map(work, range(5), workers=2, on_fault="restart", max_restarts=0)
    assert [(fault.kind, fault.item) for fault in results] == [
        ("died", item) for item in range(5)
    ]


def test_others_go_on_while_a_worker_is_replaced(tmp_path: Path):
    def load():
        if (tmp_path / "lost").exists():
            # Nobody returns before the other worker has done everything else.
            wait_until(lambda: len(runs_of(tmp_path / "runs")) >= 9)

    def work(item):
        if item == 0 and not (tmp_path / "lost").exists():
            (tmp_path / "lost").touch()
            die()
        begun(tmp_path / "runs", item)
        return item

    results = corral.map(
        work, range(9), workers=2, on_fault="restart", worker_init=load
    )
    assert results == list(range(9))


def test_item_that_hangs_shows_where(tmp_path: Path):
    def work(item):
        if item == 1:
            wait_in_vain()
        return item

    def wait_in_vain():
        time.sleep(600)

    with pytest.raises(
        WorkerHung, match=r"item 1, worker .*longer than 0.5 s"
    ) as caught:
        corral.map(work, range(3), workers=1, item_timeout=0.5)
    assert caught.value.fault.item == 1
    assert "wait_in_vain" in caught.value.fault.stack
    assert "item_timeout" in str(caught.value)
    assert isinstance(caught.value, TimeoutError)
    first, fault = corral.map(
        work, range(2), workers=1, item_timeout=0.5, on_fault="restart", max_restarts=0
    )
    assert first == 0 and isinstance(fault, Fault)
    assert fault.kind == "hung" and "wait_in_vain" in fault.stack


def test_answer_that_was_posted_before_its_worker_died_counts(tmp_path: Path):
    class Deadly:
        """Takes its worker down when it is dropped: its answer is posted by then."""

        def __init__(self, item):
            self.item = item

        def __del__(self):
            die()

        def __reduce__(self):
            return int, (self.item,)

    def work(item):
        begun(tmp_path / "runs", item)
        return Deadly(item)

    assert corral.map(work, range(3), workers=1, on_fault="restart") == [0, 1, 2]
    assert runs_of(tmp_path / "runs") == ["0", "1", "2"]


def test_worker_that_dies_with_nothing_to_do_is_replaced(tmp_path: Path):
    def work(item):
        if item == "victim":
            (tmp_path / "pid").write_text(str(os.getpid()))
        elif item == "other":
            wait_until((tmp_path / "dead").exists)
        return item

    def items():
        yield "other"
        yield "victim"
        wait_until((tmp_path / "pid").exists)
        pid = int((tmp_path / "pid").read_text())
        wait_until(lambda: psutil.Process(pid).status() == psutil.STATUS_SLEEPING)
        os.kill(pid, signal.SIGKILL)
        (tmp_path / "dead").touch()
        yield from range(4)

    results = corral.map(work, items(), workers=2, on_fault="restart")
    assert results == ["other", "victim", 0, 1, 2, 3]


def test_worker_that_cannot_be_started_again_ends_the_map(tmp_path: Path):
    def load():
        if (tmp_path / "lost").exists():
            raise OSError("the model is gone")

    def work(item):
        (tmp_path / "lost").touch()
        die()

    with pytest.raises(StartError, match="the model is gone"):
        corral.map(
            work, [1], workers=1, on_fault="restart", max_restarts=1, worker_init=load
        )


def test_answer_that_breaks_off_is_asked_for_again(tmp_path: Path):
    def work(item):
        if item == 0 and begun(tmp_path / "runs", item) == 0:
            (tmp_path / "pid.part").write_text(str(os.getpid()))
            (tmp_path / "pid.part").rename(tmp_path / "pid")  # never seen empty
            return np.zeros(30_000_000)  # much more than a mailbox takes
        return item

    def items():
        yield 0
        # Nobody reads the answer meanwhile: its worker sleeps in the middle of it.
        wait_until((tmp_path / "pid").exists)
        worker = psutil.Process(int((tmp_path / "pid").read_text()))
        asleep: list[float] = []  # CPU seconds at its last looks, all in its sleep

        def stays_asleep():
            if worker.status() != psutil.STATUS_SLEEPING:
                asleep.clear()
            asleep.append(sum(worker.cpu_times()))
            return len(asleep) > 20 and asleep[-1] == asleep[-20]

        wait_until(stays_asleep)
        worker.kill()
        yield 1

    assert corral.map(work, items(), workers=2, on_fault="restart") == [0, 1]
    assert runs_of(tmp_path / "runs") == ["0", "0"]


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"backend": "auto"}, "backend is 'auto'; choose one of serial"),
        ({"workers": 0}, "workers is 0"),
        ({"workers": True}, "workers is True"),
        ({"workers": 2, "backend": "serial"}, "one worker"),
        ({"fn": 3}, "fn is 3"),
        ({"on_fault": "ignore"}, "on_fault is 'ignore'"),
        ({"max_restarts": -1}, "max_restarts is -1"),
        ({"max_restarts": True}, "max_restarts is True"),
        ({"item_timeout": 0}, "item_timeout is 0"),
        ({"on_fault": "restart", "backend": "thread"}, "has none"),
        ({"item_timeout": 1.0, "backend": "serial"}, "has none"),
    ],
)
def test_bad_options_are_refused(options, text):
    with pytest.raises(OptionError, match=text):
        corral.map(options.pop("fn", abs), [1], **options)
