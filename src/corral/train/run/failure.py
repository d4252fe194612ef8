"""What ended a run, and the command that continues it.

    slot 3, worker 1: ZeroDivisionError in step: division by zero
    At my_env.py, line 12, in step: return force / self.mass
    ...
    Traceback   runs/arm/first/error.txt
    Continue    corral train --resume runs/arm/first --set on_fault=restart

Where a fix is needed first it says so, and the command is the one to type afterwards.
"""

from __future__ import annotations

import shlex
import traceback
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any

from corral.engine.faults.advice import helped_by_restarts, mistake_in
from corral.engine.faults.code_location import location_of_error
from corral.engine.faults.report import message_for
from corral.errors import (
    CorralError,
    Fault,
    OptionError,
    TrainingDiverged,
    WriteFailed,
)
from corral.learners.protocol import Gathered
from corral.learners.registry import learner_class
from corral.rollouts.normalise import not_finite
from corral.train.recipes.config import RunConfig, learner_settings
from corral.train.run.directory import RunDirectory, write_text

# Factor by which a limit that was reached is raised in the advice.
LIMIT_FACTOR = 10

# Settings to change when the run continues; what to do before, "" for nothing.
Remedy = tuple[dict[str, Any], str]


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

    def description(self) -> str:
        """Return what happened and where in the user's code."""
        error, fault = self.error, getattr(self.error, "fault", None)
        text = str(error)
        if isinstance(fault, Fault):
            # It may be part of more; the rest stays.
            syntax = "yaml" if self.command else "python"
            for name in ("error", "error.__cause__"):
                said = message_for(fault, "python", name)
                text = text.replace(said, message_for(fault, syntax))
        elif not isinstance(error, CorralError):
            text = f"{type(error).__name__}: {error}"
        first, *rest = text.rstrip().splitlines() or [""]
        place = location_of_error(error)
        return "\n".join([first, *([f"At {place}"] if place else []), *rest])

    def next_steps(self, directory: RunDirectory | None = None) -> list[str]:
        """Return the lines that say how to continue the run, or to start it again.

        Args:
            directory: of the run; None if there is none yet.
        """
        settings, first = self._remedy()
        diverged = isinstance(self.error, TrainingDiverged)
        # With nothing odd from the envs.
        alone = diverged and "the env of slot" not in str(self.error).lower()
        if directory is not None and alone:
            policy = "best policy" if directory.best.exists() else "last checkpoint"
            first = f"It would diverge again: begin another run from its {policy}"
            path, typed = str(directory.path), bool(self.command)
            lines = [f"Continue    {another_run(path, self._lower_lr(), typed)}"]
        elif directory is not None:
            lines = [f"Continue    {self._resume_call(directory, settings)}"]
        else:
            again = shlex.join([*self.command, *_flags(settings)])
            lines = [f"Again       {again}"] if self.command else []
        return [f"First       {first}.", *lines] if first else lines

    def _remedy(self) -> Remedy:
        match self.error:
            case CorralError(fault=Fault() as fault):
                return self._remedy_of(fault)
            case WriteFailed():
                return {}, "Make room on the disk, or let it be written to"
            case TrainingDiverged():
                return {}, "Fix the env that the message names"
            case OptionError() if "best_metric" in str(self.error):
                return {"best_metric": "eval/return"}, ""
        return {}, ""

    def _remedy_of(self, fault: Fault) -> Remedy:
        config = self.config
        if fault.gave_up:
            all_used = fault.restarts >= config.max_restarts
            limit = "max_restarts" if all_used else "restarts_per_minute"
            return {limit: LIMIT_FACTOR * getattr(config, limit)}, ""
        if fault.kind == "hung" and fault.command in ("start", "construct"):
            allowed = fault.limit or config.start_timeout or 1.0
            return {"start_timeout": LIMIT_FACTOR * allowed}, ""
        if fault.kind == "node":
            return {"cluster.on_node_loss": "restart"}, ""
        if mistake_in(fault) is not None:
            return {}, "Change the env as the message says"
        if helped_by_restarts(fault) and config.on_fault == "raise":
            # Restarts need processes.
            alone = config.backend in ("serial", "thread")
            more = {"backend": "process"} if alone else {}
            return {"on_fault": "restart", **more}, ""
        place = location_of_error(self.error)
        return {}, f"Fix {'the env' if place is None else place.short}"

    def _resume_call(self, directory: RunDirectory, settings: dict[str, Any]) -> str:
        path = str(directory.path)
        if self.command:
            flags = [*_flags(settings), *([] if self.signed else ["--trust"])]
            return shlex.join(["corral", "train", "--resume", path, *flags])
        trust = "" if self.signed else ", trust=True"
        return f"corral.train.run.start.resume(Path({path!r}), {settings!r}{trust})"

    def _lower_lr(self) -> dict[str, float]:
        """The setting of a lower learning rate, if the learner has one."""
        lr = getattr(learner_settings(self.config), "lr", None)
        key = f"{learner_class(self.config.learner).group}.lr"
        if not isinstance(lr, float):
            return {}  # none, or pieces
        return {key: float(f"{lr / LIMIT_FACTOR:g}")}


def another_run(path: str, settings: Mapping[str, Any], typed: bool) -> str:
    """Return the command, or the call, that starts a run with another's weights."""
    config = f"{path}/config.yaml"
    if typed:
        begin = ["corral", "train", config, "--init-from", path]
        return shlex.join([*begin, *_flags(settings)])
    given = f"{config!r}, {dict(settings)!r}, init_from=Path({path!r})"
    return f"corral.train.run.start.begin({given})"


def _flags(settings: Mapping[str, Any]) -> list[str]:
    pairs = (("--set", f"{key}={value}") for key, value in settings.items())
    return [word for pair in pairs for word in pair]


def written_about(
    directory: RunDirectory, error: BaseException, signed: bool = True
) -> list[str]:
    """Write the whole traceback, and the episode to be replayed; say where they are."""
    text, lines = full_text(error), [f"Traceback   {directory.error}"]
    try:
        directory.fault.unlink(missing_ok=True)  # of an earlier error
        write_text(directory.error, text)
    except (WriteFailed, OSError) as failed:  # the disk may be what is wrong
        lines = [f"Traceback   not written ({failed}):", text.rstrip()]
    fault = getattr(error, "fault", None)
    if isinstance(fault, Fault) and fault.kind != "node":  # that has no episode
        with suppress(CorralError, OSError):  # the same
            fault.save(directory.fault)
            trust = [] if signed else ["--trust"]
            words = ["corral", "doctor", "--replay", str(directory.fault), *trust]
            lines.append(f"Replay      {shlex.join(words)}")
    return lines


def full_text(error: BaseException) -> str:
    """The traceback, the remote ones, and all that the workers had said."""
    parts = ["".join(traceback.format_exception(error)).rstrip()]
    for fault in getattr(error, "faults", ()) or [getattr(error, "fault", None)]:
        if isinstance(fault, Fault):
            for name in ("traceback", "stack", "output"):
                if text := (getattr(fault, name) or "").rstrip():
                    place = f"slot {fault.slot}, worker {fault.worker}"
                    parts.append(f"{name.capitalize()} of {place}:\n{text}")
    return "\n\n".join(parts) + "\n"


@contextmanager
def naming_culprits(rollout: Gathered) -> Iterator[None]:
    """Where learning diverges, name the env whose values are not finite."""
    try:
        yield
    except TrainingDiverged as error:
        in_rows = rollout.reward.ndim == 2  # whole episodes do not say their slots
        seen = getattr(rollout, "obs", ()) if in_rows else ()
        said = in_rows and not_finite(seen, rollout.reward, rollout.valid)
        if not said:
            raise
        raise TrainingDiverged(f"{error}. {said[0].upper()}{said[1:]}") from error
