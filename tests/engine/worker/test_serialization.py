"""What a worker process is given before any factory runs."""

from __future__ import annotations

import os
import signal
import sys
import threading
from pathlib import Path

import pytest
from evaluating_env import Env, told

import corral
from corral.errors import FactoryError, StartError

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


@pytest.mark.fresh_workers
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


@pytest.mark.fresh_workers
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
        with corral.Pool(Failing, 2, backend="process", workers=1) as pool:
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
        envs = corral.make(name, num_envs=2, backend="process", workers=1)
        envs.reset(seed=0)
        print(envs.get_attr("name"), envs.get_attr("spec")[1].max_episode_steps)
        envs.close()
    """
    assert run(code) == (
        "('local', 'local') None\n('local', 'local') None\n('cart', 'cart') 7\n"
    )


@pytest.mark.fresh_workers
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
    with corral.Pool(make, 2, backend="process", workers=1) as pool:
        pool.reset()
    print(corral.map(lambda _: (beside.name, os.path.basename(os.getcwd())), [0]))
    """
    assert run(code, cwd=elsewhere) == "[('\"beside\"', 'elsewhere')]\n"


@pytest.mark.fresh_workers
def test_working_directory_of_the_moment(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert told(os.getcwd) == str(tmp_path)


@pytest.mark.fresh_workers
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


@pytest.mark.fresh_workers
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


@pytest.mark.fresh_workers
def test_environment_set_at_run_time(monkeypatch):
    monkeypatch.setenv("CORRAL_TEST_HORSE", "grey")
    assert told(lambda: os.environ.get("CORRAL_TEST_HORSE")) == "grey"


def birth_environment() -> dict[bytes, bytes]:
    """What the process was started with, whatever has changed since."""
    pairs = Path("/proc/self/environ").read_bytes().rstrip(b"\0").split(b"\0")
    return dict(pair.split(b"=", 1) for pair in pairs)


@pytest.mark.fresh_workers
@pytest.mark.parametrize(("threads", "expected"), [(1, b"1"), (2, b"2"), (None, b"5")])
def test_thread_counts_are_set_before_any_import(monkeypatch, threads, expected):
    monkeypatch.setenv("OMP_NUM_THREADS", "5")
    at_birth = told(birth_environment, threads_per_worker=threads)
    assert at_birth[b"OMP_NUM_THREADS"] == expected
    if threads is not None:
        assert at_birth[b"MKL_NUM_THREADS"] == at_birth[b"OPENBLAS_NUM_THREADS"]


@pytest.mark.fresh_workers
def test_torch_threads_in_a_worker():
    def torch_threads():
        import torch

        return torch.get_num_threads()

    assert told(torch_threads, threads_per_worker=2) == 2


@pytest.mark.fresh_workers
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


# Process ---------------------------------------------------------------------------


@pytest.mark.fresh_workers
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


@pytest.mark.fresh_workers
def test_worker_inherits_no_descriptor_of_the_parent(tmp_path):
    with (tmp_path / "open").open("w") as file:
        os.set_inheritable(file.fileno(), True)

        def descriptors():
            import psutil

            return [file.path for file in psutil.Process().open_files()]

        assert file.name not in told(descriptors)
