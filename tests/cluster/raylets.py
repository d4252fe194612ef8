"""Three real raylets on this host, reachable from it alone; and what they run."""

from __future__ import annotations

import itertools
import os
import shutil
import signal
import subprocess
import tempfile
import time
from contextlib import contextmanager
from pathlib import Path

import psutil

SETTINGS = {
    "health_check_initial_delay_ms": 0,
    "health_check_period_ms": 1000,
    "health_check_timeout_ms": 1000,
    "health_check_failure_threshold": 3,
}
STORE = 200 << 20
_numbers = itertools.count()


def set_environment(folder: str) -> None:
    """Before ray is imported: 127.0.0.1 alone, and a folder of its own.

    Sites have the priority of this process (Ray's default is niceness 15), and find
    compiled modules, as where Corral is installed.
    """
    os.environ.update(
        RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER="0",
        RAY_TMPDIR=folder,
        RAY_AUTH_MODE=os.environ.get("RAY_AUTH_MODE", "disabled"),
        RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO="0",
        RAY_USAGE_STATS_ENABLED="0",
        RAY_prestart_worker_first_driver="0",
        RAY_worker_niceness="0",
    )
    for name in ("RAY_ADDRESS", "PYTHONDONTWRITEBYTECODE"):
        os.environ.pop(name, None)


@contextmanager
def raylets(count=3, cpus=2, in_head=False):
    """Raylets and a head, which may be one of them; ended with all that they started.

    A driver ends with the raylet of the head, so tests that kill raylets have one more.
    """
    folder = tempfile.mkdtemp(prefix="corral-ray-", dir="/tmp")
    set_environment(folder)
    from ray.cluster_utils import Cluster

    head = {
        "num_cpus": cpus if in_head else 0,
        "include_dashboard": False,
        "no_monitor": True,
        "object_store_memory": STORE,
        "_system_config": SETTINGS,
    }
    cluster = Cluster(initialize_head=True, head_node_args=head)
    try:
        for _ in range(count - in_head):
            add_node(cluster, cpus)
        cluster.wait_for_nodes()
        yield cluster
    finally:
        import ray

        ray.shutdown()
        cluster.shutdown()
        end_all(folder)
        shutil.rmtree(folder, ignore_errors=True)


def add_node(cluster, cpus=2, **options):
    """Add a raylet whose folders are its own, as those of another machine are.

    Ray unpacks a working directory anew for each raylet: in a folder that they share,
    it would remove what processes of the others run in.
    """
    own = f"runtime_resources_{next(_numbers)}"
    given = {"object_store_memory": STORE, "wait": False, "runtime_env_dir_name": own}
    given |= options
    return cluster.add_node(num_cpus=cpus, **given)


def end_all(folder: str) -> None:
    """Whatever of this cluster is left."""
    for process in psutil.process_iter(["pid", "cmdline"]):
        if any(folder in part for part in process.info["cmdline"] or ()):
            with _gone():
                process.kill()


@contextmanager
def _gone():
    try:
        yield
    except psutil.Error:
        pass


def raylet_of(pid: int) -> psutil.Process:
    """The raylet whose actor this process is."""
    return psutil.Process(pid).parent()


def tree_of(pid: int) -> list[psutil.Process]:
    process = psutil.Process(pid)
    return [process, *process.children(recursive=True)]


def seconds_until_gone(processes, limit=10.0) -> float:
    began = time.monotonic()
    while any(_alive(one) for one in processes):
        if time.monotonic() - began > limit:
            raise AssertionError(f"still there: {[p for p in processes if _alive(p)]}")
        time.sleep(0.02)
    return time.monotonic() - began


def _alive(process: psutil.Process) -> bool:
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def run_script(text: str, folder: Path, **env: str | None) -> subprocess.Popen[str]:
    """Run a driver, with these variables; None for one that is not set."""
    import sys

    script = folder / "driver.py"
    script.write_text(text)
    here = str(Path(__file__).parent)
    paths = os.pathsep.join([here, os.environ.get("PYTHONPATH", "")])
    given = {**os.environ, "PYTHONPATH": paths, **env}
    environ = {key: value for key, value in given.items() if value is not None}
    return subprocess.Popen(
        [sys.executable, str(script)], stdout=subprocess.PIPE, text=True, env=environ
    )


KILL, STOP = signal.SIGKILL, signal.SIGSTOP
