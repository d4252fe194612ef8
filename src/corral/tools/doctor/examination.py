"""The examination: every check in its turn, within its time, and the report.

    corral.doctor.check("CartPole-v1")
    corral.doctor.check(make_my_env, env_kwargs={"gui": False})

No env is built in the caller. An env that raises, hangs, exits or crashes in a worker
gives a finding.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any

from corral.engine.adapters.env_names import resolve_env
from corral.engine.adapters.factories import Maker, factories_for
from corral.engine.adapters.isolation import IsolationVerdict
from corral.engine.keywords import checked_keywords
from corral.errors import CorralError, FaultError, MissingExtra, OptionError
from corral.tools.doctor.checklist import CHECKS, Check
from corral.tools.doctor.finding import Finding, note, problem
from corral.tools.doctor.recommendation import recommend
from corral.tools.doctor.report import Report
from corral.tools.doctor.subject import Subject, brief

NUM_ENVS = 8
MAX_HUNG = 2
"""Checks that hang before the rest is skipped: the rest would hang as well."""


@checked_keywords()
def check(
    env: Maker,
    *,
    env_kwargs: dict[str, Any] | None = None,
    num_envs: int = NUM_ENVS,
    seed: int = 0,
    only: Sequence[str] = (),
    seconds: float | None = None,
) -> Report:
    """Find out what an env needs to run in parallel.

    Args:
        env: an id, "module:function", or a factory; of Gymnasium or PettingZoo.
        env_kwargs: keyword arguments for the id or factory.
        num_envs: number of envs in the recommended line.
        seed: seed of episodes and actions.
        only: names of checks, such as "isolation" (default: all of them).
        seconds: seconds allowed for one measurement (default: the check's own limit).

    Returns:
        The report. `print` shows it; it is true if there is no problem.

    Example:
        >>> report = corral.doctor.check("CartPole-v1", only=["isolation"])
        >>> report.severity
        'ok'
    """
    return examine(subject_for(env, env_kwargs, seed), num_envs, only, seconds)


def subject_for(
    env: Maker,
    env_kwargs: dict[str, Any] | None = None,
    seed: int = 0,
    syntax: str = "python",
) -> Subject:
    """An env as a program or a command line gives it."""
    kwargs = dict(env_kwargs or {})
    if isinstance(env, str):
        found = resolve_env(env, kwargs, syntax=syntax)
        known = env if found.registered else None
        return Subject(
            *(found.text, found.factory, found.expression, found.import_line),
            *(kwargs, known, seed),
        )
    (factory,) = factories_for(env, 1, kwargs)
    name = getattr(env, "__name__", None) or type(env).__name__
    plain = name.isidentifier()
    return Subject(name, factory, name if plain else "make_env", "", kwargs, None, seed)


def examine(
    subject: Subject,
    num_envs: int = NUM_ENVS,
    only: Sequence[str] = (),
    seconds: float | None = None,
    progress: Callable[[str], object] = lambda name: None,
) -> Report:
    """Run the checks; Ctrl-C ends it with the findings so far."""
    chosen = _chosen(only)
    report, began = Report(subject.name), time.perf_counter()
    try:
        for check in chosen:
            progress(check.name)
            subject.seconds = check.seconds if seconds is None else seconds
            for finding in _findings(check, subject):
                report.findings.append(replace(finding, check=check.name))
            hung = [one for one in report.findings if one.data.get("kind") == "hung"]
            if len(hung) >= MAX_HUNG:
                text = f"{MAX_HUNG} checks did not finish; the others are skipped"
                report.findings.append(Finding("time", "problem", text))
                break
    except KeyboardInterrupt:
        report.interrupted = True
    report.seconds = time.perf_counter() - began
    report.verdict = _verdict(subject, report)
    report.recommendation = recommend(subject, report.findings, num_envs)
    return report


def _chosen(only: Sequence[str]) -> list[Check]:
    """The requested ones, and the first look that they need."""
    names = [check.name for check in CHECKS]
    for name in only:
        if name not in names:
            raise OptionError(
                f"there is no check {name!r}; choose from {', '.join(names)}"
            )
    if not only:
        return list(CHECKS)
    return [check for check in CHECKS if check.name in ("api", *only)]


def _findings(check: Check, subject: Subject) -> Iterator[Finding]:
    """What one check found, or how it failed."""
    if check.needs_profile and subject._profile is None:
        return
    try:
        yield from check.examine(subject)
    except MissingExtra as error:
        yield note(f"this check could not run: {error}")
    except FaultError as error:
        yield problem(
            f"this check could not run: {brief(error)}",
            "run the env in a plain loop; --json has the whole text of the error",
            data={"kind": error.fault.kind, "error": str(error)},
        )
    except CorralError as error:
        yield problem(f"this check could not run: {error}")


def _verdict(subject: Subject, report: Report) -> IsolationVerdict | None:
    """What the checks of sharing found, if they finished."""
    known, sharing = subject._profile, report.of("isolation")
    isolation = _figure(sharing, "isolation")
    if known is None or isolation is None:
        return None
    found = f"corral doctor found ({known.edition or known.subject}): "
    return IsolationVerdict(
        known.subject,
        known.edition,
        isolation,
        _figure(report.of("threads"), "threads"),
        any("isolate_rng" in finding.options for finding in report.findings),
        found + sharing[0].measured,
    )


def _figure(findings: Sequence[Finding], name: str) -> Any:
    """The figure of that name; None if there is none."""
    return next((one.data[name] for one in findings if name in one.data), None)
