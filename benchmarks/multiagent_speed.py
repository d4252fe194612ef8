"""Several agents per env: Corral beside AgileRL, SuperSuit, a loop and the limit.

    python benchmarks/multiagent_speed.py              all claims, some minutes
    python benchmarks/multiagent_speed.py --quick      the same with short turns
    python benchmarks/multiagent_speed.py --only rps   those whose key has the word

A step is one step of one env, with all its agents. Everybody gets the same actions
and delivers all infos; AgileRL has its process per env, SuperSuit as many processes as
there are cores. The limit and the loop step PettingZoo's converted envs as they are;
Corral does the conversion's part itself, and so may be faster than either. Needs
mpe2, pettingzoo[classic], agilerl and supersuit.
"""

from __future__ import annotations

import argparse
import functools
import json
import sys
import time
import warnings
from collections.abc import Callable
from dataclasses import asdict
from itertools import cycle, islice
from pathlib import Path
from typing import Any

import numpy as np
import workloads
from contests import (
    Claim,
    Contest,
    Entrant,
    Verdict,
    note,
    report_rates,
    report_verdicts,
    run_contest,
)
from races import machine
from yardsticks import Limit

import corral
from corral.engine.executors.assign import usable_cores
from corral.tools.bench.measure import ACTION_BATCHES

CORES = usable_cores()


PEERS = ("agilerl", "supersuit", "loop", "limit", "process", "auto", "dropin")
CONTESTS = (
    Contest(
        "spread-32",
        "simple_spread (3 agents) ×32",
        lambda: workloads.make_spread,
        32,
        PEERS,
        (
            Claim("auto", "agilerl", 1.9),
            Claim("auto", "supersuit", 1.2),
            Claim("auto", "limit", 0.9),
        ),
    ),
    Contest(
        "rps-64",
        "rock, paper, scissors (2 agents) ×64",
        lambda: workloads.make_rps,
        64,
        PEERS,
        (
            Claim("auto", "agilerl", 8.0),
            Claim("auto", "limit", 0.9),
            Claim("dropin", "agilerl", 8.0),
        ),
    ),
    Contest(
        "signs-64",
        "rock, paper, scissors without conversions ×64",
        lambda: workloads.Signs,
        64,
        # SuperSuit takes nothing but PettingZoo's own classes.
        tuple(peer for peer in PEERS if peer != "supersuit"),
        (Claim("auto", "agilerl", 8.0),),
    ),
)


# --- the candidates -------------------------------------------------------------


def drawn(spaces: dict[Any, Any], slots: int) -> list[dict[Any, np.ndarray]]:
    """Batches of random actions by agent, the same for everybody."""
    for number, space in enumerate(spaces.values()):
        space.seed(number)
    return [
        {
            agent: np.array([space.sample() for _ in range(slots)])
            for agent, space in spaces.items()
        }
        for _ in range(ACTION_BATCHES)
    ]


class Runner:
    """Steps many envs at once."""

    def __init__(self, envs: Any, step: Callable[[Any], Any], actions, slots) -> None:
        self.envs = envs
        self.slots = slots
        self._step = step
        self._actions = actions

    def run(self, batches: int) -> float:
        step = self._step
        actions = list(islice(cycle(self._actions), batches))
        began = time.perf_counter()
        for action in actions:
            step(action)
        return time.perf_counter() - began

    def close(self) -> None:
        self.envs.close()


def spaces_of(factory) -> dict[Any, Any]:
    env = factory()
    spaces = {agent: env.action_space(agent) for agent in env.possible_agents}
    env.close()
    return spaces


def corral_runner(factory, slots: int, **options) -> Runner:
    envs = corral.make_multi(factory, num_envs=slots, **options)
    envs.reset(seed=0)
    return Runner(envs, envs.step, drawn(envs.action_spaces, slots), slots)


def agilerl_runner(factory, slots: int) -> Runner:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from agilerl.vector.pz_async_vec_env import AsyncPettingZooVecEnv
    envs = AsyncPettingZooVecEnv([factory] * slots)
    envs.reset(seed=0)
    return Runner(envs, envs.step, drawn(spaces_of(factory), slots), slots)


def dropin_runner(factory, slots: int) -> Runner:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from corral.dropin import AsyncPettingZooVecEnv
    envs = AsyncPettingZooVecEnv([factory] * slots)
    envs.reset(seed=0)
    return Runner(envs, envs.step, drawn(spaces_of(factory), slots), slots)


def supersuit_runner(factory, slots: int) -> Runner:
    """Its way to vectors: agents are rows, all of one env after the other."""
    import supersuit

    spaces = spaces_of(factory)
    one = supersuit.pettingzoo_env_to_vec_env_v1(factory())
    envs = supersuit.concat_vec_envs_v1(
        one, slots, num_cpus=CORES, base_class="gymnasium"
    )
    envs.reset(seed=0)
    rows = [
        np.stack(list(batch.values()), axis=1).reshape(slots * len(spaces), -1)
        for batch in drawn(spaces, slots)
    ]
    return Runner(envs, envs.step, [batch.squeeze(-1) for batch in rows], slots)


class AgentsLoop:
    """A `for` loop over envs that resets those that nobody is left in."""

    def __init__(self, factory, slots: int) -> None:
        self.slots = slots
        self.envs = [factory() for _ in range(slots)]
        spaces = spaces_of(factory)
        self._actions = []
        for batch in drawn(spaces, slots):
            rows = [{agent: batch[agent][i] for agent in batch} for i in range(slots)]
            self._actions.append(rows)
        for slot, env in enumerate(self.envs):
            env.reset(seed=slot)

    def run(self, batches: int) -> float:
        actions = list(islice(cycle(self._actions), batches))
        began = time.perf_counter()
        for batch in actions:
            for env, action in zip(self.envs, batch, strict=True):
                env.step(action)
                if not env.agents:
                    env.reset()
        return time.perf_counter() - began

    def close(self) -> None:
        for env in self.envs:
            env.close()


# AgileRL first: it forks, so it comes before anything with threads.
ENTRANTS = {
    "agilerl": Entrant("AgileRL async", agilerl_runner),
    "supersuit": Entrant(f"SuperSuit, {CORES} processes", supersuit_runner),
    "loop": Entrant("bare loop", AgentsLoop),
    "limit": Entrant(
        "the limit", lambda factory, slots: Limit(factory, CORES, AgentsLoop)
    ),
    "process": Entrant(
        "Corral, process", functools.partial(corral_runner, backend="process")
    ),
    "dropin": Entrant("Corral for AgileRL", dropin_runner),
    "auto": Entrant("Corral", functools.partial(corral_runner, backend="auto")),
}


# --- the report -------------------------------------------------------------------


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
    turn_seconds = 0.2 if arguments.quick else 0.5
    print(f"{machine()}; {rounds} rounds of {turn_seconds} s turns\n")
    record: dict[str, object] = {"machine": machine(), "rounds": rounds}
    verdicts: list[Verdict] = []
    for contest in CONTESTS:
        if not any(word in contest.key for word in arguments.only):
            continue
        note(f"{contest.key} ")
        rates, found, layout = run_contest(contest, ENTRANTS, rounds, turn_seconds)
        note("\n")
        verdicts += found
        record[contest.key] = {name: one.rounds for name, one in rates.items()}
        print(report_rates(contest, rates, layout, ENTRANTS), flush=True)
    print(report_verdicts(verdicts))
    if arguments.json:
        record["claims"] = [asdict(one) for one in verdicts]
        arguments.json.write_text(json.dumps(record, indent=2) + "\n")
    return 0 if all(one.met for one in verdicts) else 1


if __name__ == "__main__":
    sys.exit(main())
