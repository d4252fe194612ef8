"""Tests that need a package which is left out on purpose are skipped, and say so.

`pytest --without=torch,stable_baselines3` is how `make matrix` runs them all. What
fails since one of these could not be imported, here or in a process that a test
started, is skipped. A package that is installed cannot be left out.
"""

from __future__ import annotations

import importlib.util
import re
from collections.abc import Generator, Iterator
from typing import Any

import pytest

Report = pytest.CollectReport | pytest.TestReport


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--without", default="", help="packages that are not installed")


def pytest_configure(config: pytest.Config) -> None:
    names = [name for name in config.getoption("--without").split(",") if name]
    there = [name for name in names if importlib.util.find_spec(name) is not None]
    if there:
        raise pytest.UsageError(f"--without: {', '.join(there)} can be imported")
    if names:
        config.pluginmanager.register(Absent(names))


class Absent:
    """What to do about tests of packages that are not there."""

    def __init__(self, names: list[str]) -> None:
        self._pattern = re.compile(rf"No module named '({'|'.join(names)})\b")

    @pytest.hookimpl(wrapper=True)
    def pytest_make_collect_report(
        self, collector: pytest.Collector
    ) -> Generator[None, Any, Any]:
        report = yield
        self._judge(report, getattr(report.call, "excinfo", None))
        return report

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(
        self, item: pytest.Item, call: pytest.CallInfo[None]
    ) -> Generator[None, Any, Any]:
        report = yield
        self._judge(report, call.excinfo)
        return report

    def _judge(self, report: Report, raised: Any) -> None:
        if report.outcome != "failed" or raised is None:
            return
        for error in chain(raised.value):
            missing = self._pattern.search(str(error))
            if missing:
                report.outcome = "skipped"
                reason = f"Skipped: {missing[1]} is not installed"
                report.longrepr = (report.nodeid.partition("::")[0], 0, reason)
                return


def chain(error: BaseException | None) -> Iterator[BaseException]:
    """The exception, and those that led to it."""
    seen: list[BaseException] = []
    while error is not None and error not in seen:
        seen.append(error)
        yield error
        error = error.__cause__ or error.__context__
