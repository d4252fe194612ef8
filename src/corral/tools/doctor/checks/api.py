"""Does it follow the API of Gymnasium or PettingZoo? Also the first look at the env."""

from __future__ import annotations

import pickle
import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from corral.engine.worker.seeds import episode_seed
from corral.engine.worker.step_results import as_reward
from corral.errors import CorralError, Fault, FaultError
from corral.tools.doctor.api_checkers import CHECKERS, complaints
from corral.tools.doctor.checks.window import asks_for_window
from corral.tools.doctor.driver import EnvResponse, EpisodeDriver
from corral.tools.doctor.env_profile import EnvProfile, profile_of
from corral.tools.doctor.finding import Finding, note, ok, problem, warning
from corral.tools.doctor.subject import Subject, brief

PLAY_SECONDS = 1.5
PLAY_BYTES = 64 << 20
LARGE_SEED = 2**62 + 1
APIS = {
    "gymnasium": "Gymnasium's API",
    "parallel": "PettingZoo's Parallel API",
    "aec": "PettingZoo's AEC API",
}


def measure(
    factory: Callable[[], Any], seed: int, moments: int
) -> tuple[EnvProfile, list[Finding]]:
    """Build, play, close; and close again."""
    driver = EpisodeDriver(factory, seed)
    found: dict[str, Finding] = {}  # by text: once each
    steps = 0
    for moment in _played(driver, moments):
        for one in _of_moment(moment, driver.env_driver.several):
            found.setdefault(one.measured, one)
        steps += 1
    refused = list(_of_large_seed(driver, steps))
    driver.close()
    findings = [*found.values(), *of_closing(driver), *refused]
    return profile_of(driver, steps), findings


def _played(driver: EpisodeDriver, moments: int) -> Iterator[EnvResponse]:
    """As much as the other checks will play."""
    began, size = time.perf_counter(), 0
    for count in range(moments):
        moment = driver.advance()
        yield moment
        size += len(pickle.dumps(moment.obs)) if count < 2 else 0
        late = time.perf_counter() - began > PLAY_SECONDS
        if (late and count >= 3) or size * count > 2 * PLAY_BYTES:
            return


def _of_moment(moment: EnvResponse, several: bool) -> Iterator[Finding]:
    kind = moment.what.split()[0]
    if not isinstance(moment.info, dict):
        text = f"the info of a {kind} is {moment.info!r:.60}"
        yield problem(text, "return a dict")
    for reward in moment.reward.values() if several else [moment.reward]:
        try:
            as_reward(reward)
        except ValueError as error:
            yield problem(f"{kind}: {error}", "return one float")
    for name in ("terminated", "truncated"):
        flags = getattr(moment, name)
        for flag in flags.values() if several else [flags]:
            if not isinstance(flag, (bool, np.bool_)):
                yield problem(f"{name} is {flag!r:.60}", "return a bool")


def of_closing(driver: EpisodeDriver) -> Iterator[Finding]:
    """Close a closed env: some wrappers, and `with` blocks, close twice."""
    try:
        driver.close()
    except Exception as error:
        text = f"a second close() raises {type(error).__name__}: {error}"
        yield note(text, "let close() be called twice")


def _of_large_seed(driver: EpisodeDriver, steps: int) -> Iterator[Finding]:
    """Reset with a seed of the size that pools use."""
    try:
        driver.env_driver.reset(episode_seed(LARGE_SEED) | 1 << 62, "reset")
    except Exception as error:
        reason = f"{type(error).__name__}: {error}"
        yield warning(
            f"seeds of 63 bits, which pools use, fail: {reason:.120}",
            "seed with self.np_random (super().reset(seed=seed)), or shorten the seed "
            "in reset(); corral.make(...).reset(seed=small) works without a change",
            f"seeds below 2**31 worked in {steps} resets and steps",
        )


# In the caller ------------------------------------------------------------------------


def examine(subject: Subject) -> Iterator[Finding]:
    """Play it once; the other checks need an env that can be played."""
    try:
        subject._profile, found = subject.ask(measure, subject.seed, subject.moments)
    except FaultError as error:
        yield problem(brief(error), _remedy(subject, error.fault))
        return
    except CorralError as error:  # its text says what to do
        if error.fault is None:
            raise
        yield problem(brief(error.fault))
        return
    yield from found
    checked = _of_checker(subject)
    if checked.severity != "ok" or not found:
        yield checked


def _of_checker(subject: Subject) -> Finding:
    """What the API's own checker says about it."""
    kind, steps = subject.profile.kind, subject.profile.steps
    text, name = f"follows {APIS[kind]} in {steps} resets and steps", CHECKERS[kind][1]
    (answer,) = subject.ask_each(complaints, [(kind,)])
    if isinstance(answer, Fault):
        return note(f"{text}; {name} could not run: {brief(answer)}")
    error, warnings = answer
    if error:
        remedy = "Corral can run it; other libraries may need what is missing"
        return note(f"{text}, but {name} fails: {error}", remedy)
    warned = f" and warns: {'; '.join(warnings)}" if warnings else ""
    return ok(f"{text}; {name} passes{warned}")


def _remedy(subject: Subject, fault: Fault) -> str:
    asked = asks_for_window(subject)
    if asked:
        return f"the env may need a display: try {asked}"
    advice = "make it run in a plain loop first"
    if fault.kind in ("died", "hung"):
        # Of a crash, where it was: what comes after that is about the interpreter.
        output = fault.output.splitlines()
        last = [*_places(fault.output), *(line for line in output[-1:] if line.strip())]
        return f"{advice}; its last output: {last[0]:.160}" if last else advice
    places = _places(fault.traceback or "")
    return f"{advice}; raised in {places[-1]}" if places else advice


def _places(text: str) -> list[str]:
    """The lines of a traceback that name a file."""
    lines = [line.strip() for line in text.splitlines()]
    return [line for line in lines if line.startswith("File ")]
