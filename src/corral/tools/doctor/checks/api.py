"""Does it answer as Gymnasium, or PettingZoo, says? Also the first look at the env."""

from __future__ import annotations

import pickle
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from gymnasium import Space

from corral.engine.worker.seeds import episode_seed
from corral.engine.worker.step_results import as_reward
from corral.errors import CorralError, FaultError
from corral.tools.doctor.checks.window import asks_for_window
from corral.tools.doctor.contract import Check
from corral.tools.doctor.driver import EpisodeDriver
from corral.tools.doctor.env_profile import EnvProfile, profile_of
from corral.tools.doctor.env_response import EnvDriver, EnvResponse
from corral.tools.doctor.finding import Finding, Severity
from corral.tools.doctor.subject import Subject, brief

PLAY_SECONDS = 1.5
PLAY_BYTES = 64 << 20
LARGE_SEED = 2**62 + 1


@dataclass(frozen=True, slots=True)
class ApiTrouble:
    """Something that is not as it should be."""

    severity: Severity
    text: str
    remedy: str


@dataclass(frozen=True, slots=True)
class FirstLook:
    """What was seen when the env was first played."""

    profile: EnvProfile
    troubles: tuple[ApiTrouble, ...]
    large_seed: str
    """What it said to a seed that does not fit 32 bits; "" if it took it."""


def measure(factory: Callable[[], Any], seed: int, moments: int) -> FirstLook:
    """Build, play, close; and close again."""
    driver = EpisodeDriver(factory, seed)
    found: dict[str, ApiTrouble] = {}  # by text: once each

    def add(troubles: Iterable[ApiTrouble]) -> None:
        for trouble in troubles:
            found.setdefault(trouble.text, trouble)

    add(_of_spaces(driver.env_driver))
    steps = 0
    for moment in _played(driver, moments):
        add(_of_moment(moment, driver.env_driver))
        steps += 1
    refused = _large_seed(driver)
    driver.close()
    add(of_closing(driver))
    return FirstLook(profile_of(driver, steps), tuple(found.values()), refused)


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


# What is to be as the API says --------------------------------------------------------


def _of_spaces(env_driver: EnvDriver) -> Iterator[ApiTrouble]:
    kinds = (
        ("observation", env_driver.observation_spaces),
        ("action", env_driver.action_spaces),
    )
    for kind, spaces in kinds:
        for agent, space in spaces.items():
            if not isinstance(space, Space):
                name = f"the {kind} space{f' of {agent}' if agent else ''}"
                text = f"{name} is {space!r:.60}"
                yield ApiTrouble("problem", text, "make it a gymnasium.Space")
    if "" in env_driver.action_spaces:
        return
    for agent in env_driver.env.possible_agents:
        if env_driver.env.action_space(agent) is not env_driver.env.action_space(agent):
            yield ApiTrouble(
                "note",
                f"action_space({agent!r}) is another object every time",
                "keep one for each agent: seeding it has no effect otherwise",
            )


def _of_moment(moment: EnvResponse, env_driver: EnvDriver) -> Iterator[ApiTrouble]:
    kind = moment.what.split()[0]
    several = "" not in env_driver.action_spaces
    if not isinstance(moment.info, dict):
        text = f"the info of a {kind} is {moment.info!r:.60}"
        yield ApiTrouble("problem", text, "return a dict")
    rewards = moment.reward.values() if several else [moment.reward]
    for reward in rewards:
        try:
            as_reward(reward)
        except ValueError as error:
            yield ApiTrouble("problem", f"{kind}: {error}", "return one float")
    for name in ("terminated", "truncated"):
        flags = getattr(moment, name)
        for flag in flags.values() if several else [flags]:
            if not isinstance(flag, (bool, np.bool_)):
                text = f"{name} is {flag!r:.60}"
                yield ApiTrouble("problem", text, "return a bool")


def of_closing(driver: EpisodeDriver) -> Iterator[ApiTrouble]:
    """Some wrappers close twice, and so does who closes and then forgets."""
    try:
        driver.close()
    except Exception as error:
        text = f"a second close() raises {type(error).__name__}: {error}"
        yield ApiTrouble("note", text, "let close() be called twice")


def _large_seed(driver: EpisodeDriver) -> str:
    """What it says to a seed as pools give them."""
    try:
        driver.env_driver.reset(episode_seed(LARGE_SEED) | 1 << 62, "reset")
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return ""


# What it means ------------------------------------------------------------------------


def examine(subject: Subject) -> Iterator[Finding]:
    """Play it once; without that nothing else has a meaning."""
    try:
        look: FirstLook = subject.ask(measure, subject.seed, subject.moments)
    except FaultError as error:
        yield Finding("api", "problem", brief(error), _remedy(subject, error))
        return
    except CorralError as error:  # what it returned, or is, tells what to do
        if error.fault is None:
            raise
        yield Finding("api", "problem", brief(error.fault))
        return
    subject._profile = look.profile
    for trouble in look.troubles:
        yield Finding("api", trouble.severity, trouble.text, trouble.remedy)
    if look.large_seed:
        yield Finding(
            "api",
            "warning",
            f"seeds of 63 bits, as pools give them, fail: {look.large_seed:.120}",
            "seed with self.np_random (super().reset(seed=seed)), or cut seeds down "
            "in reset(); corral.make(...).reset(seed=small) works as it is",
            f"seeds below 2**31 were taken, {look.profile.steps} resets and steps long",
        )
    if not look.troubles:
        kind = {"gymnasium": "Gymnasium's API", "aec": "PettingZoo's AEC API"}.get(
            look.profile.kind, "PettingZoo's Parallel API"
        )
        text = f"answers as {kind} says, {look.profile.steps} resets and steps long"
        yield Finding("api", "ok", text)


def _remedy(subject: Subject, error: FaultError) -> str:
    lines = [line for line in error.fault.output.splitlines() if line.strip()]
    asked = asks_for_window(subject)
    if asked:
        return f"it may be that it wants a window: try {asked}"
    if error.fault.kind in ("died", "hung"):
        last = _last_words(lines)
        place = f"; its last output: {last:.160}" if last else ""
        return f"make it run by itself first, in a plain loop{place}"
    place = _place(error.fault.traceback or "")
    return f"make it run by itself first, in a plain loop{place}"


def _last_words(lines: list[str]) -> str:
    """Of a crash, where it was: what comes after that is about the interpreter."""
    where = [line.strip() for line in lines if line.lstrip().startswith("File ")]
    return next(iter([*where, *lines[-1:]]), "")


def _place(trace: str) -> str:
    """Where it was raised."""
    lines = [line.strip() for line in trace.splitlines() if "File " in line]
    return f"; raised in {lines[-1]}" if lines else ""


CHECK = Check("api", examine, needs_profile=False)
