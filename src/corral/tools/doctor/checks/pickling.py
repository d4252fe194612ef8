"""Whether the factory can be sent to a worker, and the spaces back."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterator
from typing import Any

from corral.engine.adapters.env_names import is_pettingzoo
from corral.engine.worker import serialization
from corral.errors import FactoryError, Fault
from corral.tools.doctor.contract import Check
from corral.tools.doctor.finding import Finding
from corral.tools.doctor.subject import Subject

LARGE_FACTORY_BYTES = 10 << 20
"""Bytes that are better sent once, and not with every factory."""


def measure(factory: Callable[[], Any]) -> list[str]:
    """The spaces that do not come back from a round trip as they were."""
    env = factory()
    found = []
    for name, space in _spaces(env):
        try:
            if pickle.loads(pickle.dumps(space)) != space:
                found.append(f"the {name} comes back as another")
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
        yield Finding(
            "pickling",
            "problem",
            str(error),
            "build what cannot be pickled inside the factory, or in per_worker=",
        )
        return
    yield _of_factory(subject, size)
    (troubles,) = subject.ask_each(measure, [()])
    if isinstance(troubles, Fault):
        return  # it cannot be built: the next check tells
    for trouble in troubles:
        yield Finding(
            "pickling",
            "problem",
            trouble,
            "spaces travel from the workers: derive yours from gymnasium's, and keep "
            "locks, files and lambdas out of them",
        )


def _of_factory(subject: Subject, size: int) -> Finding:
    try:
        pickle.dumps(subject.factory)
        how = "by plain pickle, too"
    except Exception:
        how = "by cloudpickle; libraries that pickle plainly would refuse it"
    text = f"the factory travels in {_bytes(size)}, {how}"
    if size < LARGE_FACTORY_BYTES:
        return Finding("pickling", "ok", text, data={"bytes": size})
    return Finding(
        "pickling",
        "note",
        text,
        "give large arrays as shared={...}: one copy in memory for all workers",
        data={"bytes": size},
    )


def _bytes(size: int) -> str:
    return f"{size} bytes" if size < 10_000 else f"{size / 2**20:.2f} MiB"


CHECK = Check("pickling", examine, needs_profile=False)
