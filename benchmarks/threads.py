"""Where threads pay: serial, threads and processes on envs that release the GIL.

    python benchmarks/threads.py                 all claims, some minutes
    python benchmarks/threads.py --quick         the same with short turns
    python benchmarks/threads.py --only sleep    those whose key has the word

Everything is measured in interleaved rounds (see corral.tools.bench.measure). `auto` is
given envs that say they release the GIL; what it chose, and why, is under each table.
The work that must not go to threads is here as well: CartPole, which is Python
throughout.
"""

from __future__ import annotations

import argparse
import functools
import json
import statistics
import sys
import time
from dataclasses import asdict
from importlib.util import find_spec
from pathlib import Path

import releasing
import workloads
from contests import (
    Claim,
    Contest,
    Entrant,
    Factory,
    Verdict,
    in_fresh_process,
    memory_of_tree,
    note,
    report_rates,
    report_verdicts,
    run_contest,
)
from races import Runner, VectorRunner, machine

import corral
from corral.tools.bench.measure import in_turn

NEEDED = {"onnx": ("onnx", "onnxruntime"), "ant": ("mujoco",)}
"""By the first word of a contest's key: packages without which it is left out."""
READY = "64 envs that wait, from nothing to ready"


# --- what is raced, and what is claimed ---------------------------------------


def sleeping():
    return functools.partial(workloads.make_waiting, 1e-3)


def remote():
    return functools.partial(releasing.make_remote, releasing.echo_port(1e-3))


def hashing():
    return functools.partial(releasing.make_hashing, releasing.bytes_for(200))


BACKENDS = ("serial", "thread", "process", "auto")
NO_LOSS = Claim("auto", "process", 0.85)
"""Threads start sooner and share their memory, so `auto` may take them for a tenth."""

CONTESTS = (
    Contest(
        "sleep-8",
        "sleep of 1 ms ×8",
        sleeping,
        8,
        (*BACKENDS, "process-each", "undeclared"),
        (
            Claim("auto", "serial", 6.0),
            Claim("auto", "process", 3.0),
            Claim("auto", "process-each", 0.9),
            Claim("undeclared", "process", 3.0),
        ),
    ),
    Contest(
        "sleep-64",
        "sleep of 1 ms ×64",
        sleeping,
        64,
        (*BACKENDS, "undeclared"),
        (Claim("auto", "serial", 20.0), Claim("auto", "process", 10.0)),
    ),
    Contest(
        "network-8",
        "a server that answers after 1 ms ×8",
        remote,
        8,
        (*BACKENDS, "process-each"),
        (
            Claim("auto", "serial", 4.0),
            Claim("auto", "process", 2.2),
            Claim("auto", "process-each", 0.9),
        ),
    ),
    Contest(
        "hash-8",
        "200 µs of hashing ×8",
        hashing,
        8,
        BACKENDS,
        (Claim("thread", "serial", 1.5), NO_LOSS),
    ),
    Contest(
        "onnx-8",
        "ONNX Runtime, 8 dense layers ×8",
        releasing.inference,
        8,
        BACKENDS,
        (Claim("thread", "serial", 1.5), NO_LOSS),
    ),
    Contest(
        "ant-8",
        "Ant-v5 ×8",
        lambda: workloads.make_ant,
        8,
        BACKENDS,
        (Claim("thread", "serial", 1.2), NO_LOSS),
    ),
    Contest(
        "ant-64",
        "Ant-v5 ×64",
        lambda: workloads.make_ant,
        64,
        BACKENDS,
        (Claim("thread", "serial", 1.4), NO_LOSS),
    ),
    Contest(
        "cartpole-64",
        "CartPole-v1 ×64, which holds the GIL whatever it says",
        lambda: workloads.make_cartpole,
        64,
        BACKENDS,
        (NO_LOSS, Claim("auto", "thread", 1.3)),
    ),
)


# --- the candidates -------------------------------------------------------------


def ours(factory: Factory, slots: int, **options) -> Runner:
    return VectorRunner(corral.make(factory, num_envs=slots, **options))


def declaring(factory: Factory, slots: int) -> Runner:
    return ours(releasing.declared(factory), slots)


def each_its_process(factory: Factory, slots: int) -> Runner:
    return ours(factory, slots, isolation="slot")


ENTRANTS = {
    "serial": Entrant("serial", functools.partial(ours, backend="serial")),
    "process": Entrant("processes", functools.partial(ours, backend="process")),
    "process-each": Entrant("a process per slot", each_its_process),
    "thread": Entrant("threads", functools.partial(ours, backend="thread")),
    "undeclared": Entrant("auto, undeclared", ours),
    "auto": Entrant("auto", declaring),
}


# --- start-up: each measured in a fresh process -----------------------------------


def probe_startup(peer: str) -> dict[str, float]:
    """Seconds until 64 sleepers are ready, and the memory that they brought."""
    backend, workers = peer.split("-")
    before = memory_of_tree()
    began = time.perf_counter()
    envs = corral.make(sleeping(), 64, backend=backend, workers=int(workers))
    envs.reset(seed=0)
    seconds = time.perf_counter() - began
    envs.step(envs.action_space.sample())
    memory = memory_of_tree() - before
    envs.close()
    return {"seconds": seconds, "MiB": memory}


def run_startup(rounds: int) -> tuple[dict[str, dict[str, float]], list[Verdict]]:
    """64 threads beside as many processes as `auto` takes at most on 2 cores."""
    peers = ["thread-64", "process-8"]
    found: dict[str, list[dict[str, float]]] = {peer: [] for peer in peers}
    for number in range(rounds):
        for peer in in_turn(peers, number):
            found[peer].append(in_fresh_process(__file__, "startup", peer))
            note(".")
    medians = {
        peer: {key: statistics.median(one[key] for one in values) for key in values[0]}
        for peer, values in found.items()
    }
    threads = medians["thread-64"]
    verdicts = [
        Verdict(READY, "64 threads", found, target, found <= target, unit)
        for found, target, unit in (
            (threads["seconds"], 0.3, "s"),
            (threads["MiB"], 20, "MiB"),
        )
    ]
    return medians, verdicts


# --- the report -------------------------------------------------------------------


def missing_for(contest: Contest) -> list[str]:
    needed = NEEDED.get(contest.key.split("-")[0], ())
    return [package for package in needed if find_spec(package) is None]


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
        print(json.dumps(probe_startup(arguments.probe[1])))
        return 0
    rounds = arguments.rounds or (3 if arguments.quick else 9)
    turn_seconds = 0.15 if arguments.quick else 0.5
    print(f"{machine()}; {rounds} rounds of {turn_seconds} s turns\n")
    record: dict[str, object] = {"machine": machine(), "rounds": rounds}
    verdicts: list[Verdict] = []

    def wanted(key: str) -> bool:
        return any(word in key for word in arguments.only)

    for contest in CONTESTS:
        if not wanted(contest.key):
            continue
        if missing := missing_for(contest):
            print(f"{contest.key} left out: pip install {' '.join(missing)}\n")
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
            print(f"{READY}, {peer.replace('-', ' ×')}: ", end="")
            print(f"{values['seconds']:.2f} s, {values['MiB']:.0f} MiB\n")
    print(report_verdicts(verdicts))
    if arguments.json:
        record["claims"] = [asdict(one) for one in verdicts]
        arguments.json.write_text(json.dumps(record, indent=2) + "\n")
    return 0 if all(one.met for one in verdicts) else 1


if __name__ == "__main__":
    sys.exit(main())
