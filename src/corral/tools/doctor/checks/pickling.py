"""Whether the factory can be sent to a worker, and the spaces back."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterator
from typing import Any

from corral.engine.adapters.env_names import is_pettingzoo
from corral.engine.worker import serialization
from corral.errors import FactoryError, Fault
from corral.tools.doctor.finding import Finding, note, ok, problem
from corral.tools.doctor.subject import Subject

LARGE_FACTORY_BYTES = 10 << 20
"""Bytes that are better sent once, and not with every factory."""


def measure(factory: Callable[[], Any]) -> list[str]:
    """The spaces that pickle does not restore as they were."""
    env, found = factory(), []
    for name, space in _spaces(env):
        try:
            if pickle.loads(pickle.dumps(space)) != space:
                found.append(f"the {name} is not equal to itself after pickling")
        except Exception as error:
            found.append(f"the {name}: {type(error).__name__}: {error}")
    env.close()
    return found


def _spaces(env: Any) -> Iterator[tuple[str, Any]]:
    for kind in ("observation", "action"):
        space = getattr(env, f"{kind}_space", None)
        if not is_pettingzoo(env):
            yield f"{kind} space", space
        elif space is not None:
            for agent in env.possible_agents:
                yield f"{kind} space of {agent}", space(agent)


def examine(subject: Subject) -> Iterator[Finding]:
    """The factory here, the spaces where the env is."""
    try:
        size = len(serialization.pack(subject.factory, "the factory"))
    except FactoryError as error:
        remedy = "create such objects inside the factory, or in per_worker="
        yield problem(str(error), remedy)
        return
    yield _of_factory(subject, size)
    (troubles,) = subject.ask_each(measure, [()])
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
