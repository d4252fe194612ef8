"""What the tests of several rooms share: scripts, run for real."""

from __future__ import annotations

import gc
import signal
import sys
import textwrap
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any

import prepared_workers
import pytest
from absent import pytest_addoption, pytest_configure  # noqa: F401
from prepared_scripts import ENGINE, ScriptTemplate
from prepared_workers import Templates
from running import ENV, Script, environment
from undrawn import hurried, undrawn

from corral.engine.executors import spawn
from corral.engine.worker import serialization

FRESH_WORKERS = (
    "engine/executors/test_kinds_of_parent_program",
    "engine/executors/test_openmp",
    "engine/executors/test_start_errors",
    "engine/transport",
    "faults/test_nothing_left_behind",
    "faults/test_privacy",
)
"""Tests of how workers start, what they begin with and what they leave."""
FORKED_PROGRAMS = (
    "engine/worker/test_serialization",
    "faults/test_closing",
    "faults/test_nothing_left_behind",
)
"""Tests with many programs: they begin where their imports end."""
MANY_MODULES = 100
"""To look through them for garbage takes longer than most tests."""
_frozen_modules = 0
BENCHMARKS = ("cli/test_bench", "tools/bench/test_candidate", "tools/bench/test_compar")
"""Tests of benchmarks, whose candidates have as many threads as they like."""
MODULES = (
    *("gymnasium.envs.classic_control", "hypothesis", "pytest"),
    *("corral.rollouts.collector", "corral.rollouts.workers_filling"),
    *("corral.tools.bench.candidate_env", "corral.tools.doctor.neighbours"),
    "corral.tools.doctor.subject",
)
"""What workers of many tests import, since the modules of these envs do."""
LEARNERS = (*MODULES, "corral.learners.ppo", "onnxruntime")
POLICIES = {
    "contracts/test_sites": LEARNERS,
    "learners": LEARNERS,
    "rollouts/test_act_in_workers": LEARNERS,
    "train/run": LEARNERS,
    "zoo/meta": LEARNERS,
    "zoo/test_box_jump_recipe": LEARNERS,
    "zoo/tinyphysics": LEARNERS,
}
"""Tests whose workers import what policies or a simulator need, too."""
DRAWN = ("tools", "train/reports", "train/run/test_report_pictures")
"""Tests of pictures."""

# As in a shell's background job, or under nohup; what tests start would inherit it.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
if signal.getsignal(signal.SIGHUP) is signal.SIG_IGN:
    signal.signal(signal.SIGHUP, signal.SIG_DFL)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """What takes longest runs beside the others, rather than after them."""
    items.sort(key=lambda item: item.get_closest_marker("first") is None)


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """What is imported stays: to look for garbage meanwhile takes a tenth longer."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.enable()


def pytest_collection_finish() -> None:
    """All tests are imported: now they and their workers need less time."""
    _freeze_imports()
    # Workers get our path, and would look in each of these before all other places.
    tests = str(Path(__file__).parent)
    sys.path.sort(key=lambda entry: entry.startswith(tests))


@pytest.hookimpl(trylast=True)
def pytest_runtest_teardown(item: pytest.Item, nextitem: pytest.Item | None) -> None:
    """Between two files: those after the one that imported a lot go on as fast."""
    same = nextitem is not None and nextitem.path == item.path
    if not same and len(sys.modules) > _frozen_modules + MANY_MODULES:
        _freeze_imports()


def _freeze_imports() -> None:
    """Many tests look for garbage; none is among what was imported for the others."""
    global _frozen_modules
    gc.collect()
    gc.freeze()
    _frozen_modules = len(sys.modules)


@pytest.fixture(scope="session", autouse=True)
def no_saved_verdicts(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Tests do not read the verdicts about envs that the user has saved."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("CORRAL_VERDICTS", str(tmp_path_factory.getbasetemp() / "none"))
        yield


@pytest.fixture(scope="session", autouse=True)
def a_key_of_their_own(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Tests neither use nor create the user's key."""
    folder = tmp_path_factory.mktemp("private")
    folder.chmod(0o700)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("CORRAL_KEY", str(folder / "key"))
        yield


@pytest.fixture(scope="session", autouse=True)
def a_register_of_their_own(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Runs of tests are not added to the user's register of runs."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("CORRAL_RUNS", str(tmp_path_factory.getbasetemp() / "runs"))
        yield


@pytest.fixture(scope="session")
def worker_templates() -> Iterator[Templates]:
    """Fork workers that have done their imports; see `prepared_workers`."""
    templates = Templates(spawn._popen, spawn.interpreter)
    yield templates
    templates.close()


@pytest.fixture(scope="module", autouse=True)
def forked_workers_of_fixtures(
    request: pytest.FixtureRequest, worker_templates: Templates
) -> Iterator[None]:
    """Workers of what a module has made for all its tests are forked as theirs are."""
    with _forked(_below_tests(request), worker_templates):
        yield


@pytest.fixture(autouse=True)
def forked_workers(
    request: pytest.FixtureRequest, worker_templates: Templates
) -> Iterator[None]:
    """Workers are forked from a template, but where their start is the matter."""
    if request.node.get_closest_marker("fresh_workers") is not None:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(spawn, "_popen", worker_templates.fresh)
            yield
        return
    with _forked(_below_tests(request), worker_templates):
        yield


@contextmanager
def _forked(file: str, templates: Templates) -> Iterator[None]:
    if file.startswith(FRESH_WORKERS) or not prepared_workers.are_possible():
        yield
        return
    threads = None if file.startswith(BENCHMARKS) else 1
    environ = serialization.environment(threads, device=None)
    fitting = (POLICIES[one] for one in POLICIES if file.startswith(one))
    template = templates.for_environment(environ, next(fitting, MODULES))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(spawn, "_popen", template.popen)
        yield


def _below_tests(request: pytest.FixtureRequest) -> str:
    return request.path.relative_to(Path(__file__).parent).as_posix()


@pytest.fixture(scope="module", autouse=True)
def quick_runs_of_fixtures(request: pytest.FixtureRequest) -> Iterator[None]:
    """Runs that a module has made for all its tests are as quick as theirs."""
    with _quick(_below_tests(request)):
        yield


@pytest.fixture(autouse=True)
def quick_runs(request: pytest.FixtureRequest) -> Iterator[None]:
    """Runs do not measure speeds for long, and draw pictures where these matter."""
    with _quick(_below_tests(request)):
        yield


@contextmanager
def _quick(file: str) -> Iterator[None]:
    with hurried(), nullcontext() if file.startswith(DRAWN) else undrawn():
        yield


@pytest.fixture(scope="module")
def programs() -> Iterator[ScriptTemplate]:
    """Forks programs that have done their imports; see `prepared_scripts`."""
    template = ScriptTemplate(environ=environment(), modules=ENGINE)
    yield template
    template.close()


@pytest.fixture
def start(
    request: pytest.FixtureRequest, tmp_path: Path
) -> Iterator[Callable[..., Script]]:
    """Start Python on a script written to tmp_path, or as `arguments` say."""
    scripts: list[Script] = []
    file = _below_tests(request)
    fresh = request.node.get_closest_marker("fresh_workers") is not None
    template = None
    if (
        file.startswith(FORKED_PROGRAMS)
        and not fresh
        and prepared_workers.are_possible()
    ):
        template = request.getfixturevalue("programs")

    def start_one(
        code: str,
        *flags: str,
        arguments: Sequence[str] | None = None,
        stdin: str | None = None,
        **options: Any,
    ) -> Script:
        path = tmp_path / "script.py"
        path.write_text(ENV + textwrap.dedent(code))
        command = [sys.executable, *flags, *(arguments or [str(path)])]
        options.setdefault("cwd", tmp_path)
        plain = len(command) == 2 and options == {"cwd": tmp_path}
        chosen = template if plain else None
        scripts.append(Script(command, stdin, chosen, **options))
        return scripts[-1]

    yield start_one
    for script in scripts:
        script.process.kill()
        if script.process.stdout is not None and not script.process.stdout.closed:
            script.process.communicate()
        for process in script.family():
            process.kill()


@pytest.fixture
def run(start: Callable[..., Script]) -> Callable[..., str]:
    """Run a script to its end; returns what it printed."""

    def run_one(code: str, *flags: str, **options: Any) -> str:
        return start(code, *flags, **options).finish()

    return run_one
