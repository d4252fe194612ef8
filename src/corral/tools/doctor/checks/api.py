"""Can it be sent to a worker, and does it follow the API of Gymnasium or PettingZoo?

Also the first look at the env, with which the other checks plan.
"""

from __future__ import annotations

import importlib
import io
import pickle
import re
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any

import numpy as np

from corral.engine.faults.code_location import location_of_fault
from corral.engine.worker import serialization
from corral.engine.worker.seeds import episode_seed
from corral.engine.worker.step_results import as_reward
from corral.errors import CorralError, FactoryError, Fault, FaultError
from corral.tools.doctor.checks.display import asks_for_window
from corral.tools.doctor.driver import EnvResponse, EpisodeDriver, spaces_of
from corral.tools.doctor.report import Finding, note, ok, problem, warning
from corral.tools.doctor.subject import EnvProfile, Subject, brief, profile_of

# Pickling -----------------------------------------------------------------------------

# Bytes that are better sent once, and not with every factory.
LARGE_FACTORY_BYTES = 10 << 20


def measure_pickling(factory: Callable[[], Any]) -> list[str]:
    """The spaces that pickle does not restore as they were."""
    env, found = factory(), []
    for kind in ("observation", "action"):
        for agent, space in spaces_of(env, kind).items():
            name = f"the {kind} space{f' of {agent}' if agent else ''}"
            try:
                if pickle.loads(pickle.dumps(space)) != space:
                    found.append(f"{name} is not equal to itself after pickling")
            except Exception as error:
                found.append(f"{name}: {type(error).__name__}: {error}")
    env.close()
    return found


def check_pickling(subject: Subject) -> Iterator[Finding]:
    """The factory here, the spaces where the env is."""
    try:
        size = len(serialization.pack(subject.factory, "the factory"))
    except FactoryError as error:
        text = "create such objects inside the factory, or in per_worker="
        yield problem(str(error), text)
        return
    yield _of_factory(subject, size)
    (troubles,) = subject.ask_each(measure_pickling, [()])
    if isinstance(troubles, Fault):
        return  # it cannot be built: the next check says so
    for trouble in troubles:
        yield problem(
            trouble,
            "workers send their spaces: derive yours from Gymnasium's, and keep locks, "
            "files and lambdas out of them",
        )


def _of_factory(subject: Subject, size: int) -> Finding:
    try:
        pickle.dumps(subject.factory)
        how = "plain pickle works too"
    except Exception:
        how = "with cloudpickle; libraries that use plain pickle cannot send it"
    many = f"{size} bytes" if size < 10_000 else f"{size / 2**20:.2f} MiB"
    text, data = f"the factory pickles to {many} ({how})", {"bytes": size}
    if size < LARGE_FACTORY_BYTES:
        return ok(text, data=data)
    remedy = "pass large arrays as shared={...}: one copy in memory for all workers"
    return note(text, remedy, data=data)


# What reset, step and close return ----------------------------------------------------

PLAY_SECONDS = 1.5
PLAY_BYTES = 64 << 20
LARGE_SEED = 2**62 + 1
APIS = {
    "gymnasium": "Gymnasium's API",
    "parallel": "PettingZoo's Parallel API",
    "aec": "PettingZoo's AEC API",
}


def measure_api(
    factory: Callable[[], Any], seed: int, moments: int
) -> tuple[EnvProfile, list[Finding]]:
    """Build, play, close; and close again."""
    driver, began = EpisodeDriver(factory, seed), time.perf_counter()
    found: dict[str, Finding] = {}  # by text: once each
    steps = size = 0
    for moment in driver.play(moments):
        for one in _of_moment(moment, driver.several):
            found.setdefault(one.measured, one)
        size += len(pickle.dumps(moment.obs)) if steps < 2 else 0
        steps += 1
        late = time.perf_counter() - began > PLAY_SECONDS
        if (late and steps > 3) or size * steps > 2 * PLAY_BYTES:
            break  # the other checks play as much
    refused = list(_of_large_seed(driver, steps))
    driver.close()
    return profile_of(driver, steps), [*found.values(), *of_closing(driver), *refused]


def _of_moment(moment: EnvResponse, several: bool) -> Iterator[Finding]:
    kind = moment.what.split()[0]
    if not isinstance(moment.info, dict):
        yield problem(f"the info of a {kind} is {moment.info!r:.60}", "return a dict")
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
        driver.reset(episode_seed(LARGE_SEED) | 1 << 62)
    except Exception as error:
        reason = f"{type(error).__name__}: {error}"
        yield warning(
            f"seeds of 63 bits, which pools use, fail: {reason:.120}",
            "seed with self.np_random (super().reset(seed=seed)), or shorten the seed "
            "in reset(); corral.make(...).reset(seed=small) works without a change",
            f"seeds below 2**31 worked in {steps} resets and steps",
        )


def check_api(subject: Subject) -> Iterator[Finding]:
    """Play it once; the other checks need an env that can be played."""
    try:
        subject._profile, found = subject.ask(
            measure_api, subject.seed, subject.moments
        )
    except CorralError as error:
        if error.fault is None:
            raise
        plain = isinstance(error, FaultError)  # others say what to do
        remedy = _remedy(subject, error.fault) if plain else ""
        data = {"kind": error.fault.kind, "error": str(error)}
        yield problem(brief(error.fault), remedy, data=data)
        return
    yield from found
    checked = _of_checker(subject)
    if checked.severity != "ok" or not found:
        yield checked


def _remedy(subject: Subject, fault: Fault) -> str:
    asked = asks_for_window(subject)
    if asked:
        return f"the env may need a display: try {asked}"
    advice = "make it run in a plain loop first"
    place = location_of_fault(fault) if fault.traceback else None
    if place is not None:
        return f"{advice}; raised in {place}"
    said = fault.output.strip().splitlines()
    if not said or "Current thread" in fault.output:  # the finding says where
        return advice
    return f"{advice}; its last output: {said[-1]:.160}"


# Gymnasium's `check_env` and PettingZoo's API tests -----------------------------------

# Kind of env -> the module of its checker, its name, and its options.
CHECKERS: dict[str, tuple[str, str, dict[str, Any]]] = {
    "gymnasium": (
        "gymnasium.utils.env_checker",
        "check_env",
        # Other checks look at these, in processes of their own.
        {"skip_render_check": True, "skip_close_check": True},
    ),
    "parallel": (
        "pettingzoo.test.parallel_test",
        "parallel_api_test",
        {"num_cycles": 100},
    ),
    "aec": ("pettingzoo.test.api_test", "api_test", {"num_cycles": 100}),
}
# Modules whose warnings are meant; the env and its libraries may have others.
FILES = ("env_checker", "passive_env_checker", "api_test", "parallel_test")
# Of an env with wrappers, which is how `gymnasium.make` makes them.
BESIDE_THE_POINT = "is different from the unwrapped version"


def complaints(factory: Callable[[], Any], kind: str) -> tuple[str, list[str]]:
    """Run the checker of this kind of env on a new one; its error and its warnings."""
    home, name, options = CHECKERS[kind]
    error = ""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            checker = getattr(importlib.import_module(home), name)
        except ImportError:  # PettingZoo's tests need more than PettingZoo itself
            return "", []
        env = factory()
        try:
            with redirect_stdout(io.StringIO()):
                checker(env, **options)
        except Exception as raised:
            error = _plain(f"{type(raised).__name__}: {raised}")
        env.close()
    said = [str(one.message) for one in caught if Path(one.filename).stem in FILES]
    texts = [_plain(text) for text in said if BESIDE_THE_POINT not in text]
    return error, list(dict.fromkeys(texts))


def _plain(text: str) -> str:
    """Without colours, and in one line."""
    text = re.sub(r"\x1b\[[0-9;]*m", "", text)
    text = text.removeprefix("WARN: ").removeprefix("AssertionError: ")
    return f"{' '.join(text.split()):.200}".rstrip(".")


def _of_checker(subject: Subject) -> Finding:
    """What the API's own checker says about it."""
    kind, steps = subject.profile.kind, subject.profile.steps
    text, name = f"follows {APIS[kind]} in {steps} resets and steps", CHECKERS[kind][1]
    (answer,) = subject.ask_each(complaints, [(kind,)])
    if isinstance(answer, Fault):
        return note(f"{text}; {name} could not run: {brief(answer)}")
    error, said = answer
    if error:
        remedy = "Corral can run it; other libraries may need what is missing"
        return note(f"{text}, but {name} fails: {error}", remedy)
    warned = f" and warns: {'; '.join(said)}" if said else ""
    return ok(f"{text}; {name} passes{warned}")
