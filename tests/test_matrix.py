"""The matrix leaves out what needs absent packages, and names absent Pythons."""

import subprocess
import sys
from pathlib import Path

import matrix
import pytest

TESTS = """
import subprocess, sys
import pytest

def test_here():
    import no_such_package_x.part

def test_in_a_process():
    command = [sys.executable, "-c", "import no_such_package_x"]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr

def test_of_another_package():
    import no_such_package_y

def test_that_fails():
    assert 1 == 2

def test_that_passes():
    pass
"""


def run(folder: Path, *arguments: str) -> tuple[int, str]:
    command = [sys.executable, "-m", "pytest", "-q", "-rs", "-p", "absent"]
    done = subprocess.run(
        [*command, "-p", "no:cacheprovider", *arguments, str(folder)],
        capture_output=True,
        text=True,
        cwd=folder,
        env={
            **matrix.os.environ,
            "PYTHONPATH": str(Path(__file__).parent),
            "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",
        },
    )
    return done.returncode, done.stdout + done.stderr


def test_what_fails_for_want_of_an_absent_package_is_skipped(tmp_path):
    (tmp_path / "test_some.py").write_text(TESTS)
    (tmp_path / "test_module.py").write_text("import no_such_package_x\n")
    status, out = run(tmp_path, "--without=no_such_package_x,no_such_package_z")
    assert status == 1
    assert "2 failed, 1 passed, 3 skipped" in out
    assert out.count("no_such_package_x is not installed") >= 1


def test_nothing_is_skipped_unless_asked(tmp_path):
    (tmp_path / "test_some.py").write_text(TESTS)
    _, out = run(tmp_path)
    assert "4 failed, 1 passed" in out


def test_what_is_installed_cannot_be_left_out(tmp_path):
    status, out = run(tmp_path, "--without=numpy")
    assert status == pytest.ExitCode.USAGE_ERROR
    assert "--without: numpy can be imported" in out


def test_a_python_that_is_not_there_is_named(capsys):
    assert matrix.main(["3.98", "3.99"]) == 1
    out = capsys.readouterr().out.split("\n")
    assert [line for line in out if line] == [
        "Python 3.98: not found",
        "Python 3.99: not found",
    ]


def test_this_python_is_found(monkeypatch):
    version = f"{sys.version_info[0]}.{sys.version_info[1]}"
    monkeypatch.setattr(matrix.shutil, "which", lambda name: sys.executable)
    assert matrix.interpreter(version) == sys.executable
    assert matrix.interpreter("3.99") is None  # a shim that runs another one
