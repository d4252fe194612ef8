"""What was found out about an env, what to do about it, and all of it as a report."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from functools import partial
from typing import Any, Literal

from corral.engine.adapters.isolation import IsolationVerdict

Severity = Literal["ok", "note", "warning", "problem"]
# How `corral doctor` ends, by the worst that was found.
EXIT_STATUS: dict[Severity, int] = {"ok": 0, "note": 0, "warning": 3, "problem": 1}
# From good to bad. A note needs no action. A warning names something to improve. A
# problem means wrong results, or none.
SEVERITIES: tuple[Severity, ...] = tuple(EXIT_STATUS)


@dataclass(frozen=True, slots=True)
class Finding:
    """What one check measured.

    Attributes:
        measured: In a sentence or less.
        remedy: What to do about it; "" where nothing has to be done.
        tried: What was measured with the remedy applied, where that was possible.
        options: What `corral.make` is to be given because of it.
        data: The figures behind it, of types that JSON has.
        details: Lines to show whole, below all findings.
    """

    check: str
    severity: Severity
    measured: str
    remedy: str = ""
    tried: str = ""
    options: dict[str, Any] = field(default_factory=dict)
    data: dict[str, Any] = field(default_factory=dict)
    details: tuple[str, ...] = ()

    def __str__(self) -> str:
        parts = [f"{self.severity:8}{self.check}: {self.measured}"]
        parts += [f"        -> {self.remedy}"] if self.remedy else []
        parts += [f"        tried: {self.tried}"] if self.tried else []
        parts += [f"        {line}" for line in self.details]
        return "\n".join(parts)


# What checks make; the examination adds the name of the check.
ok = partial(Finding, "", "ok")
note = partial(Finding, "", "note")
warning = partial(Finding, "", "warning")
problem = partial(Finding, "", "problem")


@dataclass(frozen=True, slots=True)
class Recommendation:
    """What to write."""

    sentence: str
    code: str


@dataclass(slots=True)
class Report:
    """Every finding, in order; true if there is no problem among them.

    Attributes:
        verdict: What `--save` stores; None if sharing a process could not be judged.
    """

    env: str
    findings: list[Finding] = field(default_factory=list)
    recommendation: Recommendation | None = None
    verdict: IsolationVerdict | None = None
    seconds: float = 0.0
    interrupted: bool = False

    @property
    def severity(self) -> Severity:
        """The worst severity among the findings."""
        found = [finding.severity for finding in self.findings]
        return max(found, key=SEVERITIES.index, default="ok")

    @property
    def warnings(self) -> list[Finding]:
        """Findings that name something to improve."""
        return [one for one in self.findings if one.severity == "warning"]

    @property
    def problems(self) -> list[Finding]:
        """Findings that mean wrong results, or none."""
        return [one for one in self.findings if one.severity == "problem"]

    def of(self, check: str) -> list[Finding]:
        """The findings of one check."""
        return [one for one in self.findings if one.check == check]

    def __bool__(self) -> bool:
        return not self.problems

    def __str__(self) -> str:
        lines = [f"{self.env}:", *map(str, self.findings)]
        if self.recommendation is not None:
            lines += [self.recommendation.sentence, self.recommendation.code]
        return "\n".join(lines)

    def document(self) -> dict[str, Any]:
        """The report as values that JSON has."""
        found = asdict(self) | {"severity": self.severity}
        # The names of an env's own things may be of any type.
        plain: dict[str, Any] = json.loads(json.dumps(found, default=str))
        return {"format": 1, **plain}
