"""Corral beside Gymnasium's Sync and Async, a bare loop and the machine's limit.

    python benchmarks/vector_speed.py                    all claims, some minutes
    python benchmarks/vector_speed.py --quick            the same with short turns
    python benchmarks/vector_speed.py --only ant frames  those whose key has the word

Everything is measured in interleaved rounds (see corral.tools.bench.measure) with all
infos delivered. Each claim is printed with its target and whether it was met.
"""

from __future__ import annotations

import argparse
import functools
import json
import os
import statistics
import sys
import time
from dataclasses import asdict
from pathlib import Path

import gymnasium
import workloads
from contests import (
    Claim,
    Contest,
    Entrant,
    Verdict,
    in_fresh_process,
    memory_of_tree,
    note,
    report_rates,
    report_verdicts,
    run_contest,
)
from races import Runner, VectorRunner, machine
from yardsticks import BareLoop, Limit

import corral
from corral.engine.executors.assign import usable_cores
from corral.tools.bench.measure import in_turn

MANY_CORES = 16
CORES = usable_cores()


# --- what is raced, and what is claimed ---------------------------------------


def cartpole():
    return workloads.make_cartpole


def ant():
    return workloads.make_ant


def fixed_work(microseconds: float = 100):
    iterations = workloads.iterations_for(microseconds)
    return functools.partial(workloads.make_fixed_work, iterations)


def frames():
    return functools.partial(workloads.make_frames, workloads.iterations_for(200))


SYNC = Claim("auto", "sync", 1.0)
LOOP = Claim("auto", "loop", 0.88)
PEERS = ("async", "sync", "loop")

CONTESTS = (
    Contest("cartpole-1", "CartPole-v1 ×1", cartpole, 1, (*PEERS, "auto"), (SYNC,)),
    Contest("cartpole-2", "CartPole-v1 ×2", cartpole, 2, (*PEERS, "auto"), (SYNC,)),
    Contest(
        "cartpole-8",
        "CartPole-v1 ×8",
        cartpole,
        8,
        (*PEERS, "serial", "process", "auto"),
        (Claim("auto", "async", 6.0), SYNC, LOOP),
    ),
    Contest(
        "cartpole-64",
        "CartPole-v1 ×64",
        cartpole,
        64,
        (*PEERS, "serial", "process", "auto"),
        (Claim("auto", "async", 8.0), Claim("auto", "sync", 1.5), LOOP),
    ),
    Contest(
        "cartpole-1024",
        "CartPole-v1 ×1,024 (cost per slot stays flat)",
        cartpole,
        1024,
        ("auto@64", "auto"),
        (Claim("auto", "auto@64", 0.9),),
    ),
    Contest(
        "ant-64",
        "Ant-v5 ×64",
        ant,
        64,
        ("async", "sync", "auto"),
        (Claim("auto", "async", 2.2), Claim("auto", "sync", 1.8)),
    ),
    Contest(
        "work-8",
        "100 µs of computing ×8",
        fixed_work,
        8,
        ("async", "sync", "limit", "process", "auto"),
        (Claim("auto", "limit", 0.90),),
    ),
    Contest(
        "frames-16",
        "(4, 84, 84) uint8 frames, 200 µs of computing ×16",
        frames,
        16,
        ("async", "sync", "limit", "process", "auto"),
        (Claim("auto", "limit", 0.90),),
    ),
    Contest(
        "cartpole-64-many",
        "CartPole-v1 ×64, many cores",
        cartpole,
        64,
        ("async", "auto", "full"),
        # With a worker on every core none is left for the parent: it may cost
        # something, but not most of the speed.
        (Claim("auto", "async", 10.0), Claim("full", "auto", 0.5)),
        cores=MANY_CORES,
    ),
    Contest(
        "work-60-many",
        "100 µs of computing ×60, many cores",
        fixed_work,
        60,
        ("async", "limit", "auto", "full"),
        (Claim("auto", "limit", 0.85), Claim("full", "auto", 0.5)),
        cores=MANY_CORES,
    ),
)


# --- the candidates -------------------------------------------------------------


def corral_runner(factory, slots: int, **options) -> Runner:
    return VectorRunner(corral.make(factory, num_envs=slots, **options))


def gymnasium_runner(kind, factory, slots: int) -> Runner:
    return VectorRunner(kind([factory] * slots))


AsyncVectorEnv = gymnasium.vector.AsyncVectorEnv
SyncVectorEnv = gymnasium.vector.SyncVectorEnv

# Async first: it forks, so it comes before anything with threads.
ENTRANTS = {
    "async": Entrant(
        "Gymnasium Async", functools.partial(gymnasium_runner, AsyncVectorEnv)
    ),
    "sync": Entrant(
        "Gymnasium Sync", functools.partial(gymnasium_runner, SyncVectorEnv)
    ),
    "loop": Entrant("bare loop", BareLoop),
    "limit": Entrant("the limit", lambda factory, slots: Limit(factory, CORES)),
    "serial": Entrant(
        "Corral, serial", functools.partial(corral_runner, backend="serial")
    ),
    "process": Entrant(
        "Corral, process", functools.partial(corral_runner, backend="process")
    ),
    "full": Entrant(
        "Corral, workers = cores",
        functools.partial(corral_runner, backend="process", workers=CORES),
    ),
    "auto": Entrant("Corral", functools.partial(corral_runner, backend="auto")),
}


# --- start-up, memory, descriptors: each measured in a fresh process ------------


def probe_startup(peer: str) -> dict[str, float]:
    """Seconds until 64 Ants are ready to step, and the memory of the whole tree."""
    began = time.perf_counter()
    if peer == "async":
        envs = AsyncVectorEnv([workloads.make_ant] * 64)
    else:
        envs = corral.make("Ant-v5", num_envs=64)
    envs.reset(seed=0)
    seconds = time.perf_counter() - began
    envs.step(envs.action_space.sample())
    memory = memory_of_tree()
    envs.close()
    return {"seconds": seconds, "MiB": memory}


def probe_descriptors(slots: str) -> dict[str, float]:
    """Descriptors the parent gained by a pool of two workers."""
    before = len(os.listdir("/proc/self/fd"))
    envs = corral.make("CartPole-v1", num_envs=int(slots), backend="process", workers=2)
    envs.reset(seed=0)
    gained = len(os.listdir("/proc/self/fd")) - before
    envs.close()
    return {"descriptors": gained}


PROBES = {"startup": probe_startup, "descriptors": probe_descriptors}


def run_startup(rounds: int):
    work = "64 Ant-v5, from nothing to ready"
    peers = ["corral", "async"]
    found: dict[str, list[dict[str, float]]] = {peer: [] for peer in peers}
    for number in range(rounds):
        for peer in in_turn(peers, number):
            found[peer].append(in_fresh_process(__file__, "startup", peer))
            note(".")
    medians = {
        peer: {
            key: statistics.median(one[key] for one in values)
            for key in ("seconds", "MiB")
        }
        for peer, values in found.items()
    }
    ours = medians["corral"]
    verdicts = [
        Verdict(work, "seconds", ours["seconds"], 1.5, ours["seconds"] <= 1.5, "s"),
        Verdict(work, "PSS of the tree", ours["MiB"], 450, ours["MiB"] <= 450, "MiB"),
    ]
    return medians, verdicts


def run_descriptors():
    few, many = (
        in_fresh_process(__file__, "descriptors", slots) for slots in ("8", "64")
    )
    grown = many["descriptors"] - few["descriptors"]
    verdict = Verdict(
        "CartPole-v1, 2 workers, 8 and 64 slots",
        f"descriptors gained by the parent, 64 slots over 8 ({few['descriptors']:.0f})",
        grown,
        0,
        grown <= 0,
        "more",
    )
    return {"8": few, "64": many}, [verdict]


# --- the report -------------------------------------------------------------------


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help="short turns, few rounds")
    parser.add_argument("--only", nargs="+", default=[""], metavar="WORD")
    parser.add_argument("--rounds", type=int, help="turns per candidate (9; quick: 3)")
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write this")
    parser.add_argument("--probe", nargs=2, help=argparse.SUPPRESS)
    return parser.parse_args()


def main() -> int:
    arguments = parse()
    if arguments.probe:
        probe, argument = arguments.probe
        print(json.dumps(PROBES[probe](argument)))
        return 0
    rounds = arguments.rounds or (3 if arguments.quick else 9)
    turn_seconds = 0.15 if arguments.quick else 0.5

    def wanted(key: str) -> bool:
        return any(word in key for word in arguments.only)

    print(f"{machine()}; {rounds} rounds of {turn_seconds} s turns\n")
    record: dict[str, object] = {"machine": machine(), "rounds": rounds}
    verdicts: list[Verdict] = []
    for contest in CONTESTS:
        if not wanted(contest.key) or contest.cores > CORES:
            continue
        note(f"{contest.key} ")
        rates, found, layout = run_contest(contest, ENTRANTS, rounds, turn_seconds)
        note("\n")
        verdicts += found
        record[contest.key] = {name: one.rounds for name, one in rates.items()}
        print(report_rates(contest, rates, layout, ENTRANTS), flush=True)
    if wanted("startup"):
        note("startup ")
        record["startup"], found = run_startup(min(rounds, 5))
        note("\n")
        verdicts += found
        for peer, values in record["startup"].items():
            print(
                f"64 Ant-v5 on {peer}: {values['seconds']:.2f} s, "
                f"{values['MiB']:.0f} MiB\n"
            )
    if wanted("descriptors"):
        record["descriptors"], found = run_descriptors()
        verdicts += found
    print(report_verdicts(verdicts))
    if arguments.json:
        record["claims"] = [asdict(one) for one in verdicts]
        arguments.json.write_text(json.dumps(record, indent=2) + "\n")
    return 0 if all(one.met for one in verdicts) else 1


if __name__ == "__main__":
    sys.exit(main())
