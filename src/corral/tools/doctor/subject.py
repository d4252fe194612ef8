"""The env under examination: what is known of it, and how it is asked more.

    check ── subject.ask(measure) ──► a worker of its own: measure(factory, ...)
      ◄── a value, or FaultError ─────  raised, died, hung: never here

Every question gets a fresh process, so no check finds what another one left. What the
env prints there goes to a file, also when the env raises, hangs, exits or crashes.
"""

from __future__ import annotations

import functools
import inspect
import os
import sys
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from gymnasium.envs.registration import load_env_creator

from corral.core import Factory
from corral.engine.adapters.env_names import make_registered
from corral.engine.adapters.isolation import edition_of, subject_of
from corral.engine.adapters.task_delivery import TaskBy, method_of, way_for
from corral.engine.faults.code_location import location_of_fault
from corral.engine.faults.report import error_for
from corral.engine.parallel_map import map as run_in_workers
from corral.engine.worker import serialization
from corral.errors import Fault
from corral.tools.doctor.driver import EpisodeDriver
from corral.tools.output_file import last_output, write_output_to

# Bytes of output that a fault shows.
KEPT_OUTPUT_BYTES = 16 * 1024
# measure(factory, *arguments) -> something that can be pickled.
Measure = Callable[..., Any]


@dataclass(frozen=True, slots=True)
class EnvCost:
    """Seconds that the env takes, and what they go into.

    Attributes:
        slowest: A step that 1 in 100 is slower than.
        computing: The fraction of a step that needs a core.
        resetting: The fraction of the time that goes into resets, as episodes end by
            themselves.
    """

    step: float
    slowest: float
    reset: float
    construct: float
    computing: float
    resetting: float


@dataclass(frozen=True, slots=True)
class EnvProfile:
    """What can be seen of an env that was played once.

    Attributes:
        kind: gymnasium | parallel | aec
        steps: Moments that a run of it has in the other checks.
        arguments: What it was made with, as far as that can be seen.
        task_by: How it is told its tasks.
        draws_tasks: Whether it has `sample_tasks`.
        uses_pybullet: Whether its process has imported PyBullet.
    """

    subject: str
    edition: str
    kind: str
    steps: int
    metadata: dict[str, Any]
    render_mode: str | None
    arguments: dict[str, Any]
    task_by: str
    draws_tasks: bool
    uses_pybullet: bool = False


def profile_of(driver: EpisodeDriver, steps: int) -> EnvProfile:
    """The profile of an env that was played for so many resets and steps."""
    env = driver.env
    plain = (str, int, float, bool, list, tuple, type(None))
    metadata = (getattr(env, "metadata", None) or {}).items()
    return EnvProfile(
        subject_of(env),
        edition_of(env),
        driver.kind,
        steps,
        {str(key): value for key, value in metadata if isinstance(value, plain)},
        getattr(env, "render_mode", None),
        _arguments_of(env),
        str(way_for(env)),
        method_of(env, "sample_tasks") is not None,
        "pybullet" in sys.modules,
    )


def _arguments_of(env: Any) -> dict[str, Any]:
    """Plain values of arguments: of its registration, else what its parts remember."""
    found: dict[str, Any] = {}
    spec: Any = getattr(env, "spec", None)
    creator = getattr(spec, "entry_point", None)
    if creator is not None:
        made_by = load_env_creator(creator) if isinstance(creator, str) else creator
        found |= {**_parameters_of(made_by), **spec.kwargs}
    while env is not None:
        inside = getattr(env, "__dict__", {})
        for one in _parameters_of(type(env)):
            found[one] = inside.get(f"_{one}", inside.get(one, found.get(one)))
        env = inside.get("env")
    return {key: value for key, value in found.items() if type(value) in (bool, str)}


def _parameters_of(made_by: Callable[..., Any]) -> dict[str, Any]:
    """The names that a factory can be given, and their defaults."""
    try:
        parameters = inspect.signature(made_by).parameters.values()
    except (TypeError, ValueError):  # written in C
        return {}
    named = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
    return {one.name: one.default for one in parameters if one.kind in named}


@dataclass(slots=True)
class Subject:
    """One kind of env, and what the checks so far know of it.

    Attributes:
        expression: How a program names it.
        registered: Its id, where it was named by that.
        tasks: To try, where they were given.
        task_by: How to tell it these, where that was given.
        seconds: For one question.
        moments: Resets and steps of a run, where they take little time and memory.
        shares: Whether several may share a process; None if that was not tried.
        draws_globally: Whether what it does depends on global generators.
    """

    name: str
    factory: Factory
    expression: str = "make_env"
    import_line: str = ""
    kwargs: dict[str, Any] = field(default_factory=dict)
    registered: str | None = None
    seed: int = 0
    tasks: tuple[Any, ...] = ()
    task_by: TaskBy | None = None
    seconds: float = 60.0
    moments: int = 300
    _profile: EnvProfile | None = None
    shares: bool | None = None
    draws_globally: bool = False
    cost: EnvCost | None = None

    @property
    def profile(self) -> EnvProfile:
        """What the first look found; checks that need it come after it."""
        assert self._profile is not None
        return self._profile

    @property
    def arguments(self) -> dict[str, Any]:
        """What it is made with, as far as that is known."""
        seen = {} if self._profile is None else self._profile.arguments
        return {**_parameters_of(self.factory), **seen, **self.kwargs}

    def given(self, name: str, value: Any) -> Subject | None:
        """The same env with another argument; None if it cannot be given one."""
        kwargs = {**self.kwargs, name: value}
        factory: Factory
        if self.registered is not None:
            factory = functools.partial(make_registered, self.registered, kwargs)
        elif name in _parameters_of(self.factory):
            factory = functools.partial(self.factory, **{name: value})
        else:
            return None
        return replace(self, factory=factory, kwargs=kwargs)

    def ask(self, measure: Measure, *arguments: Any) -> Any:
        """Measure in a worker of its own; raises FaultError if the env fails there."""
        return self.ask_all(measure, [arguments])[0]

    def ask_all(
        self, measure: Measure, arguments: Sequence[tuple[Any, ...]]
    ) -> list[Any]:
        """The same side by side, a worker each."""
        answers = self.ask_each(measure, arguments)
        for answer in answers:
            if isinstance(answer, Fault):
                raise error_for(answer)
        return answers

    def ask_each(
        self, measure: Measure, arguments: Sequence[tuple[Any, ...]]
    ) -> list[Any]:
        """The same; a Fault stands where one failed."""
        packed = serialization.pack(self.factory, "the factory")
        factory = serialization.Unpacked(packed)
        with tempfile.TemporaryDirectory() as folder:
            outputs = [os.path.join(folder, str(n)) for n in range(len(arguments))]
            answers = run_in_workers(
                _measured,
                [
                    (output, measure, factory, given)
                    for output, given in zip(outputs, arguments, strict=True)
                ],
                workers=len(arguments),
                on_fault="restart",
                max_restarts=0,
                item_timeout=self.seconds,
            )
            return list(map(_with_output, answers, outputs))


def _measured(
    task: tuple[str, Measure, serialization.Unpacked, tuple[Any, ...]],
) -> Any:
    """The body of the worker."""
    output, measure, factory, arguments = task
    write_output_to(output)  # importing the factory's modules may print too
    return measure(factory.open(), *arguments)


def _with_output(answer: Any, path: str) -> Any:
    """A fault with what was printed before it."""
    if not isinstance(answer, Fault):
        return answer
    output = last_output(path, KEPT_OUTPUT_BYTES)
    return replace(
        answer, item=None, worker=None, restarts=0, gave_up=False, output=output
    )


def brief(fault: Fault) -> str:
    """What went wrong, in a line; of a crash or a hang, also where."""
    crashed = fault.kind == "died" and "Current thread" in fault.output
    place = location_of_fault(fault) if crashed or fault.stack else None
    if fault.kind == "died":
        how = fault.signal_name or f"exit code {fault.exit_code}"
        ended = f"the env ended its process ({how})"
        return ended if place is None else f"{ended} in {place}"
    if fault.kind == "hung":
        late = f"the env did not return within {fault.limit or 0:g} s"
        return late if place is None else f"{late}; it was in {place}"
    text = (fault.error_text or "").strip().splitlines()
    return f"{fault.error_type}: {text[0] if text else ''}".rstrip(": ")
