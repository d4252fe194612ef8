"""One slow slot, and a slow policy: what not waiting for them brings.

    python benchmarks/stragglers.py                  all claims, about two minutes
    python benchmarks/stragglers.py --quick          the same with short turns
    python benchmarks/stragglers.py --only turns     those whose key has the word

Everything is measured in interleaved rounds (see corral.tools.bench.measure). Every
turn starts with nothing under way, and counts what was received until its end.

What arithmetic allows
    waiting    a slot alone makes one step in its own time: 7 / 1 ms + 1 / 20 ms
    computing  a worker alone runs its shard round after round, and a shard's round is
               the sum of its slots' steps. Measured: one process per shard, each with
               the same envs in a plain loop, all at once; the sum of their rates
    turns      sync: policy + envs, one after the other. In turns: whichever of the two
               takes longer, or all the work over all the cores
"""

from __future__ import annotations

import argparse
import functools
import json
import multiprocessing
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from itertools import islice
from pathlib import Path

import gymnasium
import numpy as np
import workloads
from contests import Claim, Factory, Verdict, note, report_verdicts, table
from races import Runner, machine, race

import corral
from corral.api.async_env import AsyncEnv
from corral.tools.bench.measure import Rates

SLOTS, WORKERS = 8, 2
FAST, SLOW = 1e-3, 20e-3
STRAGGLER = 3
"""Any will do; this one is in the first worker's shard."""
READY = 4
"""Slots in a batch: half of them, so that there are always others to step. Smaller
batches wait less and cost the caller more. Slots that take equally long come back
together, so how a size divides their number shows: of 7, four at a time leave three
waiting for one more, which is 4 / 1 ms; one or seven at a time leave none."""
THINK = 125e-6
"""Seconds a policy takes for one slot: 2 ms for sixteen, as long as their steps take on
two workers."""


# --- the candidates -------------------------------------------------------------


class Lockstep:
    """Step all, wait for all, think about all."""

    def __init__(self, pool: corral.Pool, policy: Callable[[int], None]) -> None:
        self.slots = pool.num_envs
        self._pool = pool
        self._policy = policy
        self._actions = np.zeros(self.slots, int)
        pool.reset()

    def run(self, batches: int) -> float:
        pool, actions = self._pool, self._actions
        began = time.perf_counter()
        for _ in range(batches):
            pool.send(actions)
            pool.recv()
            self._policy(self.slots)
        return time.perf_counter() - began

    def close(self) -> None:
        self._pool.close()


class FirstReady:
    """Take the first that are ready, and send to the same."""

    def __init__(self, pool: corral.Pool, size: int) -> None:
        self.slots = size
        self._pool = pool
        self._envs = AsyncEnv(pool, size)
        self._actions = np.zeros(size, int)
        pool.reset()

    def run(self, batches: int) -> float:
        pool, envs, actions = self._pool, self._envs, self._actions
        began = time.perf_counter()
        pool.send(np.zeros(pool.num_envs, int))
        for _ in range(batches):
            envs.recv()
            envs.send(actions)
        seconds = time.perf_counter() - began
        pool.recv()  # not counted, and not left to the next turn
        return seconds

    def close(self) -> None:
        self._pool.close()


class Turns:
    """Think about one group while the other steps."""

    def __init__(
        self,
        pool: corral.Pool,
        policy: Callable[[int], None],
        groups: tuple[np.ndarray, ...] | None = None,
    ) -> None:
        self.slots = pool.num_envs
        self._pool = pool
        self._policy = policy
        self._groups = corral.two_groups(pool) if groups is None else groups
        pool.reset()

    def run(self, batches: int) -> float:
        pool = self._pool
        began = time.perf_counter()
        pool.send(np.zeros(pool.num_envs, int))
        turns = corral.take_turns(pool, self._groups)
        for step in islice(turns, 2 * batches):
            self._policy(len(step))
            pool.send(np.zeros(len(step), int), slots=step.slots)
        seconds = time.perf_counter() - began
        pool.recv()
        return seconds

    def close(self) -> None:
        self._pool.close()


class ShardLimit:
    """Every shard in a process of its own, round after round, waiting for nobody."""

    def __init__(self, shards: Sequence[Sequence[Factory]]) -> None:
        self.slots = sum(len(shard) for shard in shards)
        context = multiprocessing.get_context("spawn")
        barrier = context.Barrier(len(shards))
        self._pipes = []
        self._processes = []
        for shard in shards:
            ours, theirs = context.Pipe()
            process = context.Process(
                target=loop_shard, args=(shard, barrier, theirs), daemon=True
            )
            process.start()
            theirs.close()
            self._pipes.append(ours)
            self._processes.append(process)
        self._round = max(pipe.recv() for pipe in self._pipes)

    def run(self, batches: int) -> float:
        """All of them run as long as the slowest needs for so many rounds."""
        for pipe in self._pipes:
            pipe.send(batches * self._round)
        rate = sum(pipe.recv() for pipe in self._pipes)
        return self.slots * batches / rate

    def close(self) -> None:
        for pipe in self._pipes:
            pipe.send(None)
        for process in self._processes:
            process.join()


def loop_shard(factories: Sequence[Factory], barrier, pipe) -> None:
    """The body of one of the limit's processes; tells its steps per second."""
    envs = [factory() for factory in factories]
    for env in envs:
        env.reset(seed=0)
    run_rounds(envs, 0.0)
    pipe.send(len(envs) / run_rounds(envs, 0.0))
    while (seconds := pipe.recv()) is not None:
        barrier.wait()
        pipe.send(run_rounds(envs, seconds))


def run_rounds(envs: Sequence[gymnasium.Env], seconds: float) -> float:
    """Steps per second of whole rounds, at least one, for about so long."""
    rounds, began = 0, time.perf_counter()
    while True:
        for env in envs:
            _, _, terminated, truncated, _ = env.step(0)
            if terminated or truncated:
                env.reset()
        rounds += 1
        elapsed = time.perf_counter() - began
        if elapsed >= seconds:
            return rounds * len(envs) / elapsed


# --- the work ---------------------------------------------------------------------


def unequal(make: Callable[[float], Factory]) -> list[Factory]:
    """One factory per slot; one of them is twenty times slower."""
    costs = [SLOW if slot == STRAGGLER else FAST for slot in range(SLOTS)]
    return [make(cost) for cost in costs]


def waiting(seconds: float) -> Factory:
    return functools.partial(workloads.make_waiting, seconds)


def computing(seconds: float) -> Factory:
    iterations = workloads.iterations_for(seconds * 1e6)
    return functools.partial(workloads.make_fixed_work, iterations)


def no_policy(slots: int) -> None:
    """The actions are there already."""


def waits(slots: int) -> None:
    """A policy that runs elsewhere; its cost grows with the batch."""
    time.sleep(slots * THINK)


def computes(slots: int) -> None:
    """The same on our own cores."""
    workloads.compute(slots * workloads.iterations_for(THINK * 1e6))


@dataclass(frozen=True)
class Race:
    """One piece of work, who does it, and what is claimed of them."""

    key: str
    title: str
    runners: Callable[[ExitStack], dict[str, Runner]]
    claims: tuple[Claim, ...]
    words: str
    """What arithmetic allows."""


def opened(stack: ExitStack, runner: Runner) -> Runner:
    stack.callback(runner.close)
    return runner


def run_waiting(stack: ExitStack) -> dict[str, Runner]:
    factories = unequal(waiting)

    def pool() -> corral.Pool:
        return corral.Pool(factories, isolation="slot", seed=0)

    runners: dict[str, Runner] = {
        "lockstep": opened(stack, Lockstep(pool(), no_policy))
    }
    for size in (1, READY, SLOTS - 1):
        runners[f"first {size}"] = opened(stack, FirstReady(pool(), size))
    return runners


def run_computing(stack: ExitStack) -> dict[str, Runner]:
    factories = unequal(computing)

    def pool() -> corral.Pool:
        return corral.Pool(factories, backend="process", workers=WORKERS, seed=0)

    lockstep = opened(stack, Lockstep(one := pool(), no_policy))
    shards = [[factories[slot] for slot in shard] for shard in one.shards]
    runners = {
        "limit": opened(stack, ShardLimit(shards)),
        "lockstep": lockstep,
    }
    for size in (1, READY, SLOTS - 1):
        runners[f"first {size}"] = opened(stack, FirstReady(pool(), size))
    return runners


def run_turns(policy: Callable[[int], None], stack: ExitStack) -> dict[str, Runner]:
    factory = computing(FAST / 4)
    slots = 2 * SLOTS

    def pool() -> corral.Pool:
        return corral.Pool(factory, slots, backend="process", workers=WORKERS, seed=0)

    policy(slots)
    whole_workers = np.arange(slots // 2), np.arange(slots // 2, slots)
    return {
        "lockstep": opened(stack, Lockstep(pool(), policy)),
        "turns": opened(stack, Turns(pool(), policy)),
        "turns by worker": opened(stack, Turns(pool(), policy, whole_workers)),
    }


RACES = (
    Race(
        "waiting",
        f"{SLOTS} slots in own processes waiting 1 ms, one of them 20 ms",
        run_waiting,
        (Claim(f"first {READY}", "lockstep", 5.0),),
        f"lockstep {SLOTS / SLOW:,.0f}/s, "
        f"first ready {(SLOTS - 1) / FAST + 1 / SLOW:,.0f}/s, "
        f"{READY} at a time {READY / FAST:,.0f}/s",
    ),
    Race(
        "computing",
        f"{SLOTS} slots on {WORKERS} workers computing 1 ms, one of them 20 ms",
        run_computing,
        (
            Claim(f"first {READY}", "limit", 0.9),
            Claim(f"first {READY}", "lockstep", 2.0),
        ),
        "the limit, measured; lockstep: all slots in a round of the slower shard",
    ),
    Race(
        "turns-waits",
        f"two groups: {2 * SLOTS} slots of 250 µs on {WORKERS} workers, "
        "and a policy that takes 2 ms for all, elsewhere",
        functools.partial(run_turns, waits),
        (Claim("turns", "lockstep", 1.4),),
        "lockstep 2 + 2 ms, turns max(2, 2) ms: 2 ×",
    ),
    Race(
        "turns-computes",
        f"two groups: {2 * SLOTS} slots of 250 µs on {WORKERS} workers, "
        "and a policy that takes 2 ms for all, on the same cores",
        functools.partial(run_turns, computes),
        (Claim("turns", "lockstep", 1.05),),
        "lockstep 2 + 2 ms, turns (4 + 2) / 2 cores = 3 ms: 1.33 ×",
    ),
)

TITLES = {
    "limit": "the limit",
    "lockstep": "Corral, all together",
    "turns": "Corral, two groups of all workers' slots",
    "turns by worker": "Corral, a group per worker",
}


def title_of(name: str) -> str:
    return TITLES.get(name) or f"Corral, {name} ready of {SLOTS}"


# --- the report -------------------------------------------------------------------


def judge(contest: Race, claim: Claim, rates: dict[str, Rates]) -> Verdict:
    measured = rates[claim.name].over(rates[claim.over])
    words = f"{title_of(claim.name)} over {title_of(claim.over)}"
    met = measured >= claim.target
    if claim.over == "limit" and measured > 1.05:
        words += " (nobody passes the limit: the machine was busy, measure again)"
        met = False
    return Verdict(contest.title, words, measured, claim.target, met)


def report(contest: Race, rates: dict[str, Rates]) -> str:
    rows = [
        (
            title_of(name),
            f"{one.median:,.0f}",
            f"±{one.spread:.0%}",
            f"{one.over(rates['lockstep']):.2f}",
        )
        for name, one in rates.items()
    ]
    body = table(("runner", "steps/s", "spread", "× all together"), rows)
    return f"### {contest.title}\n\nArithmetic: {contest.words}.\n\n{body}\n"


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help="short turns, few rounds")
    parser.add_argument("--only", nargs="+", default=[""], metavar="WORD")
    parser.add_argument("--rounds", type=int, help="turns per candidate (9; quick: 3)")
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write this")
    return parser.parse_args()


def main() -> int:
    arguments = parse()
    rounds = arguments.rounds or (3 if arguments.quick else 9)
    turn_seconds = 0.3 if arguments.quick else 0.8
    print(f"{machine()}; {rounds} rounds of {turn_seconds} s turns\n")
    record: dict[str, object] = {"machine": machine(), "rounds": rounds}
    verdicts: list[Verdict] = []
    for contest in RACES:
        if not any(word in contest.key for word in arguments.only):
            continue
        note(f"{contest.key} ")
        with ExitStack() as stack:
            runners = contest.runners(stack)
            rates = race(
                runners,
                rounds=rounds,
                turn_seconds=turn_seconds,
                on_turn=lambda name: note("."),
            )
        note("\n")
        verdicts += [judge(contest, claim, rates) for claim in contest.claims]
        record[contest.key] = {name: one.rounds for name, one in rates.items()}
        print(report(contest, rates), flush=True)
    print(report_verdicts(verdicts))
    if arguments.json:
        record["claims"] = [asdict(one) for one in verdicts]
        arguments.json.write_text(json.dumps(record, indent=2) + "\n")
    return 0 if all(one.met for one in verdicts) else 1


if __name__ == "__main__":
    sys.exit(main())
