"""A run can be watched on a terminal, and read from a log."""

import io
import re

from corral.train.sinks.console import ConsoleSink

METRICS = {"speed/steps_per_second": 8210.4, "episode/return": 312.25, "use/cpu": 0.97}


LINE = re.compile(r"\[\d{4}-\d\d-\d\d \d\d:\d\d:\d\d elapsed (\S+) eta (\S+)\] (.+)")


class Terminal(io.StringIO):
    def isatty(self):
        return True


class Clock:
    """Says what time it is told."""

    now = 100.0

    def __call__(self):
        return self.now


def logged(total, begin, *writes):
    """The lines of a log: (elapsed, eta, text); writes are (seconds later, step)."""
    file, clock = io.StringIO(), Clock()
    sink = ConsoleSink(total, file, clock)
    sink.say("Writing to run")
    with sink.watching(begin):
        for seconds, step in writes:
            clock.now += seconds
            sink.write(METRICS, step)
    sink.say("Done\nReport  run/report.html")
    sink.close()
    return [LINE.fullmatch(line).groups() for line in file.getvalue().splitlines()]


def test_a_log_has_a_line_for_each_tenth_with_time_elapsed_and_eta():
    steps = [(1, step) for step in range(50, 1001, 50)]
    first, *lines, done, report = logged(1000, 0, *steps)
    assert first == ("0:00:00", "-:--:--", "Writing to run")
    assert [line[:2] for line in lines] == [
        (f"0:00:{elapsed:02}", f"0:00:{20 - elapsed:02}") for elapsed in range(2, 21, 2)
    ]
    assert lines[0][2] == "step 100/1000  8210 steps/s  return 312.2  CPU 97%"
    assert done == ("0:00:20", "0:00:00", "Done")
    assert report == ("0:00:20", "0:00:00", "Report  run/report.html")


def test_in_a_slow_run_every_update_has_a_line():
    lines = logged(10**6, 0, (11, 100), (11, 200), (4, 300), (4, 400), (4, 500))
    steps = [line[2].split()[1] for line in lines if line[2].startswith("step")]
    assert steps == ["100/1000000", "200/1000000", "500/1000000"]
    assert lines[1][:2] == ("0:00:11", "30:33:09")


def test_a_run_that_goes_on_is_timed_from_there():
    lines = logged(1000, 900, (30, 950), (30, 1000))
    assert [line[:2] for line in lines[1:3]] == [
        ("0:00:30", "0:00:30"),
        ("0:01:00", "0:00:00"),
    ]


def test_on_a_terminal_there_is_a_bar_that_is_gone_at_the_end(monkeypatch):
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.setenv("COLUMNS", "100")
    file, clock = Terminal(), Clock()
    sink = ConsoleSink(1000, file, clock)
    with sink.watching(0):
        clock.now += 61
        sink.write(METRICS, 500)
        shown = file.getvalue()
        sink.say("[evaluated] 475")
    assert "500/1,000" in shown and "return 312.2" in shown and "━" in shown
    assert "0:01:01<0:01:01" in shown
    assert "[evaluated] 475" in file.getvalue()
    assert file.getvalue().endswith("\x1b[2K")
