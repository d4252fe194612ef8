"""Figures as text, the same on the console and on the page."""

from __future__ import annotations

from collections.abc import Iterator

from corral.tools.bench.recommend import best_of
from corral.tools.bench.results import BenchReport, CandidateResult

NO_VALUE = "–"
# Broken where a narrow table may break them.
HEADINGS = (
    "envs",
    "runner",
    "steps/s",
    "× loop",
    "of\nlimit",
    "start-\nup",
    "memory",
    "CPU\nburnt",
)
TABLE_NOTE = (
    "× loop: speed relative to one bare env in a for loop. of limit: share of the "
    "highest possible speed, min(cores, envs) × one bare env plus the policy. CPU "
    "burnt: cores busy with anything but the envs and the policy."
)
INTERRUPTED = "Interrupted: these are the rounds so far."


def table(report: BenchReport) -> Iterator[tuple[tuple[str, ...], str]]:
    """The cells of each row, and how it stands out: first, strong, bad."""
    for group in report.groups:
        best = best_of(group)
        for number, row in enumerate(group.rows):
            size = "" if number else str(group.num_envs)
            failed = row.state == "failed"
            marks = {"first": not number, "strong": row is best, "bad": failed}
            words = " ".join(name for name, is_so in marks.items() if is_so)
            yield (size, title(row), *figures(row)), words


def figures(row: CandidateResult) -> tuple[str, ...]:
    """The row's cells from steps/s on."""
    mark = " !" if row.state == "failed" else ""
    start = "{:.2f} s" if (row.startup_seconds or 0) < 10 else "{:.0f} s"
    return (
        f"{row.speed:,.0f}{mark}" if row.rates else row.state,
        _number(row.over_loop, "{:.2f}"),
        _number(row.efficiency, "{:.0%}"),
        _number(row.startup_seconds, start),
        _memory(row.memory_bytes),
        _number(row.cpu_burnt, "{:.2f}"),
    )


def title(row: CandidateResult) -> str:
    """Its name, marked if it is auto's choice."""
    return f"{row.candidate.title} *" if row.auto else row.candidate.title


def notes(report: BenchReport) -> list[str]:
    """What stands under the table."""
    found = []
    if any(row.auto for row in report.rows):
        found.append('* what backend="auto" chooses')
    if any(row.state == "failed" and row.rates for row in report.rows):
        found.append("! the rounds before it failed")
    if report.agents:
        whole = report.agents == "at once"
        found.append(
            "A step moves all agents." if whole else "A step is one agent's turn."
        )
    if report.left_out:
        names = ", ".join(report.left_out)
        found.append(f"Left out: {names} cannot run agents that act {report.agents}.")
    return [*found, TABLE_NOTE]


def machine(report: BenchReport) -> str:
    """Where it was measured."""
    facts = report.machine
    memory = facts["memory_bytes"] / 2**30
    compiled = "" if facts["compiled"] else ", without the C parts"
    software = ", ".join(f"{name} {text}" for name, text in report.versions.items())
    return (
        f"{facts['cores']} cores ({facts['processor']}), {memory:.0f} GiB, "
        f"Python {facts['python']}, {software}{compiled}"
    )


def method(report: BenchReport) -> str:
    """How it was measured."""
    settings = report.settings
    policy = f", a policy of {settings.policy_ms:g} ms" if settings.policy_ms else ""
    rounds = "1 round" if settings.rounds == 1 else f"{settings.rounds} rounds"
    return f"{rounds} of {settings.seconds:g} s turns{policy}"


def failures(report: BenchReport) -> dict[str, str]:
    """What failed, at which size, and why."""
    return {
        f"{row.candidate.title} ×{row.num_envs}": row.reason
        for row in report.rows
        if row.state == "failed"
    }


def brief(reason: str, most: int = 240) -> str:
    """The first line of a reason: the rest is in the files, and in --debug."""
    first, _, rest = reason.strip().partition("\n")
    if len(first) > most:
        return f"{first[:most]} …"
    return f"{first} …" if rest else first


def _memory(size: int | None) -> str:
    if size is None:
        return NO_VALUE
    mebibytes = size / 2**20
    if mebibytes >= 1000:
        return f"{mebibytes / 1024:.1f} GiB"
    return f"{mebibytes:.0f} MiB" if mebibytes >= 1 else "< 1 MiB"


def _number(value: float | None, form: str) -> str:
    return NO_VALUE if value is None else form.format(value)
