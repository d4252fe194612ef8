"""Imports go down only, as drawn in ARCHITECTURE.md."""

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parent.parent


def test_imports_go_down_only():
    command = "from importlinter.cli import lint_imports_command as run; run()"
    result = subprocess.run(
        [sys.executable, "-c", command, "--no-cache"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert result.returncode == 0, result.stdout + result.stderr
