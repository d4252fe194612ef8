"""Corral beside Stable-Baselines3's vector envs, from bare steps to PPO.

    python benchmarks/sb3_speed.py                  all claims, many minutes
    python benchmarks/sb3_speed.py --quick          the same with short turns
    python benchmarks/sb3_speed.py --skip-heavy     without SubprocVecEnv of 64 Ants,
                                                    which takes a minute and 11 GiB
    python benchmarks/sb3_speed.py --only cartpole  those whose key has the word

Everything is measured in interleaved rounds (see corral.tools.bench.measure) with all
infos delivered. Each claim is printed with its target and whether it was met. Beside 64
Ants the limit says what the cores had to give in that run: an Ant on each, no vector
env.
"""

from __future__ import annotations

import argparse
import functools
import json
import statistics
import sys
import time
from dataclasses import asdict, replace
from importlib.metadata import version
from itertools import cycle, islice
from pathlib import Path

import torch
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
from races import machine
from stable_baselines3 import PPO
from stable_baselines3.common.vec_env import DummyVecEnv, SubprocVecEnv
from yardsticks import Limit

import corral
from corral.engine.executors.assign import usable_cores
from corral.tools.bench.measure import draw_actions

HEAVY = "ant-64"
"""The contest in which SubprocVecEnv takes a minute to start and 11 GiB."""
READY = "64 Ant-v5, from nothing to ready"
ROLLOUT = 256
"""Steps per slot between two updates of PPO; the rest is at its defaults."""

SERIAL = Claim("serial", "dummy", 1.0)
CONTESTS = (
    Contest(
        "cartpole-8",
        "CartPole-v1 ×8",
        lambda: workloads.make_cartpole,
        8,
        ("subproc", "dummy", "serial", "process", "auto"),
        (Claim("auto", "subproc", 6.0), SERIAL),
    ),
    Contest(
        "ant-8",
        "Ant-v5 ×8",
        lambda: workloads.make_ant,
        8,
        ("subproc", "dummy", "auto"),
        (Claim("auto", "subproc", 1.4),),
    ),
    Contest(
        HEAVY,
        "Ant-v5 ×64",
        lambda: workloads.make_ant,
        64,
        ("subproc", "dummy", "limit", "auto"),
        (Claim("auto", "subproc", 2.5), Claim("auto", "dummy", 1.7)),
    ),
)
TRAINING = Contest(
    "ppo-ant-8",
    "PPO on Ant-v5 ×8, learning included, torch with one thread",
    lambda: workloads.make_ant,
    8,
    ("subproc", "dummy", "auto"),
    (Claim("auto", "subproc", 1.0), Claim("auto", "dummy", 1.0)),
)
# Between two forward passes torch's other threads would go on spinning, on the cores
# that workers need; see corral.engine.executors.openmp.
CROWDED = replace(
    TRAINING,
    key="ppo-ant-8-crowded",
    title="PPO on Ant-v5 ×8, learning included, torch with a thread per core",
)


# --- the candidates ---------------------------------------------------------------


class VecEnvRunner:
    """Steps an SB3 vector env with actions drawn beforehand."""

    def __init__(self, envs) -> None:
        self.envs = envs
        self.slots = envs.num_envs
        self.actions = draw_actions(envs.action_space, self.slots, seed=0)
        envs.seed(0)
        envs.reset()

    def run(self, batches: int) -> float:
        step = self.envs.step
        actions = list(islice(cycle(self.actions), batches))
        began = time.perf_counter()
        for action in actions:
            step(action)
        return time.perf_counter() - began

    def close(self) -> None:
        self.envs.close()


class TrainingRunner:
    """Trains SB3's own PPO; a batch is one rollout and what is learnt from it."""

    threads = 1

    def __init__(self, envs) -> None:
        self.envs = envs
        self.slots = envs.num_envs * ROLLOUT
        self._model = PPO("MlpPolicy", envs, n_steps=ROLLOUT, seed=0, device="cpu")

    def run(self, batches: int) -> float:
        torch.set_num_threads(self.threads)
        began = time.perf_counter()
        frames = batches * self.slots
        self._model.learn(frames, reset_num_timesteps=False)
        return time.perf_counter() - began

    def close(self) -> None:
        self.envs.close()


class CrowdedRunner(TrainingRunner):
    """The same with as many torch threads as there are cores, which is its default."""

    threads = usable_cores()


def ours(factory, slots: int, backend: str):
    return corral.make_sb3(factory, slots, backend=backend)


ENVS = {
    "subproc": ("SB3 SubprocVecEnv", lambda make, slots: SubprocVecEnv([make] * slots)),
    "dummy": ("SB3 DummyVecEnv", lambda make, slots: DummyVecEnv([make] * slots)),
    "serial": ("Corral, serial", functools.partial(ours, backend="serial")),
    "process": ("Corral, process", functools.partial(ours, backend="process")),
    "auto": ("Corral", functools.partial(ours, backend="auto")),
}


def entrants(runner: type) -> dict[str, Entrant]:
    def entrant(title: str, make) -> Entrant:
        return Entrant(title, lambda factory, slots: runner(make(factory, slots)))

    field = {name: entrant(title, make) for name, (title, make) in ENVS.items()}
    cores = usable_cores()
    return {
        **field,
        "limit": Entrant("the limit", lambda factory, slots: Limit(factory, cores)),
    }


# --- start-up and memory ------------------------------------------------------------


def probe_startup(peer: str) -> dict[str, float]:
    """Seconds until 64 Ants are ready to step, and the memory of the whole tree."""
    began = time.perf_counter()
    if peer == "subproc":
        envs = SubprocVecEnv([workloads.make_ant] * 64)
    else:
        envs = corral.make_sb3("Ant-v5", 64)
    envs.reset()
    seconds = time.perf_counter() - began
    envs.step(draw_actions(envs.action_space, 64, seed=0)[0])
    memory = memory_of_tree()
    envs.close()
    return {"seconds": seconds, "MiB": memory}


def run_startup(rounds: int, heavy: bool):
    """Ours in some fresh processes, theirs in one: it takes a minute."""
    found = []
    for _ in range(rounds):
        found.append(in_fresh_process(__file__, "startup", "corral"))
        note(".")
    medians = {
        "Corral": {
            key: statistics.median(one[key] for one in found)
            for key in ("seconds", "MiB")
        }
    }
    if heavy:
        medians["SB3 SubprocVecEnv"] = in_fresh_process(__file__, "startup", "subproc")
        note(".")
    ready = medians["Corral"]
    bounds = {"seconds": ("seconds", 2.0, "s"), "MiB": ("PSS of the tree", 650, "MiB")}
    verdicts = [
        Verdict(READY, words, ready[key], target, ready[key] <= target, unit)
        for key, (words, target, unit) in bounds.items()
    ]
    return medians, verdicts


# --- the whole ----------------------------------------------------------------------


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help="short turns, few rounds")
    parser.add_argument("--only", nargs="+", default=[""], metavar="WORD")
    parser.add_argument("--rounds", type=int, help="turns per candidate (9; quick: 3)")
    parser.add_argument(
        "--skip-heavy", action="store_true", help="no SubprocVecEnv of 64 Ants"
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write this")
    parser.add_argument("--probe", nargs=2, help=argparse.SUPPRESS)
    return parser.parse_args()


def chosen(arguments: argparse.Namespace) -> list[tuple[Contest, type]]:
    """The contests to run, and what runs in them."""
    races = [(contest, VecEnvRunner) for contest in CONTESTS]
    races += [(TRAINING, TrainingRunner), (CROWDED, CrowdedRunner)]
    if arguments.skip_heavy:
        races = [(without_heavy(contest), runner) for contest, runner in races]
    return [
        (contest, runner)
        for contest, runner in races
        if any(word in contest.key for word in arguments.only)
    ]


def without_heavy(contest: Contest) -> Contest:
    if contest.key != HEAVY:
        return contest
    names = tuple(name for name in contest.names if name != "subproc")
    return replace(contest, names=names)


def main() -> int:
    arguments = parse()
    if arguments.probe:
        print(json.dumps(probe_startup(arguments.probe[1])))
        return 0
    rounds = arguments.rounds or (3 if arguments.quick else 9)
    turn_seconds = 0.15 if arguments.quick else 0.5
    words = f"{machine()}, Stable-Baselines3 {version('stable_baselines3')}"
    print(f"{words}; {rounds} rounds of {turn_seconds} s turns\n")
    record: dict[str, object] = {"machine": words, "rounds": rounds}
    verdicts: list[Verdict] = []
    for contest, runner in chosen(arguments):
        note(f"{contest.key} ")
        field = entrants(runner)
        rates, found, layout = run_contest(contest, field, rounds, turn_seconds)
        note("\n")
        verdicts += found
        record[contest.key] = {name: one.rounds for name, one in rates.items()}
        print(report_rates(contest, rates, layout, field), flush=True)
        if "limit" in rates:
            given = rates["limit"].over(rates["dummy"])
            print(f"The cores had {given:.2f} × SB3 DummyVecEnv to give.\n")
    if any(word in "startup" for word in arguments.only):
        note("startup ")
        heavy = not arguments.skip_heavy
        record["startup"], found = run_startup(min(rounds, 5), heavy)
        note("\n")
        verdicts += found
        for peer, values in record["startup"].items():
            told = f"{values['seconds']:.2f} s, {values['MiB']:.0f} MiB"
            print(f"64 Ant-v5 on {peer}: {told}\n")
    print(report_verdicts(verdicts))
    if arguments.json:
        record["claims"] = [asdict(one) for one in verdicts]
        arguments.json.write_text(json.dumps(record, indent=2) + "\n")
    return 0 if all(one.met for one in verdicts) else 1


if __name__ == "__main__":
    sys.exit(main())
