"""An examination comes to its end, whatever the env does, and says what came of it."""

from __future__ import annotations

import functools
import json

import misbehaving as bad
import numpy as np
import pytest

from corral.doctor import check
from corral.errors import OptionError
from corral.testing import Crashing, Noisy
from corral.tools.doctor.report import (
    EXIT_STATUS,
    SEVERITIES,
    Finding,
    Recommendation,
    Report,
)


@pytest.mark.parametrize(
    ("how", "at", "words"),
    [
        ("raise", "construct", "OnPurpose: failed on purpose"),
        ("exit", "reset", "SystemExit: left on purpose"),
        ("segfault", "step", "the env ended its process (SIGSEGV)"),
        ("os_exit", "close", "the env ended its process (exit code 3)"),
    ],
)
def test_an_env_that_cannot_be_played_is_a_finding(how, at, words):
    report = check(functools.partial(Crashing, how, at), only=["memory"])
    (finding,) = report.findings  # nothing more was tried
    assert (finding.check, finding.severity) == ("api", "problem")
    assert words in finding.measured and finding.remedy
    assert "Extension modules" not in finding.remedy  # of numpy, not of the env
    assert report.verdict is None and report.recommendation is None and not report


@pytest.mark.parametrize(
    ("deed", "kind"), [("crash", "died"), ("hang", "hung"), ("fail", "raised")]
)
def test_a_finding_names_the_users_line(deed, kind):
    report = check(functools.partial(bad.Ends, deed), only=["api"], seconds=2.0)
    (finding,) = report.problems
    said = f"{finding.measured} {finding.remedy}"
    assert "misbehaving.py, line " in said and f"in {deed}: " in said
    assert "ctypes/__init__" not in said
    assert finding.data["kind"] == kind


def test_an_env_that_fails_later_loses_one_check_and_no_more():
    late = functools.partial(Crashing, "segfault", "step", after=330)
    report = check(late, only=["memory", "buffers"])
    (finding,) = report.problems
    assert finding.check == "memory"
    words = "could not run: the env ended its process (SIGSEGV)"
    assert words in finding.measured and "SIGSEGV" in finding.data["error"]
    assert report.of("buffers")[0].severity == "ok"


def test_an_env_that_hangs_again_and_again_is_left_alone():
    late = functools.partial(Crashing, "hang_in_c", "step", after=330)
    report = check(late, only=["memory", "cost", "buffers"], seconds=2.0)
    assert [one.check for one in report.problems] == ["memory", "cost", "time"]
    assert "the env did not return within 2 s" in report.problems[0].measured
    assert not report.of("buffers")


def test_a_factory_that_cannot_travel_is_a_finding():
    import threading

    lock = threading.Lock()

    def make():
        assert lock
        return bad.Walk()

    report = check(make, only=["pickling"])
    assert "lock" in report.of("pickling")[0].measured
    assert report.severity == "problem"


@pytest.mark.parametrize(
    ("env", "severity", "words"),
    [
        (bad.OldApi, "problem", "SpaceMismatch: env.step() returned a tuple of 4"),
        (bad.SmallSeeds, "warning", "seeds of 63 bits"),
        (lambda: None, "problem", "returned None"),
    ],
)
def test_what_is_not_as_the_api_says_is_told(env, severity, words):
    finding = check(env, only=["api"]).findings[0]
    assert finding.severity == severity and words in finding.measured


class Unseeded(bad.Walk):
    """Gymnasium wants `reset` to seed `np_random`."""

    def reset(self, *, seed=None, options=None):
        return np.zeros(2, np.float32), {}


class SurprisedByOptions(bad.Walk):
    """Fails where Gymnasium's checker calls it and no pool does."""

    def reset(self, *, seed=None, options=None):
        if options is not None:
            raise RuntimeError("what is that?")
        return super().reset(seed=seed)


@pytest.mark.parametrize(
    ("env", "words"),
    [
        (Unseeded, "but check_env fails: Expects the random number generator"),
        (SurprisedByOptions, "but check_env fails: RuntimeError: what is that?"),
    ],
)
def test_what_gymnasiums_checker_refuses_is_a_note(env, words):
    (finding,) = check(env, only=["api"]).findings
    assert finding.severity == "note" and words in finding.measured


def test_what_gymnasiums_checker_recommends_is_quoted():
    (finding,) = check("Pendulum-v1", only=["api"]).findings
    assert finding.severity == "ok"
    assert "check_env passes and warns: For Box action spaces" in finding.measured


def test_nothing_that_an_env_prints_comes_through(capfd):
    assert check(Noisy, only=["api"])
    assert capfd.readouterr() == ("", "")


def test_a_check_that_is_not_there_is_refused():
    with pytest.raises(OptionError, match="only is 'isolaton'; choose one of"):
        check(bad.Walk, only=["isolaton"])


def test_the_worst_finding_decides():
    assert Report("env").severity == "ok"
    found = [Finding("a", severity, "") for severity in SEVERITIES]
    for count, severity in enumerate(SEVERITIES, 1):
        report = Report("env", found[:count])
        assert report.severity == severity
        assert bool(report) == (severity != "problem")
    assert [EXIT_STATUS[severity] for severity in SEVERITIES] == [0, 0, 3, 1]


def test_a_report_can_be_read_and_written():
    finding = Finding("waiting", "warning", "it sleeps", "wake it", "it woke up")
    line = Recommendation("8 envs.", "envs = corral.make(make_env, num_envs=8)")
    report = Report("robot", [finding], line)
    for part in ("robot:", "it sleeps", "-> wake it", "tried: it woke up", line.code):
        assert part in str(report)
    document = json.loads(json.dumps(report.document()))
    assert document["severity"] == "warning"
    assert document["findings"][0]["remedy"] == "wake it"
