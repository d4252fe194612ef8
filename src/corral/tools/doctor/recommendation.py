"""Which line to write, from what was found."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from corral.engine.executors.assign import choose, usable_cores
from corral.engine.worker.probe import (
    MIN_WAITING_STEP_SECONDS,
    WAITING_CPU_SHARE,
    Measurement,
)
from corral.engine.worker.probed_env import THREADS_KEY
from corral.tools.doctor.finding import Finding
from corral.tools.doctor.report import Recommendation
from corral.tools.doctor.subject import EnvCost, Subject
from corral.tools.make_line import make_line


def recommend(
    subject: Subject, findings: Sequence[Finding], num_envs: int
) -> Recommendation | None:
    """One sentence, and the line that makes the envs; None if it cannot be run."""
    if subject._profile is None:
        return None
    several = subject._profile.kind != "gymnasium"
    options: dict[str, Any] = {"env_kwargs": {}}
    for finding in findings:
        options |= finding.options
    options["env_kwargs"] = {**subject.kwargs, **options["env_kwargs"]}
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


def _measured(
    subject: Subject, cost: EnvCost, findings: Sequence[Finding]
) -> Measurement:
    """What `auto` would find, from what the checks found."""
    declared = bool(subject.profile.metadata.get(THREADS_KEY))
    data = {name: value for one in findings for name, value in one.data.items()}
    waits = cost.computing < WAITING_CPU_SHARE and cost.step >= MIN_WAITING_STEP_SECONDS
    safe = data.get("isolation") == "shared" and data.get("threads") is True
    return Measurement(
        cost.step + cost.resetting * cost.step,
        cost.computing,
        threads=declared or (waits and safe),
        thread_gain=float(data.get("gain", 1.0)),
        declared=declared,
    )


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
