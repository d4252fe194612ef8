"""Ctrl-C, whenever it comes, costs nothing that was measured."""

import pytest

from corral.tools.bench import benchmark


class FakeComparison:
    """Interrupted while it runs, or while it closes; counts what it was given."""

    def __init__(self, running, closing):
        self.running = running
        self.closing = closing
        self.patience = []

    def run(self):
        if self.running:
            raise self.running

    def close(self, timeout):
        self.patience.append(timeout)
        if self.closing and len(self.patience) == 1:
            raise KeyboardInterrupt


@pytest.mark.parametrize("running", [None, KeyboardInterrupt()])
def test_ctrl_c_while_candidates_close_ends_them_at_once(running):
    comparison = FakeComparison(running, closing=True)
    assert benchmark._run_comparison(comparison)
    assert comparison.patience[1:] == [0.0]


def test_an_error_is_raised_when_the_candidates_are_closed():
    comparison = FakeComparison(ValueError("broken"), closing=False)
    with pytest.raises(ValueError, match="broken"):
        benchmark._run_comparison(comparison)
    assert comparison.patience == [10.0]
