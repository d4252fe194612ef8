"""What is printed: fits 80 columns, and leaves nothing out."""

import pytest
from samples import ASYNC, entry, failed, group, report

from corral.tools.bench import console
from corral.tools.bench.candidates import PEERS, layout


@pytest.fixture
def printed(capsys, monkeypatch):
    """What a report looks like on so many columns."""

    def show(shown, columns=80):
        monkeypatch.setenv("COLUMNS", str(columns))
        monkeypatch.setattr(console.console, "_width", columns)
        console.show(shown)
        return capsys.readouterr().out

    return show


def test_every_row_fits_80_columns(printed):
    wide = entry(layout("process", 128), 99_999.0)
    wide.startup_seconds, wide.memory_bytes, wide.auto = 99.0, 99 << 30, True
    text = printed(report(group(1024, 128, wide)))
    assert "99,999" in text
    assert "99.0 GiB" in text
    assert "…" not in text
    assert max(len(line.rstrip()) for line in text.splitlines()[3:12]) <= 80


@pytest.mark.parametrize("columns", [20, 60])
def test_no_figure_is_cut_on_a_narrow_terminal(printed, columns):
    text = printed(report(), columns)
    assert "…" not in text
    assert "1,800    1.80" in text


def test_the_best_row_its_figures_and_the_recommendation(printed):
    text = printed(report())
    (row,) = [
        line for line in text.splitlines() if "1,800" in line and "0.50 s" in line
    ]
    assert row.split()[:6] == ["Corral,", "2", "processes", "*", "1,800", "1.80"]
    assert '* what backend="auto" chooses' in text
    assert "Use 8 envs in 2 processes" in text
    assert '    envs = corral.make("Sample-v0", num_envs=8)' in text


def test_what_failed_is_told_in_one_line(printed):
    text = printed(report(group(8, 2, failed(ASYNC, "it broke\nand the rest"))), 120)
    assert "Gymnasium Async ×8 failed: it broke …" in text
    assert "Traceback" not in text


def test_one_that_failed_later_keeps_its_figures_with_a_mark(printed):
    broken = entry(ASYNC, 500.0)
    broken.error = failed(ASYNC, "it broke").error
    text = printed(report(group(8, 2, broken)))
    assert "500 !" in text
    assert "! the rounds before it failed" in text


def test_missing_peers_and_interruptions_are_told(printed):
    text = printed(report(missing=(PEERS["agilerl"],), interrupted=True))
    assert "agilerl is not installed: pip install agilerl" in text
    assert "Interrupted" in text


def test_peers_that_have_no_way_with_such_agents_are_named(printed):
    text = printed(report(agents="in turns", left_out=("agilerl", "supersuit")))
    assert "A step is one agent's turn." in text
    assert "Left out: agilerl, supersuit cannot run agents that act in turns." in text
