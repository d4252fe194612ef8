"""A run can be watched on a terminal, and read from a log."""

import io

from corral.sinks.console import ConsoleSink

METRICS = {"speed/steps_per_second": 8210.4, "episode/return": 312.25, "use/cpu": 0.97}


class Terminal(io.StringIO):
    def isatty(self):
        return True


def test_without_a_terminal_there_is_a_line_for_each_tenth():
    file = io.StringIO()
    sink = ConsoleSink(1000, file)
    with sink.watching(0):
        for step in range(50, 1001, 50):
            sink.write(METRICS, step)
    sink.close()
    lines = file.getvalue().splitlines()
    assert len(lines) == 10
    assert lines[0] == "100/1,000  8,210 steps/s  return 312.2  CPU 97%"


def test_going_on_does_not_tell_the_first_tenths_again():
    file = io.StringIO()
    sink = ConsoleSink(1000, file)
    with sink.watching(900):
        sink.write({}, 950)
        sink.write({}, 1000)
    assert file.getvalue().splitlines() == ["1,000/1,000"]


def test_on_a_terminal_there_is_a_bar_that_is_gone_at_the_end(monkeypatch):
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.setenv("COLUMNS", "100")
    file = Terminal()
    sink = ConsoleSink(1000, file)
    with sink.watching(0):
        sink.write(METRICS, 500)
        shown = file.getvalue()
        sink.say("[evaluated] 475")
    assert "500/1,000" in shown and "return 312.2" in shown and "━" in shown
    assert "[evaluated] 475" in file.getvalue()
    assert file.getvalue().endswith("\x1b[2K")
