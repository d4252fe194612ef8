"""The examination: every check in its turn, within its time, and the report.

    corral.doctor.check("CartPole-v1")
    corral.doctor.check(make_my_env, env_kwargs={"gui": False})

No env is built in the caller. A check has two halves: `measure…(factory, …)` runs in a
worker beside the env and returns plain values; `check…(subject)` runs in the caller,
asks for that, and judges::

    def check_buffers(subject: Subject) -> Finding:
        changed = subject.ask(measure_buffers, subject.seed)
        return warning(…) if changed else ok(…)

An env that raises, hangs, exits or crashes in a worker gives a finding: a check may let
a FaultError through.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any

from corral.engine.adapters.env_names import resolve_env
from corral.engine.adapters.factories import Maker, factories_for
from corral.engine.adapters.isolation import IsolationVerdict
from corral.engine.adapters.task_delivery import TaskBy, check_task_by
from corral.engine.executors.assign import choose, usable_cores
from corral.engine.keywords import check_choice, checked_keywords
from corral.engine.worker.isolation_probe import THREADS_KEY
from corral.engine.worker.probe import (
    MIN_WAITING_STEP_SECONDS,
    WAITING_CPU_SHARE,
    Measurement,
)
from corral.errors import CorralError, FaultError, MissingExtra
from corral.tools.doctor.checks import (
    api,
    bullet,
    cost,
    display,
    machine,
    repeating,
    results,
    sharing,
    side_effects,
    tasks,
)
from corral.tools.doctor.report import Finding, Recommendation, Report, note, problem
from corral.tools.doctor.subject import EnvCost, Subject, brief
from corral.tools.make_line import make_line

# In the order in which they are made.
CHECKS: dict[str, Callable[[Subject], Finding | Iterable[Finding]]] = {
    "machine": machine.check_machine,
    "pickling": api.check_pickling,
    "api": api.check_api,
    "spaces": results.check_spaces,
    "determinism": repeating.check_determinism,
    "global RNG": repeating.check_generators,
    "tasks": tasks.check_tasks,
    "isolation": sharing.check_isolation,
    "pybullet": bullet.check_bullet,
    "threads": sharing.check_threads,
    "global state": side_effects.check_surroundings,
    "leftovers": side_effects.check_leftovers,
    "memory": side_effects.check_memory,
    "cost": cost.check_cost,
    "waiting": cost.check_waiting,
    "window": display.check_window,
    "infos": results.check_infos,
    "buffers": results.check_buffers,
    "rendering": display.check_rendering,
}
# Checks that need no env that was built and played before.
WITHOUT_PROFILE = ("machine", "pickling", "api")
# Seconds for each measurement; 60 for those of the other checks.
SECONDS = {"memory": 90.0}
NUM_ENVS = 8
# Checks that hang before the rest is skipped: the rest would hang as well.
MAX_HUNG = 2


@checked_keywords()
def check(
    env: Maker,
    *,
    env_kwargs: dict[str, Any] | None = None,
    num_envs: int = NUM_ENVS,
    seed: int = 0,
    only: Sequence[str] = (),
    seconds: float | None = None,
    tasks: Sequence[Any] = (),
    task_by: TaskBy | None = None,
) -> Report:
    """Find out what an env needs to run in parallel.

    Args:
        env: an id, "module:function", or a factory; of Gymnasium or PettingZoo.
        env_kwargs: keyword arguments for the id or factory.
        num_envs: number of envs in the recommended line.
        seed: seed of episodes and actions.
        only: names of checks, such as "isolation" (default: all of them).
        seconds: seconds allowed for one measurement (default: the check's own limit).
        tasks: tasks to try (default: drawn by the env's `sample_tasks(count, rng)`).
        task_by: how the env is told its task, as for `corral.Pool`.

    Returns:
        The report. `print` shows it; it is true if there is no problem.

    Example:
        >>> report = corral.doctor.check("CartPole-v1", only=["isolation"])
        >>> report.severity
        'ok'
    """
    check_task_by(task_by)
    subject = subject_for(env, env_kwargs, seed)
    subject = replace(subject, tasks=tuple(tasks), task_by=task_by)
    return examine(subject, num_envs, only, seconds)


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
        named = (found.text, found.factory, found.expression, found.import_line)
        return Subject(*named, kwargs, None if found.import_line else env, seed)
    (factory,) = factories_for(env, 1, kwargs)
    name = getattr(env, "__name__", None) or type(env).__name__
    expression = name if name.isidentifier() else "make_env"
    return Subject(name, factory, expression, "", kwargs, None, seed)


def examine(
    subject: Subject,
    num_envs: int = NUM_ENVS,
    only: Sequence[str] = (),
    seconds: float | None = None,
    progress: Callable[[str], object] = lambda name: None,
) -> Report:
    """Run the checks; Ctrl-C ends it with the findings so far."""
    for name in only:
        check_choice("only", name, CHECKS)
    report, began = Report(subject.name), time.perf_counter()
    try:
        for name in CHECKS:
            if only and name not in ("api", *only):  # all others need a first look
                continue
            progress(name)
            subject.seconds = seconds or SECONDS.get(name, 60.0)
            for finding in _findings(name, subject):
                report.findings.append(replace(finding, check=name))
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


def _findings(name: str, subject: Subject) -> Iterator[Finding]:
    """What one check found, or how it failed."""
    if subject._profile is None and name not in WITHOUT_PROFILE:
        return
    try:
        found = CHECKS[name](subject)
        yield from [found] if isinstance(found, Finding) else found
    except MissingExtra as error:
        yield note(f"this check could not run: {error}")
    except FaultError as error:
        yield problem(
            f"this check could not run: {brief(error.fault)}",
            "run the env in a plain loop; --json has the whole text of the error",
            data={"kind": error.fault.kind, "error": str(error)},
        )
    except CorralError as error:
        yield problem(f"this check could not run: {error}")


def _verdict(subject: Subject, report: Report) -> IsolationVerdict | None:
    """What the checks of sharing found, if they finished."""
    known, data = subject._profile, _sharing_data(report.findings)
    if known is None or "isolation" not in data:
        return None
    found = f"corral doctor found ({known.edition or known.subject}): "
    return IsolationVerdict(
        known.subject,
        known.edition,
        data["isolation"],
        data.get("threads"),
        any("isolate_rng" in finding.options for finding in report.findings),
        found + report.of("isolation")[0].measured,
    )


def _sharing_data(findings: Sequence[Finding]) -> dict[str, Any]:
    """The figures of the checks of processes and threads."""
    found = (one.data for one in findings if one.check in ("isolation", "threads"))
    return {name: value for data in found for name, value in data.items()}


# The line to write --------------------------------------------------------------------


def recommend(
    subject: Subject, findings: Sequence[Finding], num_envs: int
) -> Recommendation | None:
    """One sentence, and the line that makes the envs; None if it cannot be run."""
    if subject._profile is None:
        return None
    several = subject._profile.kind != "gymnasium"
    kwargs = dict(subject.kwargs)
    options: dict[str, Any] = {"env_kwargs": kwargs}
    for finding in findings:
        kwargs |= finding.options.get("env_kwargs", {})
        options |= {**finding.options, "env_kwargs": kwargs}
    if several:
        options.pop("infos", None)
    if options.get("isolation") == "slot":  # which are processes already
        options.pop("backend", None)
    sentence, remark = _place(subject, options, num_envs, findings)
    code = make_line(
        "make_multi" if several else "make",
        subject.expression,
        subject.import_line,
        num_envs,
        options,
        remark,
    )
    return Recommendation(sentence, code)


def _place(
    subject: Subject,
    options: dict[str, Any],
    num_envs: int,
    findings: Sequence[Finding],
) -> tuple[str, str]:
    """Where the envs would run, and the remark behind the line."""
    if options.get("isolation") == "slot":
        return f"{num_envs} envs, each in a process of its own.", ""
    if options.get("backend") == "process":
        return f"{num_envs} envs in as many processes as there are cores.", ""
    if subject.cost is None:
        return f'{num_envs} envs; backend="auto" decides where they run.', ""
    measured = _measured(subject, subject.cost, findings)
    placed = choose(num_envs, usable_cores(), measured)
    return f"{placed}.", f'"auto" chooses {placed.backend}'


def _measured(
    subject: Subject, cost: EnvCost, findings: Sequence[Finding]
) -> Measurement:
    """What `auto` would find, from what the checks found."""
    declared = bool(subject.profile.metadata.get(THREADS_KEY))
    data = _sharing_data(findings)
    waits = cost.computing < WAITING_CPU_SHARE and cost.step >= MIN_WAITING_STEP_SECONDS
    safe = data.get("isolation") == "shared" and data.get("threads") is True
    return Measurement(
        cost.step + cost.resetting * cost.step,
        cost.computing,
        threads=declared or (waits and safe),
        thread_gain=float(data.get("gain", 1.0)),
        declared=declared,
    )
