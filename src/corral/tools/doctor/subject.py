"""The env under examination: what is known of it, and how it is asked more.

    check ── subject.ask(measure) ──► a worker of its own: measure(factory, ...)
      ◄── a value, or FaultError ─────  raised, died, hung: never here

Every question gets a fresh process, so no check finds what another one left.
"""

from __future__ import annotations

import functools
import os
import tempfile
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from corral.core import Factory
from corral.engine.adapters.env_names import make_registered
from corral.engine.faults.report import error_for
from corral.engine.parallel_map import map as run_in_workers
from corral.engine.worker import serialization
from corral.errors import Fault, FaultError
from corral.tools.doctor.driver import EnvResponse
from corral.tools.doctor.env_profile import EnvProfile, parameters_of
from corral.tools.doctor.worker_task import Measure, WorkerTask, run

KEPT_OUTPUT_BYTES = 16 * 1024
"""Bytes of output that a fault shows."""


@dataclass(frozen=True, slots=True)
class EnvCost:
    """Seconds that the env takes, and what they go into."""

    step: float
    slowest: float
    """A step that 1 in 100 is slower than."""
    reset: float
    construct: float
    computing: float
    """The fraction of a step that needs a core."""
    resetting: float
    """The fraction of the time that goes into resets, as episodes end by themselves."""


@dataclass(slots=True)
class Subject:
    """One kind of env, and what the checks so far know of it."""

    name: str
    factory: Factory
    expression: str = "make_env"
    """How a program names it."""
    import_line: str = ""
    kwargs: dict[str, Any] = field(default_factory=dict)
    registered: str | None = None
    """Its id, where it was named by that."""
    seed: int = 0
    seconds: float = 60.0
    """For one question."""
    moments: int = 300
    """Resets and steps of a run, where they take little time and memory."""
    _profile: EnvProfile | None = None
    deterministic: bool | None = None
    shares: bool = True
    """Whether several may share a process, as far as is known."""
    draws_globally: bool = False
    """Whether what it does depends on global generators."""
    cost: EnvCost | None = None
    alone: list[EnvResponse] = field(default_factory=list)
    """What slot 0 does in a process of its own."""

    @property
    def profile(self) -> EnvProfile:
        """What the first look found; checks that need it come after it."""
        assert self._profile is not None
        return self._profile

    @property
    def arguments(self) -> dict[str, Any]:
        """What it is made with, as far as that is known."""
        seen = {} if self._profile is None else self._profile.arguments
        return {**parameters_of(self.factory), **seen, **self.kwargs}

    def given(self, name: str, value: Any) -> Subject | None:
        """The same env with another argument; None if it cannot be given one."""
        kwargs = {**self.kwargs, name: value}
        factory: Factory
        if self.registered is not None:
            factory = functools.partial(make_registered, self.registered, kwargs)
        elif name in parameters_of(self.factory):
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
            tasks = [
                WorkerTask(measure, factory, given, os.path.join(folder, str(number)))
                for number, given in enumerate(arguments)
            ]
            answers = run_in_workers(
                run,
                tasks,
                workers=len(tasks),
                on_fault="restart",
                max_restarts=0,
                item_timeout=self.seconds,
            )
            return [
                _with_output(answer, task.output)
                for answer, task in zip(answers, tasks, strict=True)
            ]


def _with_output(answer: Any, path: str) -> Any:
    """A fault with what was printed before it."""
    if not isinstance(answer, Fault):
        return answer
    printed = b""
    with suppress(OSError):
        printed = Path(path).read_bytes()[-KEPT_OUTPUT_BYTES:]
    output = printed.decode(errors="replace")
    return replace(
        answer, item=None, worker=None, restarts=0, gave_up=False, output=output
    )


def brief(fault: Fault | FaultError) -> str:
    """What went wrong, in a line."""
    if isinstance(fault, FaultError):
        fault = fault.fault
    if fault.kind == "died":
        how = fault.signal_name or f"exit code {fault.exit_code}"
        return f"the env ended its process ({how})"
    if fault.kind == "hung":
        return f"the env did not return within {fault.limit or 0:g} s"
    text = (fault.error_text or "").strip().splitlines()
    return f"{fault.error_type}: {text[0] if text else ''}".rstrip(": ")
