"""The Python twins pass what the C parts pass: the same tests, run without C."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from corral.engine.transport import doorbell
from corral.engine.worker import compiled

HERE = Path(__file__).parent
PURE = os.environ.get("CORRAL_PURE_PYTHON") == "1"
# Where the slots run matters here, not how many workers there can be; and no part that
# is in C knows of global generators or simulators.
COUNTS = [f"{backend}-{count}" for backend in ("thread", "process") for count in "134"]
LEFT_OUT = " or ".join([*COUNTS, "generators", "ant"])


def test_the_choice_of_twins_is_made_by_the_environment() -> None:
    if PURE:
        assert [*compiled.IMPLEMENTATIONS.values()] == ["event", "python", "python"]
        assert not compiled.COMPILED
    else:
        assert (doorbell.KIND == "futex") == doorbell.HAS_FUTEX


@pytest.mark.first
@pytest.mark.skipif(PURE, reason="this is the run without C")
def test_the_contract_holds_without_the_c_parts() -> None:
    done = subprocess.run(
        [
            sys.executable,
            *("-m", "pytest", "-q", "-p", "no:cacheprovider"),
            *("-k", f"not ({LEFT_OUT})"),
            *(str(HERE / f"test_{part}.py") for part in ("exactness", "autoreset")),
            f"{__file__}::{test_the_choice_of_twins_is_made_by_the_environment.__name__}",
        ],
        env={
            **os.environ,
            "CORRAL_PURE_PYTHON": "1",
            "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",
        },
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "passed" in done.stdout
