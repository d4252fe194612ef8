"""What a worker process is given before any factory runs."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest

import corral
from corral.errors import EnvError, FactoryError, StartError


class Env(gym.Env[Any, Any]):
    observation_space = gym.spaces.Box(-1, 1, (2,))
    action_space = gym.spaces.Discrete(2)

    def __init__(self, log: Path | None = None) -> None:
        if log is not None:
            with log.open("a") as file:
                file.write(f"{os.getpid()}\n")

    def reset(self, *, seed=None, options=None):
        return np.zeros(2, np.float32), {}

    def step(self, action):
        return np.zeros(2, np.float32), 1.0, False, False, {}

    def evaluate(self, function):
        return function()


def told(function: Any, num_envs: int = 1, **options: Any) -> Any:
    """What the function returns in each slot of a process pool."""
    with corral.Pool(Env, num_envs, backend="process", **options) as pool:
        values = pool.call("evaluate", function)
    return values if num_envs > 1 else values[0]


# Names and paths -------------------------------------------------------------------


class Odd(str):
    """Text whose repr is no text."""

    def __repr__(self) -> str:
        return "odd"


ODD = [
    Path("/some/path"),
    None,
    b"/some/bytes",
    7,
    3.5,
    object(),
    "stable\udce9",
    "na\u00efve \U0001f40e",
    "with a \0 in it",
    "",
    "relative",
    Odd("/like/text"),
    Path,
    threading.Lock(),
]


def test_odd_entries_of_the_path_do_not_keep_workers_from_starting(monkeypatch):
    monkeypatch.setattr(sys, "path", [*sys.path, *ODD])
    path = told(lambda: sys.path)
    assert [entry for entry in path if type(entry) is not str] == []
    here = os.getcwd()
    assert path[-7:] == [
        "/some/path",
        "/some/bytes",
        f"{here}/stable\udce9",
        f"{here}/na\u00efve \U0001f40e",
        here,
        f"{here}/relative",
        "/like/text",
    ]


def test_odd_arguments_of_the_program_keep_their_places(monkeypatch):
    monkeypatch.setattr(sys, "argv", ODD)
    argv = told(lambda: sys.argv)
    assert len(argv) == len(ODD)
    assert argv[:5] == ["/some/path", None, b"/some/bytes", 7, 3.5]
    assert argv[5].startswith("<object object at")
    assert argv[6:12] == [*ODD[6:11], "/like/text"]
    assert "lock" in argv[-1]


def test_a_program_without_arguments_has_workers(monkeypatch):
    monkeypatch.delattr(sys, "argv")
    assert told(lambda: sys.argv) == []


@pytest.mark.parametrize("failing", [False, True])
def test_a_program_whose_directory_was_deleted_has_workers(run, failing):
    said = run(
        f"""
        import shutil, tempfile
        import corral

        class Failing(Env):
            def step(self, action):
                if {failing}:
                    raise ValueError("no step today")
                return super().step(action)

        directory = tempfile.mkdtemp()
        os.chdir(directory)
        sys.path.insert(0, "")
        shutil.rmtree(directory)
        with corral.Pool(Failing, 2, backend="process", workers=2) as pool:
            pool.reset()
            try:
                print(pool.step([0, 0]).reward.sum())
            except corral.errors.EnvError as error:
                print(str(error).split(":")[0])
        """
    )
    assert said.split()[0] == ("slot" if failing else "2.0")


def test_registrations_of_the_script_reach_the_workers(run, tmp_path):
    (tmp_path / "beside.py").write_text(
        "from gymnasium.envs.classic_control import CartPoleEnv\n"
        "class Cart(CartPoleEnv):\n    name = 'cart'\n"
    )
    code = """
    import corral

    class Local(Env):
        name = "local"

    gym.register("Local-v0", Local)
    gym.register("Lambda-v0", lambda: Local())
    gym.register("Beside-v0", "beside:Cart", max_episode_steps=7)
    for name in ("Local-v0", "Lambda-v0", "Beside-v0"):
        envs = corral.make(name, num_envs=2, backend="process", workers=2)
        envs.reset(seed=0)
        print(envs.get_attr("name"), envs.get_attr("spec")[1].max_episode_steps)
        envs.close()
    """
    assert run(code) == (
        "('local', 'local') None\n('local', 'local') None\n('cart', 'cart') 7\n"
    )


def test_modules_beside_the_script_are_found_from_another_directory(run, tmp_path):
    (tmp_path / "beside.py").write_text("import json\nname = json.dumps('beside')\n")
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    # The parent never sees these, since the working directory is not on its path.
    (elsewhere / "json.py").write_text("raise SystemError('the wrong json')")
    (elsewhere / "numpy.py").write_text("raise SystemError('the wrong numpy')")
    code = """
    import beside, corral
    make = lambda: Env() if beside.name else None
    with corral.Pool(make, 2, backend="process", workers=2) as pool:
        pool.reset()
    print(corral.map(lambda _: (beside.name, os.path.basename(os.getcwd())), [0]))
    """
    assert run(code, cwd=elsewhere) == "[('\"beside\"', 'elsewhere')]\n"


def test_working_directory_of_the_moment(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert told(os.getcwd) == str(tmp_path)


def test_relative_path_entry_added_at_run_time(tmp_path, monkeypatch):
    (tmp_path / "added").mkdir()
    (tmp_path / "added" / "corral_test_added.py").write_text("value = 11\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", ["added", *sys.path])

    def imported():
        import corral_test_added  # type: ignore[import-not-found]

        return corral_test_added.value, sys.path[0]

    def chdir():
        os.chdir("/")  # by now the entry has to be absolute

    assert told(imported, worker_init=chdir) == (11, str(tmp_path / "added"))


def test_module_whose_file_is_gone_travels_by_value(tmp_path, monkeypatch):
    path = tmp_path / "corral_test_gone.py"
    path.write_text("FACTOR = 3\ndef triple(x):\n    return FACTOR * x\n")
    monkeypatch.syspath_prepend(tmp_path)
    import corral_test_gone  # type: ignore[import-not-found]

    path.unlink()
    assert corral.map(corral_test_gone.triple, [1, 2]) == [3, 6]


def test_arguments_of_the_command_line(run):
    code = "import corral; print(corral.map(lambda _: sys.argv[1:], [0]))"
    assert run(code, arguments=["script.py", "--horse", "3"]) == "[['--horse', '3']]\n"


def test_import_that_fails_in_the_worker_names_module_and_path():
    def make():
        import corral_test_nowhere  # type: ignore[import-not-found]  # noqa: F401

    with pytest.raises(StartError, match="corral_test_nowhere") as caught:
        corral.Pool(make, 2, backend="process")
    assert caught.value.fault.slot == 0
    assert f"its sys.path: ['{os.path.abspath(sys.path[0])}'" in str(caught.value)


def test_an_import_error_of_the_envs_own_is_told_as_it_is():
    def outdated():
        raise ImportError("use walking_v6 instead")

    with pytest.raises(StartError, match="use walking_v6 instead") as caught:
        corral.Pool(outdated, 1, backend="process")
    assert "not importable" not in str(caught.value)


def test_unpicklable_factory_names_the_culprit():
    lock = threading.Lock()
    with pytest.raises(FactoryError, match="its variable 'lock'"):
        corral.Pool(lambda: lock and Env(), 2, backend="process")


# Environment -----------------------------------------------------------------------


def test_environment_set_at_run_time(monkeypatch):
    monkeypatch.setenv("CORRAL_TEST_HORSE", "grey")
    assert told(lambda: os.environ.get("CORRAL_TEST_HORSE")) == "grey"


def birth_environment() -> dict[bytes, bytes]:
    """What the process was started with, whatever has changed since."""
    pairs = Path("/proc/self/environ").read_bytes().rstrip(b"\0").split(b"\0")
    return dict(pair.split(b"=", 1) for pair in pairs)


@pytest.mark.parametrize(("threads", "expected"), [(1, b"1"), (2, b"2"), (None, b"5")])
def test_thread_counts_are_set_before_any_import(monkeypatch, threads, expected):
    monkeypatch.setenv("OMP_NUM_THREADS", "5")
    at_birth = told(birth_environment, threads_per_worker=threads)
    assert at_birth[b"OMP_NUM_THREADS"] == expected
    if threads is not None:
        assert at_birth[b"MKL_NUM_THREADS"] == at_birth[b"OPENBLAS_NUM_THREADS"]


def test_torch_threads_in_a_worker():
    def torch_threads():
        import torch

        return torch.get_num_threads()

    assert told(torch_threads, threads_per_worker=2) == 2


def test_devices_go_round_robin():
    def device():
        worker = corral.this_worker()
        return worker.index, worker.device, os.environ.get("MUJOCO_EGL_DEVICE_ID")

    devices = ["cuda:0", "cuda:1"]
    assert told(device, 3, workers=3, devices=devices) == (
        (0, "cuda:0", "0"),
        (1, "cuda:1", "1"),
        (2, "cuda:0", "0"),
    )


# Workers ---------------------------------------------------------------------------


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


def test_worker_leads_a_session_and_ignores_ctrl_c():
    pid, group, session, handler = told(
        lambda: (
            os.getpid(),
            os.getpgrp(),
            os.getsid(0),
            signal.getsignal(signal.SIGINT),
        )
    )
    assert pid == group == session != os.getpid()
    assert handler == signal.SIG_IGN


def test_worker_inherits_no_descriptor_of_the_parent(tmp_path):
    with (tmp_path / "open").open("w") as file:
        os.set_inheritable(file.fileno(), True)

        def descriptors():
            import psutil

            return [file.path for file in psutil.Process().open_files()]

        assert file.name not in told(descriptors)


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
