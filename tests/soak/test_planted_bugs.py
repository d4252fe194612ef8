"""The table of bugs that are planted by hand follows the code."""

import pytest

from tests.soak.planted_bugs import BUGS, ROOT, Bug, file_of


@pytest.mark.parametrize("bug", BUGS, ids=range(1, len(BUGS) + 1))
def test_the_text_that_a_bug_changes_is_there_once(bug: Bug) -> None:
    assert file_of(ROOT, bug).is_file()
    assert bug.old != bug.new
