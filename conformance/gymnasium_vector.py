"""Gymnasium's own `tests/vector`, run on Corral's vector envs.

    python -m conformance.gymnasium_vector            ours, held against expected.toml
    python -m conformance.gymnasium_vector --stock    Gymnasium's, to know the measure

The tests are those of the installed Gymnasium's version. They come from a checkout
named by --tests or GYMNASIUM_TESTS, or else are cloned once into conformance/cache.
Exits with 1 after a failure that is not expected, or an expected one that passes.
"""

from __future__ import annotations

import sys

from conformance.suite import Suite, main

GYMNASIUM = Suite(
    peer="Gymnasium",
    package="gymnasium",
    repository="https://github.com/Farama-Foundation/Gymnasium",
    files=("tests/vector/t*.py",),
    swap="conformance.swap",
    expected="expected.toml",
    variable="GYMNASIUM_TESTS",
)

if __name__ == "__main__":
    sys.exit(main(GYMNASIUM, __doc__))
