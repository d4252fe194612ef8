"""What SAC and TD3 learn, seed by seed, beside Stable-Baselines3 and known bounds.

    python benchmarks/off_policy_learning.py                        every case, hours
    python benchmarks/off_policy_learning.py pendulum_v_memory      one of them
    python benchmarks/off_policy_learning.py --jobs 16 --json FILE  16 seeds at once

Each run has one core, or `--threads`. A result is the mean of 100 episodes (trials, for
tasks) with seeds, and tasks, that no training saw, by the policy at the end of the run.
`1st` and `last` are the mean returns of the first and the last episode of a trial.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np

SEEDS = (0, 1, 2)
EPISODES = 100
TEST_SEED = 12345
PENDULUM_V = {
    "env": "corral.zoo.meta.pendulum_v:make",
    "learner": "td3",
    "num_envs": 1,
    "total_steps": 31_000,
}
RECURRENT = {"gamma": 0.9, "sequence_length": 64, "batch_size": 32, "random_steps": 0}
CASES: dict[str, dict[str, Any]] = {
    "pendulum_v_memory": PENDULUM_V
    | {"td3": {"architecture": "memory", "random_episodes": 5, **RECURRENT}},
    "pendulum_v_markov": PENDULUM_V
    | {"td3": {"gamma": 0.9, "random_steps": 1000, "episodes": 1}},
    "pendulum": {
        "env": "Pendulum-v1",
        "learner": "sac",
        "num_envs": 1,
        "total_steps": 20_000,
        "sac": {"lr": 1e-3, "rows": 16, "random_steps": 100},
    },
    "half_cheetah": {
        "env": "HalfCheetah-v5",
        "learner": "sac",
        "num_envs": 1,
        "total_steps": 100_000,
        "sac": {"rows": 1, "random_steps": 1000},
    },
    "point_robot": {
        "env": "corral.zoo.meta.point_robot:make",
        "learner": "sac",
        "num_envs": 8,
        "total_steps": 150_000,
        "sac": {
            "architecture": "memory",
            "memory": "gru",
            "hidden": [128, 128],
            "gamma": 0.9,
            "alpha_init": 0.2,
            "episodes": 8,
            "updates": 1 / 3,
            "random_steps": 0,
            "random_episodes": 100,
        },
    },
    "ant_dir": {
        "env": "corral.zoo.meta.ant_dir:make",
        "learner": "sac",
        "num_envs": 8,
        "total_steps": 400_000,
        "sac": {
            "architecture": "memory",
            "memory": "gru",
            "alpha_init": 0.2,
            "episodes": 8,
            "updates": 0.1,
            "sequence_length": 64,
            "random_steps": 0,
            "random_episodes": 50,
        },
    },
}
TRIALS = {"point_robot": (80, 20), "ant_dir": (50, 20)}
"""Case -> numbers of tasks to train and to test on; two episodes a trial."""
SB3 = {"sb3_pendulum": "pendulum", "sb3_half_cheetah": "half_cheetah"}
"""Stable-Baselines3's SAC, with the settings of one of our cases."""


def ours(case: str, seed: int, limit: float, device: str) -> dict[str, Any]:
    import torch

    from corral import evaluate
    from corral.engine.adapters.trials import Trials
    from corral.engine.pool import Pool
    from corral.train.recipes.config import wants_of
    from corral.train.recipes.resolve import checked, complete
    from corral.train.run import parts as run_parts

    threads = torch.get_num_threads()
    settings = {"seed": seed, "backend": "serial", "threads": threads, "device": device}
    settings |= CASES[case]
    config = complete(checked(settings, case))
    factory = run_parts.env_factory(config)
    train_tasks: list[Any] = []
    test_tasks: list[Any] | None = None
    make = factory
    options: dict[str, Any] = {}
    if case in TRIALS:
        counts = TRIALS[case]
        env = factory()
        rng = np.random.default_rng(seed)
        tasks = env.get_wrapper_attr("sample_tasks")(sum(counts), rng)
        train_tasks, test_tasks = tasks[: counts[0]], tasks[counts[0] :]
        make = lambda: Trials(factory(), 2)  # noqa: E731
        options["sample_task"] = lambda slot, episode, rng: train_tasks[
            rng.integers(len(train_tasks))
        ]

    def opener(config, backend, workers):
        pool_options = run_parts.pool_options(config, backend=backend, **options)
        return Pool.with_options(make, config.num_envs, pool_options)

    began = time.perf_counter()
    parts = run_parts.build(config, opener)
    curve, steps, next_look = [], 0, 0

    def look(count: int) -> dict[str, Any]:
        tasks = None
        if test_tasks is not None:
            tasks = (test_tasks * count)[:count]
        policy = parts.learner.policy.deterministic()
        with Pool(make, 8, seed=TEST_SEED, backend="serial", infos="final") as pool:
            found = evaluate(policy, pool, count, TEST_SEED, tasks=tasks)
        result = {"mean": found.mean, "std": found.std}
        if tasks is not None:
            inner = np.array([info["trial_returns"] for info in found.infos])
            result |= {"first": inner[:, 0].mean(), "last": inner[:, -1].mean()}
        return {name: round(float(value), 2) for name, value in result.items()}

    learning = 0.0
    with parts.pool:
        while steps < config.total_steps and time.perf_counter() - began < limit:
            data = parts.collector.collect(wants_of(config).count)
            parts.learner.update(data)
            steps += data.reward.size
            if steps >= next_look:
                before = time.perf_counter()
                curve.append([steps, look(10 if test_tasks is None else 20)])
                print(case, seed, curve[-1], flush=True)
                learning -= time.perf_counter() - before
                next_look = steps + config.total_steps // 10
        learning += time.perf_counter() - began
        return {"steps": steps, "seconds": learning, "curve": curve, **look(EPISODES)}


def sb3(case: str, seed: int, limit: float, device: str) -> dict[str, Any]:
    import gymnasium
    from stable_baselines3 import SAC

    like = CASES[SB3[case]]
    settings = like["sac"]
    env = gymnasium.make(like["env"])
    model = SAC(
        "MlpPolicy",
        env,
        learning_rate=settings.get("lr", 3e-4),
        learning_starts=settings["random_steps"],
        seed=seed,
        device=device,
    )
    began = time.perf_counter()

    def within(*_: Any) -> bool:
        passed = time.perf_counter() - began
        if model.num_timesteps % (like["total_steps"] // 10) == 0:
            print(case, seed, model.num_timesteps, f"{passed:.0f} s", flush=True)
        return passed < limit

    model.learn(like["total_steps"], callback=within)
    seconds = time.perf_counter() - began
    returns = []
    for episode in range(EPISODES):
        obs, _ = env.reset(seed=TEST_SEED + episode)
        total, over = 0.0, False
        while not over:
            action, _ = model.predict(obs, deterministic=True)
            obs, reward, terminated, truncated, _ = env.step(action)
            total += float(reward)
            over = terminated or truncated
        returns.append(total)
    mean, std = float(np.mean(returns)), float(np.std(returns))
    done = int(model.num_timesteps)
    return {"steps": done, "seconds": seconds, "mean": mean, "std": std}


def one(case: str, seed: int, limit: float, device: str, threads: int) -> None:
    import torch

    torch.set_num_threads(threads)
    result = (sb3 if case in SB3 else ours)(case, seed, limit, device)
    print("RESULT", json.dumps({"case": case, "seed": seed, **result}), flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("cases", nargs="*", default=[*CASES, *SB3])
    parser.add_argument("--seeds", nargs="+", type=int, default=SEEDS)
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--limit", type=float, default=1e9, metavar="SECONDS")
    parser.add_argument("--device", default="cpu", help="cpu or cuda")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--only", nargs=2, metavar=("CASE", "SEED"))
    arguments = parser.parse_args()
    if arguments.only:
        case, seed = arguments.only
        one(case, int(seed), arguments.limit, arguments.device, arguments.threads)
        return
    work = [(case, seed) for case in arguments.cases for seed in arguments.seeds]
    options = ["--limit", str(arguments.limit), "--device", arguments.device]
    options += ["--threads", str(arguments.threads)]
    results = run_all(work, arguments.jobs, options)
    if arguments.json:
        arguments.json.write_text(json.dumps(results, indent=1))
    print(table(results))


def run_all(
    work: list[tuple[str, int]], jobs: int, options: list[str]
) -> list[dict[str, Any]]:
    waiting, running, results = list(work), [], []
    while waiting or running:
        while waiting and len(running) < jobs:
            case, seed = waiting.pop(0)
            command = [sys.executable, __file__, *options, "--only", case, str(seed)]
            running.append(subprocess.Popen(command, stdout=subprocess.PIPE, text=True))
        process = running.pop(0)
        for line in process.communicate()[0].splitlines():
            if line.startswith("RESULT "):
                results.append(json.loads(line.removeprefix("RESULT ")))
            else:
                print(line, flush=True)
    return results


def table(results: list[dict[str, Any]]) -> str:
    lines = ["| case | seed | steps | steps/s | mean ± std | 1st → last |"]
    lines.append("|---|---|---|---|---|---|")
    for one in results:
        trial = f"{one['first']} → {one['last']}" if "first" in one else ""
        lines.append(
            f"| {one['case']} | {one['seed']} | {one['steps']:,} "
            f"| {one['steps'] / one['seconds']:.0f} "
            f"| {one['mean']:.1f} ± {one['std']:.1f} | {trial} |"
        )
    for case in dict.fromkeys(one["case"] for one in results):
        means = [one["mean"] for one in results if one["case"] == case]
        spread = f"± {np.std(means):.1f} over {len(means)} seeds"
        lines.append(f"| {case} | all | | | **{np.mean(means):.1f} {spread}** | |")
    return "\n".join(lines)


if __name__ == "__main__":
    main()
