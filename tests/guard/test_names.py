"""Public names, signatures and options are the recorded ones.

More may be added, in which case the data is recorded anew; none may go or change.
"""

from __future__ import annotations

import pytest

from tests.guard import names, recorded

KEPT = sorted(path.name.removesuffix(".txt") for path in recorded.NAMES.iterdir())


@pytest.mark.parametrize("file", KEPT)
def test_names_are_the_recorded_ones(file):
    lines = names.files().get(file)
    if lines is None:
        pytest.skip("a package that these names need is not installed")
    kept = (recorded.NAMES / f"{file}.txt").read_text().splitlines()
    assert lines() == kept
