"""What collecting costs, beside stepping the same pool with the same policy.

Both loops ask one policy about every batch: a 2×64 net in numpy, which returns a value
and a log-probability for each row. The plain one throws away what comes back; the
collector keeps it, follows episodes and asks for values where they break off.

    python benchmarks/collect_cost.py
    python benchmarks/collect_cost.py --only cartpole-8 --rounds 5 --seconds 0.5
"""

from __future__ import annotations

import argparse
import itertools
import os
import time
from dataclasses import dataclass
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")  # before numpy: 64 rows want no threads
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import numpy as np
from contests import Verdict, note, report_verdicts, table
from races import machine, race

import corral
from corral import Collector, Decision, Pool
from corral.core import Generators, Step
from corral.tools.bench.measure import Rates

ROWS = 128
TARGET = 0.85


class NumpyNet:
    """Two hidden layers of 64, drawn at random; acts, and expects something."""

    def __init__(self, pool: Pool, seed: int = 0) -> None:
        draw = np.random.default_rng(seed)
        (inputs,) = pool.spec.observation_space.shape or ()
        sizes = [inputs, 64, 64]
        self._layers = [
            (draw.normal(size=shape) / np.sqrt(shape[0])).astype(np.float32)
            for shape in itertools.pairwise(sizes)
        ]
        space = pool.spec.action_space
        self._discrete = not space.shape
        outputs = int(space.n) if self._discrete else space.shape[0]
        self._head = draw.normal(size=(64, outputs + 1)).astype(np.float32) / 8

    def act(self, step: Step, carry: Any, rng: Generators) -> Decision:
        out = self._forward(step.obs)
        if self._discrete:
            action = out[:, :-1].argmax(axis=1)
            log_prob = out[np.arange(len(out)), action]
        else:
            action = np.tanh(out[:, :-1])
            log_prob = out[:, 0]
        return Decision(action, extras={"value": out[:, -1], "log_prob": log_prob})

    def value(self, obs: Any, carry: Any) -> Any:
        return self._forward(obs)[:, -1]

    def _forward(self, obs: Any) -> Any:
        hidden = obs.astype(np.float32)
        for layer in self._layers:
            hidden = np.tanh(hidden @ layer)
        return hidden @ self._head


class Plain:
    """Asks the policy and steps, and that is all."""

    def __init__(self, pool: Pool) -> None:
        self._pool = pool
        self._policy = NumpyNet(pool)
        self.slots = pool.num_envs
        self._step = pool.reset(seed=0)

    def run(self, batches: int) -> float:
        pool, act, step = self._pool, self._policy.act, self._step
        nobody: Any = None
        began = time.perf_counter()
        for _ in range(batches):
            decision = act(step, None, nobody)
            pool.send(decision.action)
            step = pool.recv(copy=False)
        seconds = time.perf_counter() - began
        self._step = step
        return seconds

    def close(self) -> None:
        self._pool.close()


class Collecting:
    """The same, and keeps all of it, `ROWS` rows at a time."""

    def __init__(self, pool: Pool, mode: str) -> None:
        self._pool = pool
        self._collector = Collector(pool, NumpyNet(pool), mode=mode)
        # One batch of this race is a rollout: a shorter one would not be the same work.
        self.slots = pool.num_envs * ROWS

    def run(self, batches: int) -> float:
        collect = self._collector.collect
        began = time.perf_counter()
        for _ in range(batches):
            collect(ROWS)
        return time.perf_counter() - began

    def close(self) -> None:
        self._pool.close()


@dataclass(frozen=True)
class Work:
    env: str
    slots: int

    @property
    def key(self) -> str:
        name = self.env.split("-")[0].lower()
        return f"{name}-{self.slots}"

    @property
    def title(self) -> str:
        return f"{self.env} ×{self.slots}"

    def pools(self, count: int) -> list[Pool]:
        """All alike: where the first was put by measurement, the others are put too."""
        first = corral.Pool(self.env, self.slots, seed=0)
        place = {"backend": first.layout.backend, "workers": first.layout.workers}
        others = range(count - 1)
        return [first, *(corral.Pool(self.env, self.slots, **place) for _ in others)]


WORK = (
    Work("CartPole-v1", 8),
    Work("CartPole-v1", 64),
    Work("Ant-v5", 8),
)
MODES = ("sync", "two_groups", "first_ready")


def main() -> None:
    arguments = parsed()
    verdicts = []
    print(machine())
    for work in WORK:
        if arguments.only and work.key not in arguments.only:
            continue
        rates = measured(work, arguments.rounds, arguments.seconds)
        print(report(work, rates))
        ratio = rates["sync"].over(rates["plain"])
        claim = "collecting over plain stepping"
        verdicts.append(Verdict(work.title, claim, ratio, TARGET, ratio >= TARGET))
    print(report_verdicts(verdicts))


def measured(work: Work, rounds: int, seconds: float) -> dict[str, Rates]:
    plain, *others = work.pools(1 + len(MODES))
    runners: dict[str, Any] = {"plain": Plain(plain)}
    for mode, pool in zip(MODES, others, strict=True):
        runners[mode] = Collecting(pool, mode)
    try:
        return race(
            runners,
            rounds=rounds,
            turn_seconds=seconds,
            on_turn=lambda name: note("."),
        )
    finally:
        for runner in runners.values():
            runner.close()


def report(work: Work, rates: dict[str, Rates]) -> str:
    plain = rates["plain"]
    rows = [
        (name, f"{one.median:,.0f}", f"±{one.spread:.0%}", f"{one.over(plain):.2f}")
        for name, one in rates.items()
    ]
    body = table(("loop", "steps/s", "spread", "of plain"), rows)
    return f"### {work.title}\n\n{body}\n"


def parsed() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--seconds", type=float, default=1.0, help="of a turn")
    parser.add_argument("--only", nargs="*", choices=[work.key for work in WORK])
    return parser.parse_args()


if __name__ == "__main__":
    main()
