"""A short soak: faults of every kind, and not one row wrong, lost or doubled."""

from __future__ import annotations

import subprocess
import sys

SECONDS = 20


def test_pools_survive_a_soak() -> None:
    command = [sys.executable, "-m", "corral.testing.soak", "--seed", "1"]
    done = subprocess.run(
        [*command, "--minutes", str(SECONDS / 60)],
        capture_output=True,
        text=True,
        timeout=SECONDS + 300,
    )
    assert done.returncode == 0, done.stdout + done.stderr
