"""What ended a run, and the command that continues it.

    slot 3, worker 1, pid 4711: ZeroDivisionError in step: division by zero
    At my_env.py, line 12, in step: return force / self.mass
    ...
    Traceback   runs/arm/first/error.txt
    Go on       corral train --resume runs/arm/first --set on_fault=restart

Where a fix is needed first it says so, and the command is the one to type afterwards.
"""

from __future__ import annotations

import shlex
import traceback
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from corral.engine.faults.advice import (
    PYTHON_SYNTAX,
    SETTINGS_SYNTAX,
    OptionSyntax,
    helped_by_restarts,
)
from corral.engine.faults.code_location import location_of_error
from corral.engine.faults.report import message_for
from corral.errors import (
    CorralError,
    Fault,
    FaultError,
    OptionError,
    TrainingDiverged,
    UsageError,
    WriteFailed,
)
from corral.learners.registry import learner_class
from corral.train.recipes.config import RunConfig, learner_settings
from corral.train.run.atomic_write import write_text
from corral.train.run.directory import RunDirectory

LIMIT_FACTOR = 10
"""Factor by which a limit that was reached is raised in the advice."""


@dataclass(frozen=True, slots=True)
class Remedy:
    """What helps."""

    settings: Mapping[str, Any] = field(default_factory=dict)
    """To be changed when the run goes on."""
    first: str = ""
    """What has to be done before; "" for nothing."""


@dataclass(frozen=True, slots=True)
class RunFailure:
    """An error of a run, explained to the user of `corral train` or `start.begin`.

    Args:
        error: what was raised.
        config: of the run.
        command: the command line; empty if the run was started from Python.
        signed: whether the run can be opened again without --trust.
    """

    error: BaseException
    config: RunConfig
    command: Sequence[str] = ()
    signed: bool = True

    @property
    def syntax(self) -> OptionSyntax:
        """Which the user speaks."""
        return SETTINGS_SYNTAX if self.command else PYTHON_SYNTAX

    def description(self) -> str:
        """Return what happened and where in the user's code."""
        first, *rest = self._error_text().rstrip().splitlines() or [""]
        place = location_of_error(self.error)
        at = [] if place is None else [f"At {place}"]
        return "\n".join([first, *at, *rest])

    def _error_text(self) -> str:
        error = self.error
        fault = getattr(error, "fault", None)
        if isinstance(fault, Fault):
            # It may be part of more; the rest stays.
            theirs, ours = message_for(fault), message_for(fault, self.syntax)
            return str(error).replace(theirs, ours)
        if isinstance(error, CorralError):
            return str(error)
        return f"{type(error).__name__}: {error}"

    # What to do -----------------------------------------------------------------------

    def remedy(self) -> Remedy:
        """What lets the run go on, or what has to be done first."""
        error = self.error
        if isinstance(error, FaultError) or getattr(error, "fault", None) is not None:
            return self._for_fault(error.fault)  # type: ignore[attr-defined]
        if isinstance(error, WriteFailed):
            return Remedy(first="Make room on the disk, or let it be written to")
        if isinstance(error, TrainingDiverged):
            return Remedy(first="Fix the env that the message names")
        if isinstance(error, OptionError) and "best_metric" in str(error):
            return Remedy({"best_metric": "eval/return"})
        return Remedy()

    def _for_fault(self, fault: Fault) -> Remedy:
        config = self.config
        place = location_of_error(self.error)
        there = "the env" if place is None else place.short
        if fault.gave_up:
            return Remedy(self._more_restarts(fault))
        if fault.kind == "hung" and fault.command == "construct":
            limit = fault.limit or config.start_timeout or 1.0
            return Remedy({"start_timeout": LIMIT_FACTOR * limit})
        if isinstance(fault.exception, UsageError):
            return Remedy(first="Change the env as the message says")
        if helped_by_restarts(fault) and config.on_fault == "raise":
            return Remedy({"on_fault": "restart", **self._processes()})
        return Remedy(first=f"Fix {there}")

    def _more_restarts(self, fault: Fault) -> dict[str, Any]:
        config = self.config
        if fault.restarts >= config.max_restarts:
            return {"max_restarts": LIMIT_FACTOR * config.max_restarts}
        return {"restarts_per_minute": LIMIT_FACTOR * config.restarts_per_minute}

    def _processes(self) -> dict[str, str]:
        """Restarts need processes."""
        alone = self.config.backend in ("serial", "thread")
        return {"backend": "process"} if alone else {}

    # How to go on ---------------------------------------------------------------------

    def resuming(self, directory: RunDirectory) -> list[str]:
        """Lines that say how the run goes on."""
        path = str(directory.path)
        if self._diverged_alone():
            return self._gentler(path, directory.best.exists())
        remedy = self.remedy()
        call = self._call(path, remedy.settings)
        first = [f"First       {remedy.first}."] if remedy.first else []
        return [*first, f"Go on       {call}", *self._for_new_runs(remedy.settings)]

    def again(self) -> list[str]:
        """The same where there is no run yet."""
        remedy = self.remedy()
        first = [f"First       {remedy.first}."] if remedy.first else []
        if not self.command:
            return first
        typed = shlex.join([*self.command, *_flags(remedy.settings)])
        return [*first, f"Again       {typed}", *self._for_new_runs(remedy.settings)]

    def _call(self, path: str, settings: Mapping[str, Any]) -> str:
        if not self.command:
            trust = "" if self.signed else ", trust=True"
            given = f"Path({path!r}), {dict(settings)!r}{trust}"
            return f"corral.train.run.start.resume({given})"
        trusting = [] if self.signed else ["--trust"]
        flags = [*_flags(settings), *trusting]
        return shlex.join(["corral", "train", "--resume", path, *flags])

    def _for_new_runs(self, settings: Mapping[str, Any]) -> list[str]:
        """The same for a file of the user's, if the run came of one."""
        file = next((one for one in self.command if one.endswith(_FILES)), None)
        if file is None or not settings or "--resume" in self.command:
            return []
        keys = ", ".join(f"`{key}: {value}`" for key, value in settings.items())
        return [f"New runs    {keys} in {file}"]

    def _diverged_alone(self) -> bool:
        """Whether the learner broke down, with nothing odd from the envs."""
        diverged = isinstance(self.error, TrainingDiverged)
        return diverged and "the env of slot" not in str(self.error).lower()

    def _gentler(self, path: str, has_best: bool) -> list[str]:
        """Another run from the best policy so far; the same one would diverge again."""
        slower = _with_lower_lr(self.config)
        policy = "best policy" if has_best else "last checkpoint"
        why = f"It would diverge again: begin another run from its {policy}."
        call = another_run(path, slower, typed=bool(self.command))
        return [f"First       {why}", f"Go on       {call}"]


def another_run(path: str, settings: Mapping[str, Any], typed: bool) -> str:
    """Return the command, or the call, that starts a run with another's weights."""
    config = f"{path}/config.yaml"
    if typed:
        begin = ["corral", "train", config, "--init-from", path]
        return shlex.join([*begin, *_flags(settings)])
    given = f"{config!r}, {dict(settings)!r}, init_from=Path({path!r})"
    return f"corral.train.run.start.begin({given})"


def _with_lower_lr(config: RunConfig) -> dict[str, float]:
    """The setting of a lower learning rate, if the learner has one."""
    lr = getattr(learner_settings(config), "lr", None)
    if lr is None:
        return {}
    key = f"{learner_class(config.learner).group}.lr"
    return {key: float(f"{lr / LIMIT_FACTOR:g}")}


_FILES = (".yaml", ".yml")


def _flags(settings: Mapping[str, Any]) -> list[str]:
    pairs = (("--set", f"{key}={value}") for key, value in settings.items())
    return [word for pair in pairs for word in pair]


def written_about(
    directory: RunDirectory, error: BaseException, signed: bool = True
) -> list[str]:
    """Write the whole traceback, and the episode to be replayed; say where they are."""
    lines = []
    with suppress(OSError):  # the disk may be what is wrong
        directory.fault.unlink(missing_ok=True)  # of an earlier error
    try:
        write_text(directory.error, _everything(error))
        lines.append(f"Traceback   {directory.error}")
    except WriteFailed as failed:  # the disk may be what is wrong
        lines += [f"Traceback   not written ({failed}):", _everything(error).rstrip()]
    fault = getattr(error, "fault", None)
    if isinstance(fault, Fault):
        with suppress(CorralError, OSError):  # the same
            fault.save(directory.fault)
            words = ["corral", "doctor", "--replay", str(directory.fault)]
            typed = shlex.join(words if signed else [*words, "--trust"])
            lines.append(f"Replay      {typed}")
    return lines


def _everything(error: BaseException) -> str:
    """The traceback, the remote ones, and all that the workers had said."""
    parts = ["".join(traceback.format_exception(error)).rstrip()]
    for fault in getattr(error, "faults", ()) or [getattr(error, "fault", None)]:
        if isinstance(fault, Fault):
            texts = {"Traceback": fault.traceback, "Stack": fault.stack}
            texts["Output"] = fault.output
            parts += [
                f"{name} of slot {fault.slot}, worker {fault.worker}:\n{text.rstrip()}"
                for name, text in texts.items()
                if text and text.strip()
            ]
    return "\n\n".join(parts) + "\n"
