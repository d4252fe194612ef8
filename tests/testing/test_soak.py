"""A minute's soak: faults of every kind, and not one row wrong, lost or doubled."""

from __future__ import annotations

import subprocess


def test_pools_survive_a_minute_of_soaking(soaking: subprocess.Popen[str]) -> None:
    code = soaking.wait(timeout=400)
    assert soaking.stdout is not None
    soaking.stdout.seek(0)
    said = soaking.stdout.read()
    assert code == 0, said
    # It had something to survive.
    faults = [line.split()[-1] for line in said.splitlines() if line[:6] == "in all"]
    assert int(faults[0]) > 20, said
