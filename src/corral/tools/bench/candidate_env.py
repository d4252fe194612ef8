"""What runs in a candidate's process: build the envs, take turns, close them.

reset(options={"order": BuildOrder}) ──► info["answer"]: EnvsBuilt
step(batches) ─────────────────────────► info["answer"]: TurnTimes
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import cycle, islice
from typing import Any

import gymnasium
from gymnasium import spaces

from corral.engine.adapters.env_names import resolve_env
from corral.errors import CorralError
from corral.tools.bench.candidates import BuildOrder, EnvsBuilt, TurnTimes
from corral.tools.bench.libraries import BuiltEnvs, builder_of
from corral.tools.bench.measure import compute, draw_actions
from corral.train.run import machine


class CandidateEnv(gymnasium.Env[Any, Any]):
    """A candidate as an env, so that a pool's worker runs and supervises it."""

    observation_space = spaces.Discrete(1)
    action_space = spaces.Discrete(2**62)
    _order: BuildOrder
    _stepped: BuiltEnvs | None = None

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        """Build what was ordered."""
        self._order = options["order"]
        with ours_first():
            return 0, {"answer": self._build()}

    def step(self, action: Any) -> Any:
        """Take a turn of so many batches."""
        assert self._stepped is not None
        with ours_first():
            turn = self._turn(self._stepped, int(action))
        return 0, 0.0, False, False, {"answer": turn}

    def close(self) -> None:
        if self._stepped is not None:
            self._stepped.close()

    def _build(self) -> EnvsBuilt:
        order = self._order
        name = resolve_env(order.env, order.kwargs, syntax="command")
        build = builder_of(order.candidate.library)
        # Around nothing but the building: later candidates would share our pages, and
        # what is shared counts by its share.
        weight = machine.memory()
        began = time.perf_counter()
        self._stepped = stepped = build(order, name.factory)
        startup = time.perf_counter() - began
        memory = max(0, machine.memory() - weight)
        self._actions = draw_actions(stepped.action_space, order.num_envs, order.seed)
        spaces = str(stepped.observation_space), str(stepped.action_space)
        return EnvsBuilt(
            startup,
            memory,
            *(stepped.groups_text or spaces),
            name.expression,
            name.import_line,
            stepped.layout,
            stepped.agents,
        )

    def _turn(self, stepped: BuiltEnvs, batches: int) -> TurnTimes:
        """Step so many batches; returns what it took."""
        before = stepped.stats() if stepped.stats else None
        episodes = stepped.episodes() if stepped.episodes else 0
        cpu, queued = machine.cpu_seconds(), machine.queued_seconds()
        seconds, policy = self._seconds(stepped.step, batches)
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

    def _seconds(self, step: Callable[[Any], Any], batches: int) -> tuple[float, float]:
        """Seconds in all, and those of the policy."""
        iterations = self._order.policy_iterations
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


@contextmanager
def ours_first() -> Iterator[None]:
    """Raise the error of Corral's that caused another: it says where that happened."""
    try:
        yield
    except Exception as error:
        found: BaseException | None = error
        while found is not None and not isinstance(found, CorralError):
            found = found.__cause__
        raise found or error from None
