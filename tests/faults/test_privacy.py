"""What a pool and its workers share has no name, and nobody else can get at it.

So nothing that another user has written is ever unpickled: what arrives by mailbox or
log pipe was written by a process that inherited its other end.
"""

from __future__ import annotations

import os
import socket
import stat
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
from running import ENV, Script

# A pool with all that it can have: shared arrays, deadlines, logging, a worker that has
# been replaced, questions and answers.
POOL = """
import corral, logging, signal

class Busy(Env):
    def step(self, action):
        logging.getLogger("ranch").warning("neigh")
        return *super().step(action)[:4], {"odd": object, "text": "hay"}

secret = open("secret", "w")
os.set_inheritable(secret.fileno(), True)
pool = corral.Pool(
    Busy, 2, backend="process", workers=2, shared={"prices": np.ones(1000)},
    on_fault="restart", step_timeout=60, start_timeout=60,
)
pool.reset()
os.kill(pool.call("pid")[0], signal.SIGKILL)
pool.step([0, 0])
pool.call("pid")
print("ready", flush=True)
input()
"""


@pytest.fixture(params=["0", "1"], ids=["C", "twins"], scope="module")
def folder(request, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the program is; its name says whether it has the C parts."""
    folder = tmp_path_factory.mktemp(f"pure{request.param}-")
    (folder / "tmp").mkdir()
    (folder / "script.py").write_text(ENV + POOL)
    return folder


@pytest.fixture(scope="module")
def family(folder: Path) -> Iterator[list[psutil.Process]]:
    """The processes of a pool at work: a parent and two workers."""
    pure = folder.name.removeprefix("pure")[0]
    environ = {"CORRAL_PURE_PYTHON": pure, "TMPDIR": str(folder / "tmp")}
    command = [sys.executable, "script.py"]
    script = Script(command, stdin="done\n", cwd=folder, environ=environ)
    assert script.line() == "ready"
    processes = script.family()
    assert len(processes) == 3
    yield processes
    script.finish()


def descriptors(process: psutil.Process) -> Iterator[tuple[Path, str]]:
    """What a process holds, beside what it got from us: its standard streams."""
    for path in Path(f"/proc/{process.pid}/fd").iterdir():
        if int(path.name) > 2:
            yield path, os.readlink(path)


def test_no_socket_has_an_address(family):
    for process in family:
        assert process.net_connections("inet") == []
        sockets = process.net_connections("unix")
        assert sockets and {(s.laddr, s.raddr) for s in sockets} == {("", "")}
        assert {s.type for s in sockets} == {socket.SOCK_STREAM}


def test_no_file_has_a_name(family, folder: Path):
    assert not list((folder / "tmp").iterdir())
    for process in family:
        kinds = Counter(link.partition(":")[0] for _, link in descriptors(process))
        named = kinds.keys() - {"pipe", "socket", "anon_inode", "/memfd"}
        parent = process.ppid() == os.getpid()
        assert named == ({str(folder / "secret")} if parent else set())
        assert "/dev/shm" not in Path(f"/proc/{process.pid}/maps").read_text()


def test_memory_is_its_owners_alone(family):
    for process in family:
        modes = {
            stat.S_IMODE(path.stat().st_mode)
            for path, link in descriptors(process)
            if link.startswith("/memfd:")
        }
        assert modes == {0o600}


def test_worker_inherits_what_it_was_given_and_nothing_else(family):
    """Not even what the parent has opened for its children, as `secret` is."""
    for process in family:
        if process.ppid() != os.getpid():
            kinds = Counter(link.partition("[")[0] for _, link in descriptors(process))
            assert kinds["socket:"] == 1  # its mailbox
            assert kinds["pipe:"] == 2  # lifeline and log
