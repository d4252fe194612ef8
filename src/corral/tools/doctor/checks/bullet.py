"""Does every call of PyBullet say which simulator it is for?"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import asdict, replace
from functools import partial
from itertools import groupby
from typing import Any

from corral.engine.worker import serialization
from corral.tools.doctor.bullet_calls import CLIENT, TO_PASS, BulletCall, watch
from corral.tools.doctor.driver import EpisodeDriver
from corral.tools.doctor.report import Finding, note, ok, problem, warning
from corral.tools.doctor.subject import Subject


def make_late(packed: serialization.Unpacked) -> Any:
    """Import the env's modules now, when pybullet is watched, and build it."""
    return packed.open()()


def measure_calls(
    factory: Callable[[], Any], seed: int, moments: int
) -> list[BulletCall]:
    """Build, play, render and close; the calls that name no simulator."""
    with watch() as calls, EpisodeDriver(factory, seed) as driver:
        for _ in driver.play(moments):
            pass
        if getattr(driver.env, "render_mode", None) == "rgb_array":
            driver.env.render()
    return calls.found()


def check_bullet(subject: Subject) -> Iterator[Finding]:
    """Nothing for envs without PyBullet."""
    if not subject.profile.uses_pybullet:
        return
    packed = serialization.Unpacked(serialization.pack(subject.factory, "the factory"))
    late = replace(subject, factory=partial(make_late, packed))
    calls = late.ask(measure_calls, subject.seed, subject.profile.steps)
    if not calls:
        yield ok(f"every call of PyBullet says which simulator it is for ({CLIENT})")
        return
    yield _lacking(subject, [call for call in calls if call.name != "connect"], calls)


def _lacking(
    subject: Subject, lacking: list[BulletCall], calls: list[BulletCall]
) -> Finding:
    many = "1 call" if len(lacking) == 1 else f"{len(lacking)} calls"
    text = (
        f"{many} of PyBullet without {CLIENT}: in a process with several envs "
        "all of them go to simulator 0, which belongs to the first env"
    )
    if subject.shares:
        text += "; two envs in one process did the same as alone nevertheless"
    severity = {True: note, False: problem, None: warning}[subject.shares]
    return severity(
        text,
        "pass it, as in the corrected lines below",
        data={"calls": [asdict(call) for call in calls]},
        details=tuple(_lines(calls)),
    )


def _lines(calls: list[BulletCall]) -> Iterator[str]:
    """The corrected calls, file by file."""
    yield f"Calls of PyBullet, corrected with {CLIENT}:"
    for file, found in groupby(calls, lambda call: call.file):
        yield f"  {file}"
        for call in found:
            text = call.corrected or f"{call.name}(..., {CLIENT}=...)"
            yield f"    line {call.line}, {call.function}: {text}"
    if any(call.corrected.endswith(f"{CLIENT}={TO_PASS})") for call in calls):
        yield f"{TO_PASS} is what connect() returned: pass it on to these functions."
    yield "Calls that did not run in this examination are not listed."
