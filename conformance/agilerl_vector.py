"""AgileRL's own tests of its PettingZoo vector env, run on Corral's.

    python -m conformance.agilerl_vector            ours, as expected_agilerl.toml says
    python -m conformance.agilerl_vector --stock    AgileRL's, to know the measure

The tests are those of the installed version. They come from a checkout named by --tests
or AGILERL_TESTS, or else are cloned once into conformance/cache. Exits with 1 after a
failure that is not expected, or an expected one that passes.
"""

from __future__ import annotations

import sys

from conformance.suite import Suite, main

AGILERL = Suite(
    peer="AgileRL",
    package="agilerl",
    repository="https://github.com/AgileRL/AgileRL",
    files=("tests/test_vector/test_vector.py",),
    swap="conformance.swap_agilerl",
    expected="expected_agilerl.toml",
    variable="AGILERL_TESTS",
)

if __name__ == "__main__":
    sys.exit(main(AGILERL, __doc__))
