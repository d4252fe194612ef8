"""Stable-Baselines3's own tests of vector envs, run on Corral's.

    python -m conformance.sb3_vector            ours, held against expected_sb3.toml
    python -m conformance.sb3_vector --stock    Stable-Baselines3's, to know the measure

The tests are those of the installed version. They come from a checkout named by --tests
or SB3_TESTS, or else are cloned once into conformance/cache. Exits with 1 after a
failure that is not expected, or an expected one that passes.
"""

from __future__ import annotations

import sys

from conformance.suite import Suite, main

STABLE_BASELINES3 = Suite(
    peer="Stable-Baselines3",
    package="stable_baselines3",
    repository="https://github.com/DLR-RM/stable-baselines3",
    files=(
        "tests/test_vec_envs.py",
        "tests/test_vec_monitor.py",
        "tests/test_vec_normalize.py",
    ),
    swap="conformance.swap_sb3",
    expected="expected_sb3.toml",
    variable="SB3_TESTS",
)

if __name__ == "__main__":
    sys.exit(main(STABLE_BASELINES3, __doc__))
