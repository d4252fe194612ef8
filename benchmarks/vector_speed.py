"""Corral beside Gymnasium's Sync and Async, a bare loop and the machine's limit.

    python benchmarks/vector_speed.py                    all claims, some minutes
    python benchmarks/vector_speed.py --quick            the same with short turns
    python benchmarks/vector_speed.py --only ant frames  those whose key has the word

Everything is measured in interleaved rounds (see corral.bench.measure) with all infos
delivered. Each claim is printed with its target and whether it was met.
"""

from __future__ import annotations

import argparse
import functools
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from pathlib import Path

import gymnasium
import psutil
import workloads
from yardsticks import BareLoop, Limit

import corral
from corral.bench.measure import (
    Rates,
    Runner,
    VectorRunner,
    in_turn,
    machine,
    race,
)
from corral.executors import usable_cores

MANY_CORES = 16
MIB = 1024 * 1024
CORES = usable_cores()


# --- what is raced, and what is claimed ---------------------------------------


@dataclass(frozen=True)
class Claim:
    """`name` is at least `target` times as fast as `over`."""

    name: str
    over: str
    target: float


@dataclass(frozen=True)
class Contest:
    """One piece of work, who does it, and what is claimed of them."""

    key: str
    title: str
    factory: Callable[[], Callable[[], gymnasium.Env]]
    """Makes the env's factory; called late, since it may calibrate."""
    slots: int
    names: tuple[str, ...]
    """Of BUILDERS; `name@slots` for another number of slots than the rest."""
    claims: tuple[Claim, ...]
    cores: int = 1
    """Left out on machines with fewer."""


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

# In the order of building: Async forks, so it comes before anything with threads.
BUILDERS: dict[str, Callable[..., Runner]] = {
    "async": functools.partial(gymnasium_runner, AsyncVectorEnv),
    "sync": functools.partial(gymnasium_runner, SyncVectorEnv),
    "loop": BareLoop,
    "limit": lambda factory, slots: Limit(factory, CORES),
    "serial": functools.partial(corral_runner, backend="serial"),
    "process": functools.partial(corral_runner, backend="process"),
    "full": functools.partial(corral_runner, backend="process", workers=CORES),
    "auto": functools.partial(corral_runner, backend="auto"),
}

TITLES = {
    "async": "Gymnasium Async",
    "sync": "Gymnasium Sync",
    "loop": "bare loop",
    "limit": "the limit",
    "serial": "Corral, serial",
    "process": "Corral, process",
    "full": "Corral, workers = cores",
    "auto": "Corral",
}


def title_of(name: str) -> str:
    kind, _, slots = name.partition("@")
    return f"{TITLES[kind]} ×{slots}" if slots else TITLES[kind]


@dataclass(frozen=True)
class Verdict:
    """One claim, measured."""

    work: str
    claim: str
    measured: float
    target: float
    met: bool
    unit: str = "×"


def run_contest(contest: Contest, rounds: int, turn_seconds: float):
    factory = contest.factory()
    with ExitStack() as stack:
        runners: dict[str, Runner] = {}
        for name in sorted(contest.names, key=build_order):
            kind, _, slots = name.partition("@")
            runners[name] = BUILDERS[kind](factory, int(slots or contest.slots))
            stack.callback(runners[name].close)
        rates = race(
            runners,
            rounds=rounds,
            turn_seconds=turn_seconds,
            on_turn=lambda name: note("."),
        )
        layout = str(getattr(runners["auto"].envs, "layout", ""))
    verdicts = [judge(contest, claim, rates) for claim in contest.claims]
    return rates, verdicts, layout


def build_order(name: str) -> int:
    return list(BUILDERS).index(name.partition("@")[0])


def judge(contest: Contest, claim: Claim, rates: dict[str, Rates]) -> Verdict:
    measured = rates[claim.name].over(rates[claim.over])
    words = f"{title_of(claim.name)} over {title_of(claim.over)}"
    met = measured >= claim.target
    return Verdict(contest.title, words, measured, claim.target, met)


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
    parent = psutil.Process()
    tree = [parent, *parent.children(recursive=True)]
    memory = sum(pss(process.pid) for process in tree) / MIB
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


def pss(pid: int) -> int:
    """The proportional set size: shared pages count once over all who share them."""
    for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
        if line.startswith("Pss:"):
            return int(line.split()[1]) * 1024
    raise RuntimeError(f"no Pss line for process {pid}")


PROBES = {"startup": probe_startup, "descriptors": probe_descriptors}


def in_fresh_process(probe: str, argument: str) -> dict[str, float]:
    command = [sys.executable, __file__, "--probe", probe, argument]
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    if result.returncode:
        raise RuntimeError(f"{' '.join(command)} failed:\n{result.stderr}")
    return json.loads(result.stdout.splitlines()[-1])


def run_startup(rounds: int):
    work = "64 Ant-v5, from nothing to ready"
    peers = ["corral", "async"]
    found: dict[str, list[dict[str, float]]] = {peer: [] for peer in peers}
    for number in range(rounds):
        for peer in in_turn(peers, number):
            found[peer].append(in_fresh_process("startup", peer))
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
    few, many = (in_fresh_process("descriptors", slots) for slots in ("8", "64"))
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


def note(text: str) -> None:
    print(text, end="", file=sys.stderr, flush=True)


def table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = ["| " + " | ".join(header) + " |", "|" + "---|" * len(header)]
    lines += ["| " + " | ".join(row) + " |" for row in rows]
    return "\n".join(lines)


def report_rates(contest: Contest, rates: dict[str, Rates], layout: str) -> str:
    rows = [
        (title_of(name), f"{one.median:,.0f}", f"±{one.spread:.0%}")
        for name, one in rates.items()
    ]
    body = table(("runner", "steps/s", "spread"), rows)
    return f"### {contest.title}\n\n{body}\n\nLayout chosen: {layout}\n"


def report_verdicts(verdicts: Sequence[Verdict]) -> str:
    rows = []
    for one in verdicts:
        bound = "≥" if one.unit == "×" else "≤"
        rows.append(
            (
                one.work,
                one.claim,
                f"{one.measured:.2f} {one.unit}",
                f"{bound} {one.target:g} {one.unit}",
                "yes" if one.met else "**no**",
            )
        )
    header = ("work", "claim", "measured", "target", "met")
    return f"### Claims\n\n{table(header, rows)}\n"


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
        rates, found, layout = run_contest(contest, rounds, turn_seconds)
        note("\n")
        verdicts += found
        record[contest.key] = {name: one.rounds for name, one in rates.items()}
        print(report_rates(contest, rates, layout), flush=True)
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
