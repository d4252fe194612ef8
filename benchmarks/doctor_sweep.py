"""What the doctor says of environments that many people use.

    python benchmarks/doctor_sweep.py                    # all, a quarter of an hour
    python benchmarks/doctor_sweep.py --only Ant,simple_spread
    python benchmarks/doctor_sweep.py --json sweep.json

Every environment of Gymnasium's classic control, toy text, Box2D and MuJoCo, and of
mpe2 (Parallel and AEC), as far as they are installed; then upkie and the zoo's bullet
pendulum. Lists every warning and problem, its remedy, and what was measured with the
remedy applied. Claims:

quiet     no warning whose remedy was not seen to change something
passed    CartPole, Ant and the bullet pendulum have neither warnings nor problems
caught    upkie is not safe to share a process
quick     CartPole is examined in 60 s, upkie in 180 s
"""

from __future__ import annotations

import argparse
import functools
import importlib.util
import json
import pkgutil
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import gymnasium
from gymnasium.envs.registration import find_highest_version

from corral.doctor import Report, check

FAMILIES = ("classic_control", "toy_text", "box2d", "mujoco")
PASSED = ("CartPole-v1", "Ant-v5", "bullet_pendulum")
CARTPOLE_SECONDS, UPKIE_SECONDS = 60.0, 180.0

Subject = str | Callable[[], Any]


def registered() -> Iterator[tuple[str, Subject]]:
    """The newest ids of Gymnasium's own families that can be made here."""
    for env_id, spec in sorted(gymnasium.registry.items()):
        entry = str(spec.entry_point)
        ours = any(entry.startswith(f"gymnasium.envs.{name}") for name in FAMILIES)
        newest = find_highest_version(spec.namespace, spec.name) == spec.version
        if ours and newest and _can_be_made(env_id):
            yield env_id, env_id


def _can_be_made(env_id: str) -> bool:
    try:
        gymnasium.make(env_id).close()
    except Exception as error:
        reason = str(error).partition("\n")[0]
        print(f"{env_id} is left out: {type(error).__name__}: {reason:.90}")
        return False
    return True


def particle() -> Iterator[tuple[str, Subject]]:
    """mpe2's, in both of PettingZoo's forms."""
    try:
        import mpe2
    except ImportError:
        print("mpe2 is left out: pip install mpe2")
        return
    for module in pkgutil.iter_modules(mpe2.__path__):
        if module.name.rpartition("_v")[2].isdigit():
            for form in ("parallel_env", "env"):
                made = functools.partial(_particle, module.name, form)
                yield f"mpe2.{module.name}:{form}", made


def _particle(name: str, form: str) -> Any:
    return getattr(importlib.import_module(f"mpe2.{name}"), form)()


def robots() -> Iterator[tuple[str, Subject]]:
    """PyBullet's."""
    try:
        import pybullet  # noqa: F401

        from corral.zoo.bullet_pendulum import make

        yield "bullet_pendulum", make
    except ImportError:
        print("the bullet pendulum is left out: pip install pybullet")
    if importlib.util.find_spec("upkie") is None:
        print("upkie is left out: pip install upkie==13.1.0 pybullet")
    else:
        yield "upkie", _upkie


def _upkie() -> Any:
    import upkie.envs

    upkie.envs.register()
    options = {"gui": False, "regulate_frequency": False}
    return gymnasium.make("Upkie-PyBullet-Pendulum", **options)


def sweep(wanted: list[str]) -> dict[str, Report]:
    """Examine them, one after the other."""
    reports = {}
    for name, subject in (*registered(), *particle(), *robots()):
        if wanted and not any(part in name for part in wanted):
            continue
        report = reports[name] = check(subject)
        print(f"{name:44} {report.severity:8} {report.seconds:5.1f} s", flush=True)
        for finding in report.findings:
            if finding.severity in ("warning", "problem"):
                print(f"    {finding}".replace("\n", "\n    "), flush=True)
    return reports


def claims(reports: dict[str, Report]) -> Iterator[tuple[str, bool, str]]:
    """Name, whether it is met, and the figures."""
    warnings = [(n, one) for n, report in reports.items() for one in report.warnings]
    idle = [name for name, one in warnings if not one.tried]
    text = f"{len(warnings)} warnings in {len(reports)} envs, {len(idle)} untried"
    yield "quiet", not idle, f"{text} {idle or ''}".rstrip()
    for name in PASSED:
        if name in reports:
            found = reports[name].severity
            yield "passed", found in ("ok", "note"), f"{name}: {found}"
    limits = (("CartPole-v1", CARTPOLE_SECONDS), ("upkie", UPKIE_SECONDS))
    for name, limit in limits:
        if name in reports:
            seconds = reports[name].seconds
            yield "quick", seconds < limit, f"{name}: {seconds:.0f} s of {limit:.0f}"
    if "upkie" in reports:
        found = reports["upkie"].verdict
        isolation = None if found is None else found.isolation
        yield "caught", isolation == "slot", f"upkie: isolation {isolation!r}"


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--only", default="", help="parts of names, with commas")
    parser.add_argument("--json", type=Path, metavar="FILE")
    arguments = parser.parse_args()
    reports = sweep([part for part in arguments.only.split(",") if part])
    met = True
    for name, holds, text in claims(reports):
        print(f"{'met    ' if holds else 'NOT MET'} {name}: {text}")
        met = met and holds
    if arguments.json is not None:
        found = {name: report.document() for name, report in reports.items()}
        arguments.json.write_text(json.dumps(found, indent=2) + "\n")
    return 0 if met else 1


if __name__ == "__main__":
    sys.exit(main())
