"""One thing that was found out about an env, and what to do about it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal

Severity = Literal["ok", "note", "warning", "problem"]
SEVERITIES: tuple[Severity, ...] = ("ok", "note", "warning", "problem")
"""From good to bad. A note needs nothing done; a warning names something that is better
done; with a problem results are wrong, or there are none."""


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
        if self.remedy:
            parts.append(f"        -> {self.remedy}")
        if self.tried:
            parts.append(f"        tried: {self.tried}")
        return "\n".join(parts)


def worst(findings: list[Finding]) -> Severity:
    """The worst severity among them."""
    ranks = [SEVERITIES.index(finding.severity) for finding in findings]
    return SEVERITIES[max(ranks, default=0)]
