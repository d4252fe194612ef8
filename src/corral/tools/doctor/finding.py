"""One thing that was found out about an env, and what to do about it."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial
from typing import Any, Literal

Severity = Literal["ok", "note", "warning", "problem"]
SEVERITIES: tuple[Severity, ...] = ("ok", "note", "warning", "problem")
"""From good to bad. A note needs no action. A warning names something to improve. A
problem means wrong results, or none."""


@dataclass(frozen=True, slots=True)
class Finding:
    """What one check measured."""

    check: str
    severity: Severity
    measured: str
    """In a sentence or less."""
    remedy: str = ""
    """What to do about it; "" where nothing has to be done."""
    tried: str = ""
    """What was measured with the remedy applied, where that was possible."""
    options: dict[str, Any] = field(default_factory=dict)
    """What `corral.make` is to be given because of it."""
    data: dict[str, Any] = field(default_factory=dict)
    """The figures behind it, of types that JSON has."""

    def __str__(self) -> str:
        parts = [f"{self.severity:8}{self.check}: {self.measured}"]
        parts += [f"        -> {self.remedy}"] if self.remedy else []
        parts += [f"        tried: {self.tried}"] if self.tried else []
        return "\n".join(parts)


# What checks make; the examination adds the name of the check.
ok = partial(Finding, "", "ok")
note = partial(Finding, "", "note")
warning = partial(Finding, "", "warning")
problem = partial(Finding, "", "problem")


def worst(findings: list[Finding]) -> Severity:
    """The worst severity among them."""
    ranks = [SEVERITIES.index(finding.severity) for finding in findings]
    return SEVERITIES[max(ranks, default=0)]
