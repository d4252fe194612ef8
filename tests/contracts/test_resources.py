"""What stands beside the envs: resources, shared arrays, devices, and the worker."""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import corral
from corral import Pool
from corral.errors import EnvError, OptionError, OrderError, StartError

from .envs import Asker

MakePool = Callable[..., Pool]


def workers_of(pool: Pool) -> int:
    return int(pool.layout.workers)


def note(path: Path) -> None:
    with open(path, "a") as file:
        file.write(f"{corral.this_worker().index}\n")


def test_worker_init_runs_once_per_worker(make_pool: MakePool, tmp_path: Path) -> None:
    notes = tmp_path / "notes"
    pool = make_pool(Asker, 4, worker_init=functools.partial(note, notes))
    pool.reset()
    written = sorted(notes.read_text().split())
    assert written == [str(worker) for worker in range(workers_of(pool))]


def test_each_worker_builds_one_resource_for_all_its_envs(
    make_pool: MakePool, tmp_path: Path
) -> None:
    notes = tmp_path / "notes"

    def per_worker() -> Any:
        note(notes)
        return f"resource {corral.this_worker().index}"

    pool = make_pool(Asker, 4, per_worker=per_worker)
    infos = pool.reset().infos
    for slot in range(4):
        info = infos.of(slot)
        assert slot in info["slots"]
        assert info["resource"] == f"resource {info['worker']}"
    assert len(notes.read_text().split()) == workers_of(pool)
    assert {info["resource"] for info in pool.get_attr("at_birth")} == {
        info["resource"] for info in pool.call("ask")
    }


def test_devices_go_round_robin(make_pool: MakePool, backend: str) -> None:
    workers = 1 if backend == "serial" else 3
    pool = make_pool(Asker, 3, devices=["cpu:0", "cpu:1"], workers=workers)
    infos = pool.reset().infos
    for slot in range(3):
        info = infos.of(slot)
        assert info["device"] == ["cpu:0", "cpu:1"][info["worker"] % 2]


def test_shared_arrays_have_the_same_values_and_cannot_be_written(
    make_pool: MakePool,
) -> None:
    prices = np.random.default_rng(0).normal(size=(50, 3))
    shared = {
        "prices": prices,
        "names": np.array(["a", "bc"]),
        "none": np.zeros((0, 2)),
    }
    pool = make_pool(Asker, 3, shared=shared)
    for info in (pool.reset().infos.of(2), pool.get_attr("at_birth")[0]):
        for name, array in shared.items():
            assert info["shared"][name].dtype == array.dtype
            assert np.array_equal(info["shared"][name], array)
    with pytest.raises(EnvError, match=r"slot 1.*read-only"):
        pool.call("write_shared", "prices", slots=[1])
    prices[0, 0] += 0  # the caller's own array stays the caller's


def test_two_pools_of_one_thread_keep_their_workers_apart(make_pool: MakePool) -> None:
    first = make_pool(Asker, 2, per_worker=lambda: "first")
    second = make_pool(Asker, 2, per_worker=lambda: "second")
    for pool, name in ((first, "first"), (second, "second"), (first, "first")):
        assert pool.reset().infos.of(0)["resource"] == name
        assert pool.step([0, 0]).infos.of(1)["resource"] == name
        assert pool.call("ask")[0]["resource"] == name


def test_outside_a_worker_there_is_no_worker(make_pool: MakePool) -> None:
    with pytest.raises(OrderError, match="outside a worker"):
        corral.this_worker()
    pool = make_pool(Asker, 2)
    pool.reset()
    pool.step([0, 0])
    pool.call("ask")
    with pytest.raises(OrderError, match="outside a worker"):
        corral.this_worker()
    pool.close()
    with pytest.raises(OrderError, match="outside a worker"):
        corral.this_worker()


@pytest.mark.usefixtures("no_child_stays")
@pytest.mark.parametrize("where", ["worker_init", "per_worker"])
def test_a_resource_that_cannot_be_built_says_so(
    make_pool: MakePool, where: str
) -> None:
    def fail() -> None:
        raise FileNotFoundError("no weights at /nowhere")

    threads = threading.active_count()
    with pytest.raises(StartError, match="no weights at /nowhere") as caught:
        make_pool(Asker, 2, **{where: fail})
    assert caught.value.__cause__ is not None
    assert threading.active_count() == threads


def test_serial_envs_are_at_hand_and_others_are_not(
    make_pool: MakePool, backend: str
) -> None:
    pool = make_pool(Asker, 2)
    if backend == "serial":
        assert all(isinstance(env, Asker) for env in pool.envs)
    else:
        with pytest.raises(OptionError, match="use call or get_attr"):
            _ = pool.envs
