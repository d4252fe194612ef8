"""The process of one candidate: build the envs, take turns, end with the race.

race ── BuildOrder ─────► import, build, reset
     ◄────── EnvsBuilt ── | CandidateFailure
     ── batches ────────► step
     ◄────── TurnTimes ── | CandidateFailure
     ── None, or gone ──► close
"""

from __future__ import annotations

import mmap
import os
import time
import traceback
from contextlib import suppress
from itertools import cycle, islice
from multiprocessing.connection import Connection

from corral.engine.adapters.env_names import resolve_env
from corral.engine.transport import lifeline
from corral.errors import CorralError, MissingExtra, OptionError
from corral.tools.bench.candidates import (
    BuildOrder,
    Candidate,
    CandidateFailure,
    EnvsBuilt,
    TurnTimes,
)
from corral.tools.bench.libraries import Build, builder_of
from corral.tools.bench.measure import compute, draw_actions
from corral.train.run import machine

# Nothing but sys before the path is in place; see `worker.main`.
BOOTSTRAP = (
    "import sys; "
    "sys.path[:] = eval(sys.argv[1]); "
    "from corral.tools.bench.candidate_main import main; "
    "main(*map(int, sys.argv[2:]))"
)


class CandidateRunner:
    """The candidate at its start: built, reset, and ready to take turns."""

    def __init__(self, order: BuildOrder) -> None:
        self._order = order
        name = resolve_env(order.env, order.kwargs, syntax="command")
        build = _builder(order.candidate)
        # Around nothing but the building: later candidates would share our pages, and
        # what is shared counts by its share.
        weight = machine.memory()
        began = time.perf_counter()
        self._stepped = stepped = build(order, name.factory)
        startup = time.perf_counter() - began
        memory = max(0, machine.memory() - weight)
        spaces = str(stepped.observation_space), str(stepped.action_space)
        self.built = EnvsBuilt(
            startup,
            memory,
            *(stepped.groups_text or spaces),
            name.expression,
            name.import_line,
            stepped.layout,
            stepped.agents,
        )
        self._actions = draw_actions(stepped.action_space, order.num_envs, order.seed)

    def turn(self, batches: int) -> TurnTimes:
        """Step so many batches; returns what it took."""
        stepped = self._stepped
        before = stepped.stats() if stepped.stats else None
        episodes = stepped.episodes() if stepped.episodes else 0
        cpu, queued = machine.cpu_seconds(), machine.queued_seconds()
        seconds, policy = self._step(batches)
        queued = machine.queued_seconds() - queued
        cpu = machine.cpu_seconds() - cpu
        times: dict[str, float] = {}
        if stepped.stats and before:
            stats = stepped.stats().since(before)
            env = float(stats.step.seconds.sum() + stats.reset.seconds.sum())
            busy = sum(worker.busy_seconds for worker in stats.workers)
            times = {"env": env, "busy": busy, "waiting": stats.waiting}
        return TurnTimes(
            batches * self._order.num_envs,
            seconds,
            policy,
            cpu,
            queued,
            stepped.episodes() - episodes if stepped.episodes else None,
            **times,
        )

    def _step(self, batches: int) -> tuple[float, float]:
        """Seconds in all, and those of the policy."""
        step, iterations = self._stepped.step, self._order.policy_iterations
        actions = list(islice(cycle(self._actions), batches))
        clock = time.perf_counter
        began = clock()
        if not iterations:
            for action in actions:
                step(action)
            return clock() - began, 0.0
        policy = 0.0
        for action in actions:
            step(action)
            mark = clock()
            compute(iterations)
            policy += clock() - mark
        return clock() - began, policy

    def close(self) -> None:
        """Close the envs."""
        self._stepped.close()


def _builder(candidate: Candidate) -> Build:
    """What the candidate's library brings; libraries do not always bring all of it."""
    try:
        return builder_of(candidate.library)
    except ModuleNotFoundError as error:
        lacking = (error.name or "").partition(".")[0]
        raise MissingExtra(
            f"{candidate.library} is installed, but it imports {lacking}, which is "
            f"not: pip install {lacking}"
        ) from error


def main(descriptor: int, lifeline_descriptor: int) -> None:
    """Serve until the race sends None, or is gone."""
    # Its process group goes with us, whatever the envs are doing then.
    lifeline.watch(lifeline_descriptor, memoryview(mmap.mmap(-1, 256)), 0, 128)
    os.set_inheritable(descriptor, False)
    with Connection(descriptor) as connection:
        order: BuildOrder = connection.recv()
        runner: CandidateRunner | None = None
        try:
            runner = CandidateRunner(order)
            connection.send(runner.built)
            while (batches := _next(connection)) is not None:
                connection.send(runner.turn(batches))
        except Exception as error:
            connection.send(failure_of(error, order))
        finally:
            if runner is not None:
                runner.close()


def _next(connection: Connection) -> int | None:
    """The batches of the next turn; None when there is none, or no race any more."""
    with suppress(EOFError):
        batches: int | None = connection.recv()
        return batches
    return None


def failure_of(error: Exception, order: BuildOrder) -> CandidateFailure:
    """An exception as a message to the race."""
    # One of ours, or the one of ours that caused it, says where it happened.
    found: BaseException | None = error
    while found is not None and not isinstance(found, CorralError):
        found = found.__cause__
    return CandidateFailure(
        str(found) if found else f"{type(error).__name__}: {error}".rstrip(": "),
        "".join(traceback.format_exception(error)),
        order.candidate.library == "loop" and isinstance(error, OptionError),
    )
