"""What teams learn: TAAC beside a shared PPO, towers of boxes, and how fast they act.

    python benchmarks/team_learning.py spread               TAAC and PPO, simple_spread
    python benchmarks/team_learning.py towers               recipe box_jump, and random
    python benchmarks/team_learning.py collecting           8 teams, 1 and 2 workers
    python benchmarks/team_learning.py games                connect four, in turn
    python benchmarks/team_learning.py by_config            simple_spread, corral train
    python benchmarks/team_learning.py spread --seeds 1 --steps 20000      a short look

Both learners of `spread` have the same envs, steps, minibatches and numbers of weights
(within 10%), and all values are printed: the mean return of a team's episodes by tenths
of the run, then of 100 new episodes with the likeliest actions. Heights of `towers` are
best heights of episodes, of the best checkpoint, on new seeds. `games` and `by_config`
are runs of `corral train` with PPO and view: shared. Games are judged by the best
checkpoint in 1,000 new games against random moves, with its likeliest moves; it has
each seat in every other game, and a draw is not won.
"""

from __future__ import annotations

import argparse
import functools
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
import yaml
from mpe2 import simple_spread_v3
from races import machine

import corral
from corral.api.pettingzoo.env import open_team_pool
from corral.api.shared_policy.make import open_shared_pool
from corral.learners.ppo import PPO, PPOConfig
from corral.learners.protocol import LearnerSetup
from corral.learners.taac.learner import TAACLearner
from corral.learners.taac.settings import TAACConfig
from corral.train.run.start import begin
from corral.train.sinks import jsonl
from corral.zoo import box_jump

SLOTS, EPISODES, SCORING = 16, 100, 1_000_000
# Common to both learners of `spread`.
SAME = {
    "lr": 5e-4,
    "n_steps": 125,
    "n_epochs": 10,
    "gamma": 0.95,
    "gae_lambda": 0.95,
    "ent_coef": 0.01,
    "max_grad_norm": 0.5,
}
# Samples are rows of agents for PPO, and rows times agents for TAAC.
BATCH = 1500
make_spread = functools.partial(simple_spread_v3.parallel_env, N=3, max_cycles=25)

# Simple spread ------------------------------------------------------------------------

Trained = tuple[list[float], float, int]


def taac(seed: int, steps: int) -> Trained:
    """Returns of teams by tenths, the last score, and the number of weights."""
    config = TAACConfig(**SAME, lr_min=5e-4, batch_size=BATCH, weight_decay=0.0)
    with open_team_pool(make_spread, SLOTS, seed=seed, backend="serial") as pool:
        learner = TAACLearner(LearnerSetup(pool.spec, config, pool, seed=seed))
        returns = trained(pool, learner, config.n_steps, steps, per_agent=1)
        return returns, score(learner.policy), weights(learner.net)


def shared_ppo(seed: int, steps: int) -> Trained:
    """The same with one PPO that every agent asks for itself."""
    config = PPOConfig(**SAME, batch_size=BATCH, hidden=(236, 236))
    pool = open_shared_pool(make_spread, SLOTS, seed=seed, backend="serial")
    with pool:
        spec = pool.spec
        learner = PPO(spec.observation_space, spec.action_space, config, seed=seed)
        returns = trained(pool, learner, config.n_steps, steps, per_agent=3)
        policy = pool.for_envs(learner.policy)
        return returns, score(policy), weights(learner.net)


def trained(
    pool: Any, learner: Any, rows: int, steps: int, per_agent: int
) -> list[float]:
    """Train for so many env steps; returns are of teams: sums over their agents."""
    collector, found = corral.Collector(pool, learner.policy), []
    for _ in range(max(1, steps // (rows * SLOTS))):
        rollout = collector.collect(rows)
        ended = [episode.return_ for episode in rollout.episodes]
        found.append(per_agent * statistics.fmean(ended))
        learner.update(rollout)
    return [float(np.mean(part)) for part in np.array_split(found, 10) if len(part)]


def score(policy: Any) -> float:
    with open_team_pool(make_spread, SLOTS, backend="serial") as pool:
        chosen = policy.deterministic()
        return corral.evaluate(chosen, pool, episodes=EPISODES, seed=SCORING).mean


def weights(net: Any) -> int:
    return sum(one.numel() for one in net.parameters())


def spread(seeds: range, steps: int) -> None:
    scores: dict[str, list[float]] = {}
    for train in (taac, shared_ppo):
        for seed in seeds:
            began = time.perf_counter()
            returns, final, size = train(seed, steps)
            shown = " ".join(f"{one:.1f}" for one in returns)
            took = time.perf_counter() - began
            print(f"{train.__name__} seed {seed}: {shown} | {final:.1f}", flush=True)
            print(f"    {size:,} weights, {took:.0f} s", flush=True)
            scores.setdefault(train.__name__, []).append(final)
    for name, values in scores.items():
        deviation = statistics.stdev(values) if len(values) > 1 else 0.0
        print(f"{name}: {statistics.fmean(values):.1f} ± {deviation:.1f}  {values}")


# Towers -------------------------------------------------------------------------------


def towers(seeds: range, steps: int) -> None:
    print(f"random: {random_heights():.2f} (mean best height of {EPISODES} episodes)")
    for seed in seeds:
        settings = {"seed": seed, "total_steps": steps, "video": "never"}
        with tempfile.TemporaryDirectory() as folder:
            with begin("box_jump", settings, out=Path(folder) / "run") as training:
                training.run()
            result = training.directory.read_about()["result"]
        print(f"seed {seed}: {result}", flush=True)


def random_heights() -> float:
    """Of the recipe's envs, with actions at random."""
    rng, found = np.random.default_rng(0), []
    env = box_jump.parallel_env(num_boxes=4, max_timestep=100)
    for seed in range(EPISODES):
        env.reset(seed=seed)
        while env.agents:
            actions = {agent: int(rng.integers(4)) for agent in env.agents}
            infos = env.step(actions)[-1]
        found.append(infos["box-1"]["best_height"])
    return statistics.fmean(found)


# Collecting ---------------------------------------------------------------------------


def collecting(seeds: range, steps: int) -> None:
    """Env steps per second of 8 teams, in turns; the ratio is the median of rounds'."""
    rows = max(20, steps // 8 // 100)
    for act_in in ("caller", "workers"):
        ratios = []
        pools = [collector_of(count, act_in) for count in (1, 2)]
        for _ in range(15):
            speeds = [speed(collector, rows) for collector in pools]
            ratios.append(speeds[1] / speeds[0])
            print(f"{act_in}: {speeds[0]:.0f} and {speeds[1]:.0f} steps/s", flush=True)
        for collector in pools:
            collector.pool.close()
        print(f"{act_in}: 2 workers are {statistics.median(ratios):.2f}x one worker")


def collector_of(workers: int, act_in: str) -> corral.Collector:
    pool = open_team_pool(
        box_jump.parallel_env, 8, backend="process", workers=workers, seed=0
    )
    learner = TAACLearner(LearnerSetup(pool.spec, TAACConfig(), pool))
    collector = corral.Collector(pool, learner.policy, act_in=act_in)
    collector.collect(20)
    return collector


def speed(collector: corral.Collector, rows: int) -> float:
    began = time.perf_counter()
    collector.collect(rows)
    return 8 * rows / (time.perf_counter() - began)


# Runs by config -----------------------------------------------------------------------

COMMON = {"backend": "serial", "num_envs": SLOTS, "video": "never"}
GAME = {
    **COMMON,
    "env": "pettingzoo.classic.connect_four.connect_four:env",
    "evaluate_episodes": 200,
    "final_episodes": 1000,
    "ppo": {
        "n_steps": 128,
        "batch_size": 512,
        "n_epochs": 5,
        "lr": 1e-3,
        "ent_coef": 0.01,
        "hidden": [128, 128],
    },
}
SPREAD = {
    **COMMON,
    "env": "mpe2.simple_spread_v3:parallel_env",
    "env_kwargs": {"N": 3, "max_cycles": 25},
    "final_episodes": EPISODES,
    "ppo": {**SAME, "batch_size": BATCH, "lr": 1e-3, "n_epochs": 5},
}


def games(seeds: range, steps: int) -> None:
    """Won of the games of each evaluation, then the best policy's 1,000 games."""
    for seed in seeds:
        result, took = by_corral_train(GAME, {"opponents": "random"}, seed, steps)
        print(f"seed {seed}: {result} {took:.0f} s", flush=True)


def by_config(seeds: range, steps: int) -> None:
    for seed in seeds:
        result, took = by_corral_train(SPREAD, {"view": "shared"}, seed, steps)
        print(f"seed {seed}: {result} {took:.0f} s", flush=True)


def by_corral_train(
    config: dict[str, Any], settings: dict[str, Any], seed: int, steps: int
) -> tuple[str, float]:
    """Run it; return its last line about the best policy, and CPU seconds."""
    began = time.process_time()
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder) / "run.yaml"
        source.write_text(yaml.safe_dump(config))
        asked = {**settings, "seed": seed, "total_steps": steps}
        with begin(str(source), asked, out=Path(folder) / "run") as training:
            training.run()
            metrics = jsonl.read(training.directory.metrics)
        result = training.directory.read_about()["result"]
    name = "eval/return" if config is SPREAD else "eval/success_rate"
    curve = " ".join(f"{one[name]:.3g}" for one in metrics if name in one)
    return f"{curve} | {result}", time.process_time() - began


PARTS: dict[str, tuple[Callable[[range, int], None], int]] = {
    "spread": (spread, 1_000_000),
    "towers": (towers, 300_000),
    "collecting": (collecting, 400_000),
    "games": (games, 80_000),
    "by_config": (by_config, 40_000),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("parts", nargs="+", choices=PARTS)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--first-seed", type=int, default=10)
    parser.add_argument("--steps", type=int, help="env steps of each run")
    asked = parser.parse_args()
    torch.set_num_threads(1)
    print(machine())
    for name in asked.parts:
        run, usual = PARTS[name]
        seeds = range(asked.first_seed, asked.first_seed + asked.seeds)
        run(seeds, asked.steps or usual)


if __name__ == "__main__":
    main()
