"""Scripts moved here print the numbers that they printed before.

Those that need few packages and little time; `make conformance` runs them all.
"""

from __future__ import annotations

import pytest

from conformance.migrated.migration import after, before, compared, scripts


@pytest.mark.parametrize("name", ["multiprocessing_pool", "notebook", "pipe_workers"])
def test_a_migrated_script_prints_the_same_numbers_and_leaves_nothing(name):
    if name == "pipe_workers":
        pytest.importorskip("stable_baselines3", reason="it becomes a VecEnv of SB3's")
    assert compared(name) == []


@pytest.mark.parametrize("name", scripts())
def test_a_script_names_us_only_in_the_lines_that_change(name):
    assert "corral" not in before(name)
    new = after(name)
    assert "corral" in new and "# becomes" not in new
    compile(new, name, "exec")
    changed = set(new.splitlines()) - set(before(name).splitlines())
    assert 1 <= len(changed) <= 2
