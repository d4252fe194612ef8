"""Envs, resources and arrays of workers: each is made once, where it belongs."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from evaluating_env import Env, told

import corral
from corral.errors import EnvError, StartError


@pytest.mark.parametrize("backend", ["process", "thread", "serial"])
def test_every_env_is_built_once_and_those_that_are_tried_are_counted(
    tmp_path, backend
):
    log = tmp_path / "built"
    with corral.Pool(lambda: Env(log), 4, backend=backend) as pool:
        pool.reset()
    pids = log.read_text().split()
    assert pool.layout.extra_envs == (0 if backend == "serial" else 3)
    assert len(pids) == 4 + pool.layout.extra_envs
    assert pids.count(str(os.getpid())) == (0 if backend == "process" else 4)


@pytest.mark.parametrize("backend", ["process", "thread"])
def test_every_env_is_built_once_where_sharing_is_asked_for(tmp_path, backend):
    log, asked = tmp_path / "built", {"backend": backend, "isolation": "shared"}
    with corral.Pool(lambda: Env(log), 4, **asked) as pool:
        pool.reset()
    assert len(log.read_text().split()) == 4


def test_auto_builds_nothing_in_the_parent_before_it_chose(tmp_path):
    log = tmp_path / "built"
    with corral.Pool(lambda: Env(log), 4) as pool:
        pool.reset()
        here = pool.layout.backend == "serial"
    pids = log.read_text().split()
    assert len(pids) == pool.layout.extra_envs + 4
    assert pids.count(str(os.getpid())) == (4 if here else 0)


def test_worker_init_then_per_worker_once_in_each(tmp_path):
    log = tmp_path / "log"

    def note(what):
        with log.open("a") as file:
            file.write(f"{os.getpid()} {what}\n")

    def make():
        note(f"env {corral.this_worker().resource}")
        return Env()

    def load():
        note("per_worker")
        return "model"

    options = {"worker_init": lambda: note("worker_init"), "per_worker": load}
    with corral.Pool(make, 4, backend="process", workers=2, **options) as pool:
        lines = [line.split(" ", 1) for line in log.read_text().splitlines()]
    by_worker = {pid: [what for p, what in lines if p == pid] for pid, _ in lines}
    once = ["worker_init", "per_worker", "env model", "env model"]
    tried = [*once, *["env model"] * pool.layout.extra_envs]
    assert sorted(by_worker.values(), key=len) == [once, tried]


def test_shared_arrays_are_read_only_and_one_copy():
    prices = np.arange(100_000.0)

    def look():
        array = corral.this_worker().shared["prices"]
        maps = Path("/proc/self/maps").read_text()
        try:
            array.flags.writeable = True
            writable = True
        except ValueError:
            writable = False
        return float(array.sum()), writable, " r--s " in maps

    assert told(look, shared={"prices": prices}) == (prices.sum(), False, True)


def test_worker_init_that_raises_is_a_start_error():
    with pytest.raises(StartError, match="no licence") as caught:
        told(os.getpid, worker_init=lambda: exec("raise OSError('no licence')"))
    assert "OSError: no licence" in str(caught.value.__cause__)


def test_env_may_start_children():
    def child():
        command = [sys.executable, "-c", "print(6 * 7)"]
        return subprocess.run(command, capture_output=True, text=True).stdout

    def pool_of_its_own():
        import multiprocessing

        with multiprocessing.get_context("fork").Pool(1) as pool:
            return pool.map(abs, [-3])

    assert told(child) == "42\n"
    assert told(pool_of_its_own) == [3]


def test_breakpoint_says_to_use_serial():
    with pytest.raises(EnvError, match='use backend="serial"'):
        told(lambda: breakpoint())
