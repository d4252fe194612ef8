"""What a check found: every part of it by name, with the reason where one failed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Literal

from corral.errors import CheckFailed

PartVerdict = Literal["ok", "warning", "failed", "skipped"]


class Skip(Exception):
    """A part that has no meaning here; says why."""


class Warn(Exception):
    """A part that works, but not as the caller may think; says how."""


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
        """The parts that are worth a look."""
        return [found for found in self.findings if found.verdict == "warning"]

    def __bool__(self) -> bool:
        return not self.failures

    def __str__(self) -> str:
        return "\n".join([self.about, *(f"  {found}" for found in self.findings)])

    def raise_if_failed(self) -> None:
        """Raise CheckFailed, with the whole report as its text, if a part failed."""
        if self.failures:
            raise CheckFailed(str(self)) from self.failures[0].error


@dataclass(frozen=True, slots=True)
class CheckPart:
    """One part of a check: a sentence, and a function that raises if it is not so."""

    name: str
    run: Callable[[], object]
    needed: bool = False
    """Whether the parts after it have no meaning without it."""


def run_parts(about: str, parts: Sequence[CheckPart]) -> Report:
    """Run one part after the other, and note what came of each."""
    report = Report(about)
    missing = ""
    for part in parts:
        if missing:
            found = Finding(part.name, "skipped", f"not so: {missing}")
        else:
            found = _run(part)
        report.findings.append(found)
        if part.needed and found.verdict == "failed":
            missing = part.name
    return report


def _run(part: CheckPart) -> Finding:
    try:
        part.run()
    except Skip as reason:
        return Finding(part.name, "skipped", str(reason))
    except Warn as reason:
        return Finding(part.name, "warning", str(reason))
    except AssertionError as error:
        return Finding(part.name, "failed", str(error), error)
    except Exception as error:
        text = f"{type(error).__name__}: {error}"
        return Finding(part.name, "failed", text, error)
    return Finding(part.name, "ok")
