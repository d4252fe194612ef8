"""The result of an examination."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from typing import Any

from corral.engine.adapters.isolation import IsolationVerdict
from corral.tools.doctor.finding import Finding, Severity, worst

EXIT_STATUS: dict[Severity, int] = {"ok": 0, "note": 0, "warning": 3, "problem": 1}
"""How `corral doctor` ends, by the worst that was found."""


@dataclass(frozen=True, slots=True)
class Recommendation:
    """What to write."""

    sentence: str
    code: str


@dataclass(slots=True)
class Report:
    """Every finding, in order; true if there is no problem among them."""

    env: str
    findings: list[Finding] = field(default_factory=list)
    recommendation: Recommendation | None = None
    verdict: IsolationVerdict | None = None
    """What `--save` keeps; None if sharing a process could not be judged."""
    seconds: float = 0.0
    interrupted: bool = False

    @property
    def severity(self) -> Severity:
        """The worst severity among the findings."""
        return worst(self.findings)

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
        lines = [f"{self.env}:", *(str(finding) for finding in self.findings)]
        if self.recommendation is not None:
            lines += [self.recommendation.sentence, self.recommendation.code]
        return "\n".join(lines)

    def document(self) -> dict[str, Any]:
        """The report as values that JSON has."""
        found = asdict(self) | {"severity": self.severity}
        # Names of envs' own making may hold anything.
        plain: dict[str, Any] = json.loads(json.dumps(found, default=str))
        return {"format": 1, **plain}
