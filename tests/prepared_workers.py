"""Worker processes that begin where their imports end, for a tenth of the CPU time.

A fresh worker imports numpy, Gymnasium and our engine before its first message: 0.2 s
of CPU time, most of what a test of a pool costs. A template process imports the same
once, and a fork of it goes on where the imports of a fresh worker would have ended.
It has imported pytest as well, as the tests' own modules do; and where workers have
policies, a second template has imported torch, which takes more than a second:

    tests ── Popen ──► template: imports what `worker.main.BOOTSTRAP` imports
      │                    └── fork ──► worker: main(...)
      └── is the parent of the worker ────┘

The worker is a process as any other: its own session, descriptors, directory,
environment and affinity; a child of the test process, killed and reaped as one. All of
them hash text alike, which no two fresh ones do. A start that the imports could tell
from the template's (other flags, paths or environment variables) is a fresh one. So is
every start of the tests marked `fresh_workers`, of those in conftest.FRESH_WORKERS, and
of all tests with CORRAL_TESTS_FRESH_WORKERS=1.
"""

from __future__ import annotations

import array
import atexit
import ctypes
import fcntl
import gc
import importlib
import os
import pickle
import platform
import signal
import socket
import subprocess
import sys
import threading
import weakref
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any, NoReturn

import numpy as np

from corral.engine.worker import serialization

SWITCH = "CORRAL_TESTS_FRESH_WORKERS"
NO_MARK = 32 * "0"
"""In the place of a mark as those of `running.Script`."""
_PR_SET_CHILD_SUBREAPER = 36
_CLONE = {"x86_64": 56, "aarch64": 220}.get(platform.machine())
_CLONE_PARENT = 0x8000
_NUMBER_BYTES = 8
_MAX_DESCRIPTORS = 64
_UNREAD_BY_IMPORTS = (
    *("CORRAL_KEY", "CORRAL_RUNS", "CORRAL_VERDICTS", "CORRAL_WORKER"),
    *("EGL_DEVICE_ID", "MUJOCO_EGL_DEVICE_ID", "MUJOCO_GL", "PYTEST_"),
    *("SDL_AUDIODRIVER", "SDL_VIDEODRIVER", "TORCHINDUCTOR_CACHE_DIR"),
)
"""Environment variables that differ from test to test, and that no import reads."""
_IMPORTED = sys.stdlib_module_names | {
    *("cloudpickle", "corral", "farama_notifications", "gymnasium", "numpy"),
    *("onnxruntime", "sitecustomize", "torch", "typing_extensions", "usercustomize"),
}
_TEMPLATE = (
    "import sys; "
    "sys.path[:] = eval(sys.argv[2]); "
    "from corral.engine.worker.main import main; "
    "sys.path.append(sys.argv[3]); "
    "from prepared_workers import end, import_all, next_worker; "
    "import_all(sys.argv[4:]); "
    "main(**next_worker(int(sys.argv[1]))); "
    "end(0)"
)


# The tests' side ----------------------------------------------------------------------

TEMPLATE_PIDS: set[int] = set()
"""The children of this process that are no test's."""


def are_possible() -> bool:
    """Whether this system can do it, and nobody asked for fresh workers."""
    return sys.platform == "linux" and SWITCH not in os.environ


class Templates:
    """The templates that fit what the tests have made of their environment.

    Libraries set variables when they are imported, so they are others now and then.
    """

    def __init__(
        self,
        fresh: Callable[..., subprocess.Popen[bytes]],
        interpreter: Callable[[], list[str]],
    ) -> None:
        self.fresh = fresh
        self._interpreter = interpreter
        self._templates: list[Template] = []

    def for_environment(
        self, environ: dict[str, str], modules: tuple[str, ...] = ()
    ) -> Template:
        """The one that was started with these variables, and imports these too."""
        for template in self._templates:
            if template.modules == modules and template.was_started_with(environ):
                return template
        template = Template(self.fresh, self._interpreter, environ, modules)
        self._templates.append(template)
        return template

    def close(self) -> None:
        """End them."""
        while self._templates:
            self._templates.pop().close()


class Forker:
    """A process that forks others, on request, which are our children."""

    def __init__(
        self, command: Sequence[str], code: str, *arguments: str, environ: Any
    ) -> None:
        self._lock = threading.Lock()
        self._socket, theirs = socket.socketpair()
        with theirs:
            number = str(theirs.fileno())
            self._process = subprocess.Popen(
                [*command, "-c", code, number, *arguments],
                stdin=subprocess.DEVNULL,
                pass_fds=[theirs.fileno()],
                env=environ,
                start_new_session=True,
            )
        TEMPLATE_PIDS.add(self._process.pid)

    def fork(self, request: Any, descriptors: list[int]) -> int:
        """The id of a new process."""
        data = pickle.dumps(request)
        rights = (socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", descriptors))
        with self._lock:
            mask = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
            # An orphan goes to the nearest ancestor that takes orphans: for now, to us.
            _take_orphans(True)
            try:
                self._socket.sendmsg([_packed(len(data))], [rights])
                self._socket.sendall(data)
                return _number(_read(self._socket, _NUMBER_BYTES))
            finally:
                _take_orphans(False)
                signal.pthread_sigmask(signal.SIG_SETMASK, mask)

    def close(self) -> None:
        """End it."""
        self._socket.close()
        self._process.wait()
        TEMPLATE_PIDS.discard(self._process.pid)


class Template:
    """Forks workers, in the place of `spawn._popen`, which is `fresh`."""

    def __init__(
        self,
        fresh: Callable[..., subprocess.Popen[bytes]],
        interpreter: Callable[[], list[str]],
        environ: dict[str, str],
        modules: Sequence[str] = (),
    ) -> None:
        self._fresh = fresh
        self._interpreter = interpreter
        self.modules = modules
        self._command = interpreter()
        self._environ = _read_by_imports(environ)
        self._path = serialization.absolute_path()
        self._forker = self._forker_of(environ)

    def popen(self, arguments: list[str], **options: Any) -> subprocess.Popen[bytes]:
        """Start a worker."""
        if not self._fits(arguments[0], options["env"]):
            return self._fresh(arguments, **options)
        with open(os.devnull, "rb") as nothing:
            standard = [nothing.fileno(), options["stdout"], options["stderr"]]
            request = {
                "argv": arguments,
                "environ": options["env"],
                "descriptors": [0, 1, 2, *options["pass_fds"]],
                "affinity": os.sched_getaffinity(0),
                "directory": os.getcwd(),
            }
            pid = self._forker.fork(request, [*standard, *options["pass_fds"]])
        return ForkedProcess(arguments, pid)

    def _forker_of(self, environ: dict[str, str]) -> Forker:
        here = os.path.dirname(__file__)
        path = ascii(self._path)
        arguments = path, here, *self.modules
        return Forker(self._command, _TEMPLATE, *arguments, environ=environ)

    def was_started_with(self, environ: dict[str, str]) -> bool:
        """Whether imports could tell these variables from the template's."""
        return _read_by_imports(environ) == self._environ

    def _fits(self, path: str, environ: dict[str, str]) -> bool:
        return (
            self._imports_the_same(eval(path))
            and self.was_started_with(environ)
            and self._interpreter() == self._command
            and os.path.exists(".")
        )

    def _imports_the_same(self, path: list[str]) -> bool:
        """Whether folders came before the template's path that hide none of it."""
        added = len(path) - len(self._path)
        return path[added:] == self._path and not any(map(_hides, path[:added]))

    def close(self) -> None:
        """End the template."""
        self._forker.close()


class ForkedProcess(subprocess.Popen):  # type: ignore[type-arg]
    """A child of ours that another process has forked."""

    def __init__(
        self,
        arguments: list[str],
        pid: int,
        output: Sequence[int] = (),
        stdin: int | None = None,
    ) -> None:
        self.args = arguments
        self.pid = pid
        self.returncode: Any = None
        self.stdin = self.stdout = self.stderr = None
        if output:
            self.stdout, self.stderr = (os.fdopen(number) for number in output)
        if stdin is not None:
            self.stdin = os.fdopen(stdin, "w")
        self.text_mode = True
        self._child_created = True
        self._communication_started = False
        self._input = None
        self._waitpid_lock = threading.Lock()


def _read_by_imports(environ: dict[str, str]) -> dict[str, str]:
    return {
        name: value
        for name, value in environ.items()
        if not name.startswith(_UNREAD_BY_IMPORTS)
    }


def _hides(folder: str) -> bool:
    """Whether a module in a folder has the name of one that workers import."""
    names = os.listdir(folder) if os.path.isdir(folder) else [folder]
    return not _IMPORTED.isdisjoint(name.partition(".")[0] for name in names)


def _take_orphans(whether: bool) -> None:
    ctypes.pythonapi.prctl(_PR_SET_CHILD_SUBREAPER, int(whether), 0, 0, 0)


# The template's side ------------------------------------------------------------------


def import_all(modules: Sequence[str]) -> None:
    """Import what is installed of these."""
    for name in modules:
        with suppress(ImportError):
            importlib.import_module(name)


def next_worker(descriptor: int) -> dict[str, Any]:
    """Fork a worker for each request; returns in the worker, with what `main` takes."""
    request = next_process(descriptor)
    sys.argv[1:] = request["argv"]
    sys.path[:] = eval(sys.argv[1])
    arguments: dict[str, Any] = eval(sys.argv[2])
    return arguments


def next_process(descriptor: int) -> dict[str, Any]:
    """Fork a process for each request; returns in that process, with the request."""
    requests = socket.socket(fileno=descriptor)
    # Else every process would copy these pages when it collects or ends.
    gc.freeze()
    for one in list(weakref.finalize._registry):  # type: ignore[attr-defined]
        one.atexit = False
    while True:
        length, received, *_ = socket.recv_fds(
            requests, _NUMBER_BYTES, _MAX_DESCRIPTORS
        )
        if not length:
            os._exit(0)
        request: dict[str, Any] = pickle.loads(_read(requests, _number(length)))
        if (pid := _fork_for_parent()) == 0:
            requests.detach()
            _become(request, received)
            return request
        for number in received:
            os.close(number)
        requests.sendall(_packed(pid))


def end(code: int) -> NoReturn:
    """End as a process that takes what it has imported apart, without doing so."""
    threading._shutdown()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError, ValueError):
            stream.flush()
    os._exit(code)


def _fork_for_parent() -> int:
    """Fork a process that is our parent's child: its id, or 0 in that process."""
    if _CLONE is None or len(os.listdir("/proc/self/task")) > 1:
        # Libraries with threads mend them after a fork by the C library, which this
        # is not.
        return _fork_orphan()
    python = ctypes.pythonapi
    python.PyOS_BeforeFork()
    pid: int = python.syscall(_CLONE, _CLONE_PARENT | signal.SIGCHLD, 0, 0, 0, 0)
    if pid == 0:
        python.PyOS_AfterFork_Child()
        return 0
    python.PyOS_AfterFork_Parent()
    assert pid > 0, "the system refuses another process"
    return pid


def _fork_orphan() -> int:
    """Fork a process whose parent has ended: its id, or 0 in that process."""
    reader, writer = os.pipe()
    between = os.fork()
    if between == 0:
        orphan = os.fork()
        if orphan == 0:
            return 0
        os.write(writer, _packed(orphan))
        os._exit(0)
    os.waitpid(between, 0)
    pid = _number(os.read(reader, _NUMBER_BYTES))
    os.close(reader)
    os.close(writer)
    return pid


def _become(request: dict[str, Any], received: list[int]) -> None:
    """Become what Popen would have made of a new process."""
    os.setsid()
    wanted: list[int] = request["descriptors"]
    above = max(*wanted, *received) + 1
    moved = [fcntl.fcntl(number, fcntl.F_DUPFD, above) for number in received]
    os.closerange(0, above)
    for number, target in zip(moved, wanted, strict=True):
        os.dup2(number, target)
        os.close(number)
    os.sched_setaffinity(0, request["affinity"])
    os.chdir(request["directory"])
    os.environ.clear()
    os.environ.update(request["environ"])
    show_mark(request["environ"].get("TEST_MARK", NO_MARK))
    np.random.seed()  # as `random` does by itself


def show_mark(mark: str) -> None:
    """Show others this TEST_MARK, where a fork has that of its template, if any."""
    with open("/proc/self/stat") as file:
        first, last = map(int, file.read().rpartition(")")[2].split()[47:49])
    with open("/proc/self/mem", "r+b") as memory:
        memory.seek(first)
        before, name, _ = memory.read(last - first).partition(b"TEST_MARK=")
        if name:
            memory.seek(first + len(before + name))
            memory.write(mark.encode())


# Both sides ---------------------------------------------------------------------------


def _packed(number: int) -> bytes:
    return number.to_bytes(_NUMBER_BYTES, "little")


def _number(data: bytes) -> int:
    return int.from_bytes(data, "little")


def _read(source: socket.socket, length: int) -> bytes:
    data = b""
    while len(data) < length:
        part = source.recv(length - len(data))
        if not part:
            raise EOFError("the template of workers, or its test process, has ended")
        data += part
    return data
