"""Programs that begin where their imports end, and so do their workers.

Importing Gymnasium and Corral takes a third of a second of CPU time, torch and
Stable-Baselines3 take two; that is most of what an example in a guide costs. A template
process imports them once, and forks the programs, as `prepared_workers` does workers:

    tests ── Popen ──► template: imports
      │                    └── fork ──► program ── fork ──► template of its workers
      └── is its parent                    └── is the parent of the workers

A program has its own session, descriptors, directory and environment, and `__main__` is
its file. What a test says about how programs start, it says with a fresh one. Programs
that `run` returns the output of end without taking apart what they have imported.
"""

from __future__ import annotations

import atexit
import importlib
import os
import socket
import subprocess
import sys
import threading
import traceback
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from types import CodeType
from typing import Any, NoReturn

import prepared_workers
from prepared_workers import ForkedProcess, Forker

from corral.engine.worker import serialization

_TEMPLATE = (
    "import sys; "
    "sys.path.append(sys.argv[2]); "
    "import prepared_scripts; "
    "prepared_scripts.run_next(int(sys.argv[1]), sys.argv[3:])"
)
LEARNERS = (
    *("corral.learners.ppo", "stable_baselines3.common.env_util"),
    "torch._dynamo",  # which the first optimiser imports
)
ENGINE = ("gymnasium", "corral", "corral.engine.pool.pool", "corral.engine.worker.main")


# The tests' side ----------------------------------------------------------------------


class ScriptTemplate:
    """Runs scripts that find these modules imported, unless these are not there."""

    def __init__(self, *flags: str, environ: dict[str, str], modules: Iterable[str]):
        self._command = [sys.executable, *flags]
        self._environ = environ
        self._modules = modules
        self._forker: Forker | None = None

    def run(self, path: Path, seconds: float) -> subprocess.CompletedProcess[str]:
        """Run a script to its end, in its own directory."""
        command = [*self._command, str(path)]
        if prepared_workers.are_possible():
            process = self.fork(path, self._environ, ends="at once")
        else:
            process = subprocess.Popen(
                command,
                cwd=path.parent,
                env=self._environ,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
            )
        try:
            stdout, stderr = process.communicate(timeout=seconds)
        except BaseException:
            process.kill()
            process.wait()
            raise
        return subprocess.CompletedProcess(command, process.returncode, stdout, stderr)

    def fork(
        self, path: Path, environ: dict[str, str], ends: str = "as a fresh one"
    ) -> subprocess.Popen[str]:
        """Start a script, in its own directory."""
        if self._forker is None:
            here = os.path.dirname(__file__)
            self._forker = Forker(
                self._command, _TEMPLATE, here, *self._modules, environ=self._environ
            )
        (stdin, write), *outputs = os.pipe(), os.pipe(), os.pipe()
        ours, theirs = zip(*outputs, strict=True)
        request = {
            "script": str(path),
            "environ": environ,
            "descriptors": [0, 1, 2],
            "affinity": os.sched_getaffinity(0),
            "directory": str(path.parent),
            "ends": ends,
        }
        pid = self._forker.fork(request, [stdin, *theirs])
        for descriptor in (stdin, *theirs):
            os.close(descriptor)
        return ForkedProcess([*self._command, str(path)], pid, ours, write)

    def close(self) -> None:
        """End the template."""
        if self._forker is not None:
            self._forker.close()


# The template's side ------------------------------------------------------------------


def run_next(descriptor: int, modules: Iterable[str]) -> None:
    """Fork a process for each request; in that process, run the script."""
    for module in modules:
        with suppress(ModuleNotFoundError):
            importlib.import_module(module)
    del sys.path[-1]
    request = prepared_workers.next_process(descriptor)
    path = Path(request["script"])
    sys.argv[:] = [str(path)]
    # "" is where the code of `-c` is looked for.
    sys.path[:] = [str(path.parent), *filter(None, sys.path)]
    prepare_workers()
    main = vars(sys.modules["__main__"])
    for name in [name for name in main if not name.startswith("__")]:
        del main[name]
    main["__file__"] = str(path)
    program = compile(path.read_text(), path, "exec", dont_inherit=True)
    if request["ends"] == "at once":
        _run_and_end(program, main)
    exec(program, main)


def _run_and_end(program: CodeType, main: dict[str, Any]) -> NoReturn:
    try:
        exec(program, main)
    except Exception:
        traceback.print_exc()
        prepared_workers.end(1)
    prepared_workers.end(0)


def prepare_workers() -> None:
    """Fork a template of workers, before this becomes a program like any other."""
    from corral.engine.executors import spawn

    environ = serialization.environment(threads=1, device=None)
    template = _OwnTemplate(spawn._popen, spawn.interpreter, environ)
    spawn._popen = template.popen


class _OwnForker(Forker):
    """A fork of this very process, with nothing of it but its imports."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._socket, theirs = socket.socketpair()
        self._pid = os.fork()
        if self._pid == 0:
            self._socket.close()
            os.setsid()  # what is meant for the program does not reach it
            prepared_workers.show_mark(prepared_workers.NO_MARK)
            nothing = os.open(os.devnull, os.O_RDWR)
            for number in (0, 1, 2):
                os.dup2(nothing, number)
            from corral.engine.worker.main import main

            main(**prepared_workers.next_worker(theirs.detach()))
            prepared_workers.end(0)
        theirs.close()
        atexit.register(self.close)

    def close(self) -> None:
        self._socket.close()
        os.waitpid(self._pid, 0)


class _OwnTemplate(prepared_workers.Template):
    """The template of one program's workers."""

    def _forker_of(self, environ: Any) -> Forker:
        return _OwnForker()
