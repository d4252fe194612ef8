"""PyBullet robots: 1, 4 and 8 envs with Corral and with Stable-Baselines3.

    python benchmarks/bullet_speed.py                 all of it, many minutes
    python benchmarks/bullet_speed.py --quick         short turns, rollouts of 512 steps
    python benchmarks/bullet_speed.py --only upkie-8  those whose key has the word

How long 2,048 steps take, shared by the envs: first only steps, then with a policy and
PPO's update (batches of 128, 5 epochs), which is how people train Upkie. Candidates
take turns, round by round; one env in DummyVecEnv takes part in every contest, so that
"times one env" holds within rounds.

The published Upkie cannot share a process, so DummyVecEnv gets robots made with
`in_process=True`; they do the same, bit for bit.
"""

from __future__ import annotations

import argparse
import functools
import json
import sys
import time
from collections.abc import Callable, Mapping
from importlib.metadata import version

import gymnasium
import psutil
import torch
from contests import (
    Contest,
    Entrant,
    in_fresh_process,
    memory_of_tree,
    note,
    run_contest,
    table,
)
from races import Runner, machine
from sb3_speed import VecEnvRunner
from stable_baselines3 import PPO
from stable_baselines3.common.vec_env import DummyVecEnv, SubprocVecEnv, VecEnv

import corral
from corral.tools.bench.measure import Rates
from corral.zoo import bullet_pendulum, upkie

ROLLOUT = 2048
SIZES = (1, 4, 8)
ONE = "dummy@1"
"""What all others are compared with."""

MakeRunner = Callable[[VecEnv], Runner]
Factory = Callable[[], gymnasium.Env]
# Name -> a factory of envs that need a process each, and of some that can share one.
ROBOTS: dict[str, tuple[Factory, Factory]] = {
    "upkie": (upkie.make, functools.partial(upkie.make, in_process=True)),
    "bullet_pendulum": (bullet_pendulum.make, bullet_pendulum.make),
}


def opened(kind: str, robot: str, slots: int) -> VecEnv:
    """One of the candidates."""
    alone, sharing = ROBOTS[robot]
    if kind == "dummy":
        return DummyVecEnv([sharing] * slots)
    if kind == "subproc":
        return SubprocVecEnv([alone] * slots)
    if kind == "slot":
        return corral.make_sb3(alone, slots, backend="process", isolation="slot")
    return corral.make_sb3(sharing, slots)


TITLES = {
    "dummy": "SB3 DummyVecEnv, all in one process",
    "subproc": "SB3 SubprocVecEnv, a process each",
    "slot": "Corral, a process each",
    "auto": "Corral, sharing processes",
}


class PPORunner:
    """A batch is a rollout of all envs together, and what is learnt from it."""

    def __init__(self, envs: VecEnv, rollout: int = ROLLOUT) -> None:
        self.envs = envs
        steps = rollout // envs.num_envs
        self.slots = steps * envs.num_envs
        settings = {"batch_size": 128, "n_epochs": 5, "seed": 0, "device": "cpu"}
        self._model = PPO("MlpPolicy", envs, n_steps=steps, **settings)

    def run(self, batches: int) -> float:
        began = time.perf_counter()
        self._model.learn(batches * self.slots, reset_num_timesteps=False)
        return time.perf_counter() - began

    def close(self) -> None:
        self.envs.close()


def entrants(robot: str, runner: MakeRunner) -> dict[str, Entrant]:
    def entrant(kind: str) -> Entrant:
        return Entrant(
            TITLES[kind], lambda factory, slots: runner(opened(kind, robot, slots))
        )

    return {kind: entrant(kind) for kind in TITLES}


def race(robot: str, size: int, runner: MakeRunner, rounds: int, seconds: float):
    names = (ONE, *(kind for kind in TITLES if (kind, size) != ("dummy", 1)))
    contest = Contest(f"{robot}-{size}", "", lambda: None, size, names, ())
    rates, _, layout = run_contest(contest, entrants(robot, runner), rounds, seconds)
    return rates, layout


def report(what: str, found: Mapping[int, Mapping[str, Rates]]) -> str:
    """Seconds for so many steps, and how many times as fast as one env."""
    rows = []
    for kind, title in TITLES.items():
        row = [title]
        for size, rates in found.items():
            one = rates[ONE if (kind, size) == ("dummy", 1) else kind]
            seconds, times = ROLLOUT / one.median, one.over(rates[ONE])
            row.append(f"{seconds:.2f} s ±{one.spread:.0%} ({times:.2f} ×)")
        rows.append(row)
    header = (what, *(f"{size} env{'s' * (size > 1)}" for size in found))
    return table(header, rows)


def probe(kind: str, robot: str) -> dict[str, float]:
    """Of eight envs: seconds until they were reset, memory, and what steps compute.

    CPU time is what other programs on the machine change least.
    """
    began = time.perf_counter()
    envs = opened(kind, robot, 8)
    runner = VecEnvRunner(envs)
    found = {"seconds": time.perf_counter() - began, "MiB": memory_of_tree()}
    runner.run(8)
    before = cpu_of_tree()
    runner.run(ROLLOUT // 8)
    found["CPU"] = cpu_of_tree() - before
    envs.close()
    return found


def cpu_of_tree() -> float:
    """CPU seconds of this process and all that it started."""
    parent = psutil.Process()
    times = [one.cpu_times() for one in (parent, *parent.children(recursive=True))]
    return sum(one.user + one.system for one in times)


def report_costs(robot: str) -> str:
    rows = []
    for kind, title in TITLES.items():
        found = in_fresh_process(__file__, kind, robot)
        units = {"seconds": "{:.1f} s", "MiB": "{:,.0f} MiB", "CPU": "{:.2f} s"}
        rows.append((title, *(text.format(found[key]) for key, text in units.items())))
        note(".")
    cpu = f"CPU time of {ROLLOUT:,} steps"
    return table((f"8 × {robot}", "ready after", "memory (PSS)", cpu), rows)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--quick", action="store_true", help="short turns, few rounds")
    parser.add_argument("--only", nargs="+", default=[""], metavar="WORD")
    parser.add_argument("--rounds", type=int, help="turns per candidate (5; quick: 3)")
    parser.add_argument("--probe", nargs=2, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.probe:
        print(json.dumps(probe(*arguments.probe)))
        return 0
    torch.set_num_threads(1)
    rounds = arguments.rounds or (3 if arguments.quick else 5)
    training = (
        functools.partial(PPORunner, rollout=512) if arguments.quick else PPORunner
    )
    sb3 = f"Stable-Baselines3 {version('stable_baselines3')}"
    print(f"{machine()}, {sb3}; {rounds} rounds")
    for robot in ROBOTS:
        sizes = [
            size
            for size in SIZES
            if any(word in f"{robot}-{size}" for word in arguments.only)
        ]
        work = {"steps alone": VecEnvRunner, "steps and PPO": training}
        for what, runner in work.items() if sizes else ():
            found = {}
            for size in sizes:
                note(f"{robot}-{size} {what} ")
                turn = 0.3 if arguments.quick else 2.0
                found[size], layout = race(robot, size, runner, rounds, turn)
                note(f"\n{layout}\n")
            print(f"\n### {robot}: {what}\n\n{report(what, found)}\n", flush=True)
        if 8 in sizes:
            print(report_costs(robot), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
