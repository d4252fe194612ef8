"""Corral's PPO beside Stable-Baselines3's: the same settings, learning included.

    python benchmarks/ppo_speed.py                  all claims, some minutes
    python benchmarks/ppo_speed.py --quick          the same with short turns
    python benchmarks/ppo_speed.py --only cartpole  those whose key has the word

Everybody has 8 envs (or 64), 128 rows per slot between two updates, minibatches of 256,
4 epochs and two layers of 64 for actor and critic each, on one torch thread: more of
them spin on the cores that envs need, and make everybody slower. Frames are counted
from the first act to the last minibatch, in interleaved rounds
(corral.tools.bench.measure).
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable
from dataclasses import asdict
from importlib.metadata import version
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
from stable_baselines3 import PPO as PeerPPO
from stable_baselines3.common.vec_env import DummyVecEnv, SubprocVecEnv

from corral.engine.pool import Pool
from corral.learners.ppo import PPO, PPOConfig
from corral.rollouts.collector import Collector

ROWS, BATCH, EPOCHS = 128, 256, 4
MEMORY = 1024
"""MiB that training 8 Ants may take, workers included."""


def over_both(target: float) -> tuple[Claim, ...]:
    """Over the faster of SB3's vector envs, so over each of them."""
    return tuple(Claim("auto", peer, target) for peer in ("dummy", "subproc"))


CONTESTS = (
    Contest(
        "cartpole-8",
        "PPO on CartPole-v1 ×8",
        lambda: workloads.make_cartpole,
        8,
        ("dummy", "subproc", "auto", "two_groups"),
        over_both(1.8),
    ),
    Contest(
        "ant-8",
        "PPO on Ant-v5 ×8",
        lambda: workloads.make_ant,
        8,
        ("dummy", "subproc", "auto", "two_groups"),
        over_both(1.5),
    ),
    Contest(
        "cartpole-64",
        "PPO on CartPole-v1 ×64",
        lambda: workloads.make_cartpole,
        64,
        ("dummy", "auto", "two_groups"),
        (),
    ),
)


# --- the candidates ---------------------------------------------------------------


class PeerRunner:
    """SB3's PPO; a batch is one rollout and what is learnt from it."""

    def __init__(self, envs) -> None:
        self.envs = envs
        self.slots = envs.num_envs * ROWS
        self._model = PeerPPO(
            "MlpPolicy",
            envs,
            n_steps=ROWS,
            batch_size=BATCH,
            n_epochs=EPOCHS,
            seed=0,
            device="cpu",
        )

    def run(self, batches: int) -> float:
        began = time.perf_counter()
        self._model.learn(batches * self.slots, reset_num_timesteps=False)
        return time.perf_counter() - began

    def close(self) -> None:
        self.envs.close()


class Runner:
    """Ours: the loop that a training run has at its heart."""

    def __init__(self, factory: Callable, slots: int, mode: str) -> None:
        self.envs = Pool(factory, slots, seed=0, infos="final")
        self.slots = slots * ROWS
        spec = self.envs.spec
        config = PPOConfig(n_steps=ROWS, batch_size=BATCH, n_epochs=EPOCHS)
        self._ppo = PPO(spec.observation_space, spec.action_space, config, seed=0)
        self._collector = Collector(self.envs, self._ppo.policy, mode=mode)

    def run(self, batches: int) -> float:
        began = time.perf_counter()
        for _ in range(batches):
            rollout = self._collector.collect(ROWS)
            self._ppo.update(rollout)
        return time.perf_counter() - began

    def close(self) -> None:
        self.envs.close()


ENTRANTS = {
    "subproc": Entrant(
        "SB3 PPO on SubprocVecEnv",
        lambda make, slots: PeerRunner(SubprocVecEnv([make] * slots)),
    ),
    "dummy": Entrant(
        "SB3 PPO on DummyVecEnv",
        lambda make, slots: PeerRunner(DummyVecEnv([make] * slots)),
    ),
    "auto": Entrant("Corral PPO", lambda make, slots: Runner(make, slots, "sync")),
    "two_groups": Entrant(
        "Corral PPO, two groups",
        lambda make, slots: Runner(make, slots, "two_groups"),
    ),
}


# --- memory -----------------------------------------------------------------------


def probe_memory() -> dict[str, float]:
    """MiB of the whole tree after some updates on 8 Ants."""
    runner = Runner(workloads.make_ant, 8, "sync")
    runner.run(3)
    memory = memory_of_tree()
    runner.close()
    return {"MiB": memory}


def run_memory() -> Verdict:
    found = in_fresh_process(__file__, "memory", "8")["MiB"]
    title, words = "PPO on Ant-v5 ×8", "PSS of the tree"
    return Verdict(title, words, found, MEMORY, found <= MEMORY, "MiB")


# --- the whole --------------------------------------------------------------------


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
    torch.set_num_threads(1)
    if arguments.probe:
        print(json.dumps(probe_memory()))
        return 0
    rounds = arguments.rounds or (3 if arguments.quick else 9)
    turn_seconds = 0.5 if arguments.quick else 2.0
    words = f"{machine()}, Stable-Baselines3 {version('stable_baselines3')}"
    print(f"{words}; {rounds} rounds of {turn_seconds} s turns\n")
    record: dict[str, object] = {"machine": words, "rounds": rounds}
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
    if any(word in "memory" for word in arguments.only):
        verdicts.append(run_memory())
    print(report_verdicts(verdicts))
    if arguments.json:
        record["claims"] = [asdict(one) for one in verdicts]
        arguments.json.write_text(json.dumps(record, indent=2) + "\n")
    return 0 if all(one.met for one in verdicts) else 1


if __name__ == "__main__":
    sys.exit(main())
