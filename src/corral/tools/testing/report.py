"""What a check found: every part of it by name, with the reason where one failed."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field
from typing import Any, Literal

from corral.errors import CheckFailed

PartVerdict = Literal["ok", "warning", "failed", "skipped"]


class Skip(Exception):
    """A part that does not apply here; says why."""


class Warn(Exception):
    """A part that works, but perhaps not as expected; says how."""


@dataclass(frozen=True, slots=True)
class Finding:
    """One part of a check."""

    name: str
    verdict: PartVerdict
    text: str = ""
    error: BaseException | None = field(default=None, compare=False)

    def __str__(self) -> str:
        reason = f": {self.text}" if self.text else ""
        return f"{self.verdict:8} {self.name}{reason}"


@dataclass(slots=True)
class Report:
    """A check of one thing; true if no part of it failed."""

    about: str
    findings: list[Finding] = field(default_factory=list)

    @property
    def failures(self) -> list[Finding]:
        """The parts that failed."""
        return [found for found in self.findings if found.verdict == "failed"]

    @property
    def warnings(self) -> list[Finding]:
        """The parts with a warning."""
        return [found for found in self.findings if found.verdict == "warning"]

    def __bool__(self) -> bool:
        return not self.failures

    def __str__(self) -> str:
        return "\n".join([self.about, *(f"  {found}" for found in self.findings)])

    def raise_if_failed(self) -> None:
        """Raise CheckFailed, with the whole report as its text, if a part failed."""
        if self.failures:
            raise CheckFailed(str(self)) from self.failures[0].error


def run_parts(
    about: str,
    check: object,
    needed: Collection[str],
    left_out: Collection[str] = (),
    raises: bool = True,
) -> Report:
    """Run one part after the other, and note the result of each.

    Args:
        about: what is checked.
        check: its public methods are the parts: their names, read as sentences, are
            true unless they raise.
        needed: names of parts without which those after them are skipped.
        left_out: names of parts that are not run.
        raises: whether to raise CheckFailed if a part failed.
    """
    report, missing = Report(f"{about}:"), ""
    for method in vars(type(check)):
        if method.startswith("_") or method in left_out:
            continue
        name = method.replace("_", " ")
        found = Finding(name, "skipped", f"not so: {missing}")
        if not missing:
            found = _run(name, getattr(check, method))
        report.findings.append(found)
        if method in needed and found.verdict == "failed":
            missing = name
    if raises:
        report.raise_if_failed()
    return report


def _run(name: str, part: Any) -> Finding:
    try:
        part()
    except Skip as reason:
        return Finding(name, "skipped", str(reason))
    except Warn as reason:
        return Finding(name, "warning", str(reason))
    except AssertionError as error:
        return Finding(name, "failed", str(error), error)
    except Exception as error:
        return Finding(name, "failed", f"{type(error).__name__}: {error}", error)
    return Finding(name, "ok")
