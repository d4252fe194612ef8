"""Everything Corral raises, and the fault that most of it carries.

CorralError
├── UsageError           the caller's mistake; the pool still works and can be closed
│   ├── ClosedError      used after close()
│   ├── OwnershipError   used from another thread, or in a forked child
│   ├── OrderError       step before reset, recv with nothing sent, send while pending
│   │   └── EpisodeOver  step after the end, with autoreset off (also AssertionError)
│   ├── StaleViewError   (debug) a view was kept longer than it lives
│   ├── SpaceMismatch    a value does not fit its space        (also ValueError)
│   ├── SpacesDiffer     the envs of one pool do not agree     (also RuntimeError)
│   ├── OptionError      an argument has no meaning here       (also ValueError)
│   │   └── UnknownKeyword  a keyword that a function does not have (also TypeError)
│   ├── IsolationError   envs that need a process each would share one
│   │                                                          (also RuntimeError)
│   ├── FactoryError     a factory cannot be sent to a worker  (also TypeError)
│   ├── UnsafeFile       a file that would run code is not signed by this user
│   │                                                          (also PermissionError)
│   ├── CheckpointError  a checkpoint cannot be read, or is another run's
│   │                                                          (also ValueError)
│   ├── CheckFailed      an env or executor breaks its contract (also AssertionError)
│   ├── MissingExtra     an optional package is not installed  (also ImportError)
│   └── ClusterError     no cluster there, or it cannot run this (also ConnectionError)
├── TrainingDiverged     a loss or a weight is not finite      (also ArithmeticError)
├── RunFailed            a training ended by an exception that is not Corral's
├── WriteFailed          a file of a run could not be written  (also OSError)
└── FaultError           an env or a worker failed; carries a Fault
    ├── EnvError         an environment raised
    ├── PolicyError      a policy that acts in the workers raised
    ├── ItemError        a function given to `corral.map` raised
    ├── StartError       a worker or an environment could not be built
    ├── WorkerDied       a worker process ended                (also ConnectionError)
    ├── WorkerHung       a deadline passed                     (also TimeoutError)
    └── NodeLost         a site of a cluster was lost          (also ConnectionError)
"""

from __future__ import annotations

import importlib
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any


class CorralError(Exception):
    """The root of the tree.

    Attributes:
        fault: What failed in an env or a worker, if that is the cause.
        faults: All faults, where several slots of one batch failed; `fault` is the
            first. Where a worker has ended: those that were known by then.
        step: The Step of the slots of the batch without a fault; None if there are
            none.
        episodes: (run_episodes, evaluate) The episodes that were finished by then.
        rollout: (a cluster's collector) The rows that came back; those of lost slots
            are not valid.
    """

    fault: Fault | None = None
    faults: tuple[Fault, ...] = ()
    step: Any = None
    episodes: tuple[Any, ...] = ()
    rollout: Any = None


class UsageError(CorralError):
    """The caller's mistake."""


class ClosedError(UsageError):
    """Used after close()."""


class OwnershipError(UsageError):
    """Used from a thread or process that does not own the pool."""


class OrderError(UsageError):
    """Calls came in an order that has no meaning."""


class EpisodeOver(OrderError, AssertionError):
    """Stepped after the end of its episode, with autoreset off."""


class StaleViewError(UsageError):
    """A view was still held when its memory was about to be reused."""


class SpaceMismatch(UsageError, ValueError):
    """A value does not fit its space."""


class SpacesDiffer(UsageError, RuntimeError):
    """The environments of one pool have different spaces."""


class OptionError(UsageError, ValueError):
    """An argument has no meaning here."""


class UnknownKeyword(OptionError, TypeError):
    """A function was called with a keyword that it does not have."""


class IsolationError(UsageError, RuntimeError):
    """Envs that need a process each would share one."""


class FactoryError(UsageError, TypeError):
    """A factory cannot be sent to a worker."""


class UnsafeFile(UsageError, PermissionError):
    """A file that would run code is not signed by this user, and was not trusted.

    Attributes:
        said: The text without its last part, what to do, which differs by caller.
    """

    said: str = ""


class CheckpointError(UsageError, ValueError):
    """A checkpoint cannot be read, or was made by another run, env or version."""


class CheckFailed(UsageError, AssertionError):
    """An environment or an executor breaks its contract."""


class ClusterError(UsageError, ConnectionError):
    """There is no cluster at the address, or it cannot run this program."""


class MissingExtra(UsageError, ImportError):
    """An optional package is not installed; the text says how to get it."""


@contextmanager
def requires(text: str) -> Iterator[None]:
    """Import an optional package in this block.

    Args:
        text: of the MissingExtra if that fails; `{error}` stands for the ImportError.
    """
    try:
        yield
    except ImportError as error:
        raise MissingExtra(text.format(error=error)) from error


class TrainingDiverged(CorralError, ArithmeticError):
    """A loss or a weight is not finite; what was saved before still is."""


class RunFailed(CorralError):
    """A training ended by an exception that is not Corral's; see its cause."""


class WriteFailed(CorralError, OSError):
    """A file of a run could not be written; what was there before still is."""


@dataclass(frozen=True, slots=True)
class EpisodeRecord:
    """Everything to replay an episode, up to where it failed.

    Attributes:
        kit: How to build the env, a `corral.engine.worker.rebuild_spec.RebuildSpec`.
        task: `core.NO_TASK` if the episode had none.
        actions: From its first step to the one that failed.
        asked: The call to the env after those steps, if the call failed.
        missing: Why it cannot be replayed, if it cannot.
        notes: Why a replay may go differently.
        before: The last actions before a failed reset, if other envs shared the
            process.
        beside: The episode of the env before it, or after it; where there are both,
            the second is in its own `beside`.
    """

    kit: Any
    task: Any
    seed: int | None = None
    options: dict[str, Any] | None = None
    actions: tuple[Any, ...] = ()
    asked: tuple[str, Any] | None = None
    missing: str = ""
    notes: tuple[str, ...] = ()
    before: tuple[Any, ...] = ()
    beside: EpisodeRecord | None = None
    # A new field goes here, with a default, as in Fault.


@dataclass(frozen=True, slots=True)
class Fault:
    """A failure, as a value that can be sent, stored and shown.

    Attributes:
        kind: raised | died | hung | start | shardmate | node
        command: The command that failed: construct, reset, step, render, call,
            get_attr, set_attr, apply, close, start, map, "the policy", "site." and the
            method of another object that steps the envs in their worker, or a part of
            sending the result.
        exit_code: As subprocess reports it: negative for a signal.
        seed: The episode's; the pool's where a worker or an env could not be built.
        step: The step of the episode, counted from 1; 0 before the first.
        has_task: Whether the episode had a task, since None may be a task.
        options: The reset options of the episode.
        stack: Where a hung worker was, as Python saw it.
        limit: (hung) The timeout, in seconds.
        restarts: How often this slot had been restarted before.
        gave_up: Whether it was not restarted because the restarts were used up.
        beside: (shardmate) The slot that ended the worker, where that is known.
        item: The index of the item given to `corral.map`.
        company: Number of other envs in its process, where they may be the cause.
        alone: Whether it also fails alone in a process; only in files of earlier
            versions.
        exception: The env's own exception, where it could be pickled.
        episode: Everything to replay the episode, where the fault is one slot's.
        others: How many slots of its worker, besides `slot`, lost an episode.
        node: (cluster) The machine's name or address.
        site: (cluster) The number of the site on it.
        by_env: Whether the env itself raised an error of Corral's, such as one of a
            pool that it has inside.
        replaced: Whether its worker was replaced, so that the pool continues.
        closed: Whether the call that raised it has closed the envs.
        unfit_action: Whether the episode had an action that did not fit the action
            space, and was passed on as it was.
        raised_by: "worker_init" or "per_worker", where it raised in a worker's start.
    """

    kind: str
    command: str
    slot: int | None = None
    worker: int | None = None
    pid: int | None = None
    exit_code: int | None = None
    signal_name: str | None = None
    seed: int | None = None
    step: int | None = None
    task: Any = None
    has_task: bool = False
    options: dict[str, Any] | None = None
    last_actions: tuple[Any, ...] = ()
    error_type: str | None = None
    error_text: str | None = None
    traceback: str | None = None
    output: str = ""
    stack: str = ""
    limit: float | None = None
    restarts: int = 0
    gave_up: bool = False
    beside: int | None = None
    item: int | None = None
    company: int = 0
    alone: bool | None = None
    exception: BaseException | None = field(default=None, compare=False)
    episode: EpisodeRecord | None = field(default=None, compare=False, repr=False)
    others: int = 0
    node: str | None = None
    site: int | None = None
    by_env: bool = False
    replaced: bool = False
    closed: bool = False
    unfit_action: bool = False
    raised_by: str | None = None
    # A new field goes here, with a default: saved faults hold values in this order.

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write a report, from which `corral.replay(path)` runs the episode again."""
        # By name: the report is written by a room above this one.
        importlib.import_module("corral.engine.faults.fault_file").save(self, path)


class FaultError(CorralError):
    """An env or a worker failed."""

    fault: Fault

    def __init__(self, message: str, fault: Fault) -> None:
        super().__init__(message)
        self.fault = fault

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (str(self), self.fault)


class EnvError(FaultError):
    """An environment raised."""


class PolicyError(FaultError):
    """A policy that acts in the workers raised."""


class ItemError(FaultError):
    """A function given to `corral.map` raised."""


class StartError(FaultError):
    """A worker or an environment could not be built."""


class WorkerDied(FaultError, ConnectionError):
    """A worker process ended while it was needed."""


class WorkerHung(FaultError, TimeoutError):
    """A deadline passed and the worker had not answered."""


class NodeLost(FaultError, ConnectionError):
    """A site of a cluster was lost with its node or process, or was too late."""


class RemoteTraceback(Exception):
    """The cause of a FaultError: the worker's own traceback, as text."""

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self.text = text

    def __str__(self) -> str:
        return f"\n\n{self.text}"
