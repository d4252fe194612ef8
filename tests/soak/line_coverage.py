"""Which lines the tests run, those that run in worker processes included.

    python -m tests.soak.line_coverage                     all tests
    python -m tests.soak.line_coverage tests/rollouts      some of them

Needs `pip install coverage` (7.10 or newer), which nothing else does. A worker that is
killed takes what it has counted with it, so lines that only such workers run are not
seen. Prints covered and existing lines per room; pytest's own output comes first.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections import defaultdict
from collections.abc import Generator
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
SETTINGS = """
[run]
source_pkgs = corral
parallel = true
data_file = {folder}/data
patch = subprocess, _exit
disable_warnings = no-data-collected, module-not-measured, already-imported
"""


def main() -> int:
    """Run tests, then report; returns pytest's exit code."""
    tests = sys.argv[1:] or ["tests", "-n", "2", "--dist", "worksteal"]
    with tempfile.TemporaryDirectory() as folder:
        settings = Path(folder, "settings")
        settings.write_text(SETTINGS.format(folder=folder))
        rc = f"--rcfile={settings}"
        code = coverage(
            *("run", rc, "-m", "pytest", "-q", "-p", "no:cacheprovider"),
            *("-p", __spec__.name, *tests),
        )
        coverage("combine", rc, "-q")
        report = Path(folder, "report.json")
        coverage("json", rc, "-q", "-o", str(report))
        print_rooms(json.loads(report.read_text())["files"])
    return code


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol() -> Generator[None, Any, Any]:
    """A plugin: go on counting after a test of a debugger, which ends that."""
    tracer = sys.gettrace()
    try:
        return (yield)
    finally:
        sys.settrace(tracer)


def coverage(*arguments: str) -> int:
    """Run its command line; the exit code."""
    command = [sys.executable, "-m", "coverage", *arguments]
    environ = {**os.environ, "PYTHONPATH": str(ROOT / "src")}
    return subprocess.run(command, cwd=ROOT, env=environ).returncode


def print_rooms(files: dict[str, dict[str, dict[str, int]]]) -> None:
    """One line for each folder of src/corral, and one for all."""
    rooms: dict[str, list[int]] = defaultdict(lambda: [0, 0])
    for name, found in files.items():
        _, _, path = name.rpartition("src/corral/")
        for room in (str(Path(path).parent), "all"):
            rooms[room][0] += found["summary"]["covered_lines"]
            rooms[room][1] += found["summary"]["num_statements"]
    for room, (covered, lines) in sorted(rooms.items()):
        print(
            f"{100 * covered / max(1, lines):6.2f} %  {covered:6} of {lines:6}  {room}"
        )


if __name__ == "__main__":
    sys.exit(main())
