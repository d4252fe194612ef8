"""A short soak: faults of every kind, and no row wrong, lost or doubled."""

from __future__ import annotations

import subprocess
import sys

import pytest

FAULTS = 25
"""More than there are kinds; `make soak` goes on for minutes."""


@pytest.mark.first
def test_pools_survive_faults_of_every_kind() -> None:
    command = [sys.executable, "-m", "tests.soak.random_faults", "--seed", "1"]
    soak = subprocess.run(
        [*command, "--faults", str(FAULTS)],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=400,
    )
    said = soak.stdout
    assert soak.returncode == 0, said
    # It had something to survive.
    faults = [line.split()[-1] for line in said.splitlines() if line[:6] == "in all"]
    assert int(faults[0]) >= FAULTS, said
