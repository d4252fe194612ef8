"""Does it learn? Every recipe with several seeds, and Ant beside Stable-Baselines3.

    python benchmarks/learning.py                   all claims, an hour or so
    python benchmarks/learning.py --only cartpole   those whose name has the word
    python benchmarks/learning.py --seeds 1         with fewer seeds
    python benchmarks/learning.py --first-seed 20   with others
    python benchmarks/learning.py --steps 5000      much too short: does it run at all?
    python benchmarks/learning.py --backend serial  in this process: the same numbers

A score is the mean return of 100 episodes (PyBullet robots: 20) with the policy's
likeliest actions. All but Ant are scored by their best checkpoint, as `corral train`
does at its end, on episodes that had no part in choosing it; the grid world beside
random play. Ant, like its peer, is scored by the policy that training ended with. The
status is 0 if every claim is met.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from contests import note
from gymnasium.spaces import MultiDiscrete
from races import machine
from stable_baselines3 import PPO as PeerPPO
from stable_baselines3.common.env_util import make_vec_env
from stable_baselines3.common.evaluation import evaluate_policy
from stable_baselines3.common.vec_env import VecNormalize

import corral
from corral.core import Generators
from corral.train.recipes.config import Config
from corral.train.recipes.resolve import resolve
from corral.train.run.loaded_run import LoadedRun
from corral.train.run.parts import env_factory
from corral.train.run.start import begin

EPISODES = 100
SCORING = 1_000_000
"""The seed of the episodes that Ant is scored by."""
FIRST_SEED = 10
"""Of the runs: none that the recipes' settings were chosen with."""
ALONE = {"final_episodes": 0, "video": "never"}
SOLVED = 475.0
MARGIN = 3.0
"""More than ten standard errors of random play's return in the grid world."""
ADAPTED = 4.5
"""More than twice the standard error of the difference over 100 trials, 1.5 to 2.2."""
BALANCED = 290.0
"""Of 300 steps."""


@dataclass(frozen=True, slots=True)
class Result:
    """What one candidate came to, seed by seed."""

    name: str
    scores: tuple[float, ...]
    seconds: float

    @property
    def mean(self) -> float:
        return statistics.fmean(self.scores)

    @property
    def spread(self) -> float:
        return statistics.stdev(self.scores) if len(self.scores) > 1 else 0.0


@dataclass(frozen=True, slots=True)
class Verdict:
    """A claim, and whether it holds."""

    claim: str
    found: str
    is_met: bool


# Candidates ---------------------------------------------------------------------------


def score_of_recipe(recipe: str, seed: int, settings: dict[str, object]) -> float:
    """Train it as `corral train` does, and take the score that it ends with."""
    with tempfile.TemporaryDirectory() as folder:
        chosen = {**settings, "seed": seed, "video": "never"}
        with begin(recipe, chosen, out=Path(folder) / "run") as training:
            training.run()
        return float(training.directory.read_about()["final"])


def score_of_last(recipe: str, seed: int, settings: dict[str, object]) -> float:
    """Train it, and score the policy that training ended with."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "run"
        chosen = {**settings, **ALONE, "seed": seed, "evaluate_episodes": 1}
        with begin(recipe, chosen, out=path) as training:
            training.run()
        with LoadedRun(path, which="last") as loaded:
            return loaded.evaluate(EPISODES, SCORING).mean


def score_of_trials(recipe: str, seed: int, settings: dict[str, object]) -> float:
    """Train it; by how much its second episode is better than its first."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "run"
        chosen = {**settings, **ALONE, "seed": seed}
        with begin(recipe, chosen, out=path) as training:
            training.run()
        with LoadedRun(path) as loaded:
            found = loaded.evaluate(EPISODES, SCORING)
    returns = np.array([info["trial_returns"] for info in found.infos])
    first, second = returns.mean(axis=0)
    error = (returns[:, 1] - returns[:, 0]).std(ddof=1) / len(returns) ** 0.5
    note(f"seed {seed}: {first:.1f}, {second:.1f}, difference ± {error:.1f}\n")
    return float(second - first)


class RandomPlay:
    """Any action of a MultiDiscrete space, each as likely."""

    def __init__(self, space: MultiDiscrete) -> None:
        self._choices = space.nvec

    def act(self, step: corral.Step, carry: object, rng: Generators) -> corral.Decision:
        draws = rng.random(len(self._choices))
        return corral.Decision((draws * self._choices).astype(np.int64))


def score_of_random(recipe: str, seed: int, settings: dict[str, object]) -> float:
    """What random actions score in the recipe's envs."""
    config = resolve(recipe, {})
    with corral.Pool(env_factory(config), config.num_envs, backend="serial") as pool:
        policy = RandomPlay(pool.spec.action_space)
        return corral.evaluate(policy, pool, EPISODES, seed=SCORING + seed).mean


def score_of_peer(recipe: str, seed: int, settings: dict[str, object]) -> float:
    """Stable-Baselines3 with the recipe's own settings."""
    config = resolve(recipe, settings)
    envs = VecNormalize(
        make_vec_env(config.env, config.num_envs, seed=seed),
        norm_obs=config.normalise_obs,
        norm_reward=config.normalise_reward,
        gamma=config.ppo.gamma,
    )
    model = peer_of(config, envs, seed)
    model.learn(config.total_steps)
    envs.training, envs.norm_reward = False, False
    envs.seed(SCORING)
    mean, _ = evaluate_policy(model, envs, EPISODES, deterministic=True)
    envs.close()
    return float(mean)


def peer_of(config: Config, envs: VecNormalize, seed: int) -> PeerPPO:
    """The same settings under SB3's names."""
    ppo = config.ppo
    same = {
        name: getattr(ppo, name)
        for name in (
            "n_steps",
            "batch_size",
            "n_epochs",
            "gamma",
            "gae_lambda",
            "clip_range",
            "ent_coef",
            "vf_coef",
            "max_grad_norm",
            "target_kl",
        )
    }
    return PeerPPO(
        "MlpPolicy",
        envs,
        learning_rate=ppo.lr,
        policy_kwargs={"log_std_init": ppo.log_std_init},
        seed=seed,
        device="cpu",
        **same,
    )


# Claims -------------------------------------------------------------------------------


class Bench:
    """Runs candidates, and remembers what they came to."""

    def __init__(self, seeds: range, steps: int | None, backend: str | None) -> None:
        self._seeds = seeds
        given = {"total_steps": steps, "backend": backend}
        self._settings: dict[str, object] = {
            name: value for name, value in given.items() if value is not None
        }
        self.results: list[Result] = []

    def run(
        self,
        name: str,
        score: Callable[[str, int, dict[str, object]], float],
        recipe: str,
        **settings: object,
    ) -> Result:
        began = time.perf_counter()
        scores = []
        for seed in self._seeds:
            scores.append(score(recipe, seed, {**self._settings, **settings}))
            note(f"{name}, seed {seed}: {scores[-1]:,.1f}\n")
        result = Result(name, tuple(scores), time.perf_counter() - began)
        self.results.append(result)
        return result


def reaches(bench: Bench, recipe: str, title: str, target: float) -> list[Verdict]:
    """Every seed of a recipe gets there."""
    worst = min(bench.run(title, score_of_recipe, recipe).scores)
    claim = f"{title}: every seed at least {target:g}"
    return [Verdict(claim, f"the worst {worst:,.1f}", worst >= target)]


def needs_memory(bench: Bench) -> list[Verdict]:
    """Who remembers solves it, who does not cannot."""
    title = "CartPole-v1 without velocities"
    verdicts = reaches(bench, "memory", f"{title}, GRU", SOLVED)
    without = {"ppo.memory": "none"}
    other = bench.run(f"{title}, MLP", score_of_recipe, "memory", **without)
    best = max(other.scores)
    claim = f"{title}: no seed of an MLP reaches half of {SOLVED:g}"
    return [*verdicts, Verdict(claim, f"the best {best:,.1f}", best < SOLVED / 2)]


def remembers_goals(bench: Bench) -> list[Verdict]:
    """The second episode of every seed is clearly better than its first."""
    title = "point_robot_rl2, second episode over the first"
    worst = min(bench.run(title, score_of_trials, "point_robot_rl2").scores)
    claim = f"{title}: every seed at least {ADAPTED:g}"
    return [Verdict(claim, f"the worst {worst:,.1f}", worst >= ADAPTED)]


def beats_random_play(bench: Bench, view: str) -> list[Verdict]:
    """Every seed of the grid world scores clearly more than random actions."""
    title = f"grid world, {view}"
    learnt = bench.run(title, score_of_recipe, "grid_world", view=view)
    random = bench.run("grid world, random play", score_of_random, "grid_world")
    worst = min(learnt.scores)
    claim = f"{title}: every seed at least {MARGIN:g} above random play"
    found = f"the worst {worst:,.1f}, random play {random.mean:,.1f}"
    return [Verdict(claim, found, worst >= random.mean + MARGIN)]


def walks_like_its_peer(bench: Bench) -> list[Verdict]:
    """Within one standard deviation of SB3's PPO, or better."""
    ours = bench.run("Ant-v5, Corral", score_of_last, "ant")
    theirs = bench.run("Ant-v5, SB3", score_of_peer, "ant")
    claim = "Ant-v5: the mean within one deviation of SB3's, or above"
    found = f"{ours.mean:,.0f} and {theirs.mean:,.0f} ± {theirs.spread:,.0f}"
    return [Verdict(claim, found, ours.mean >= theirs.mean - theirs.spread)]


CLAIMS: dict[str, Callable[[Bench], list[Verdict]]] = {
    "cartpole": lambda bench: reaches(bench, "cartpole", "CartPole-v1", SOLVED),
    "pendulum": lambda bench: reaches(bench, "pendulum", "Pendulum-v1", -200.0),
    "memory": needs_memory,
    "point_robot_rl2": remembers_goals,
    "ant": walks_like_its_peer,
    "grid_world_joint": lambda bench: beats_random_play(bench, "joint"),
    "grid_world_shared": lambda bench: beats_random_play(bench, "shared"),
    "bullet_pendulum": lambda bench: reaches(
        bench, "bullet_pendulum", "bullet_pendulum", BALANCED
    ),
    "upkie": lambda bench: reaches(bench, "upkie", "Upkie", BALANCED),
}


def report(results: Sequence[Result], verdicts: Sequence[Verdict]) -> None:
    """Tables, as benchmarks/README.md has them."""
    print("| claim | measured | met |\n|---|---|---|")
    for verdict in verdicts:
        met = "yes" if verdict.is_met else "no"
        print(f"| {verdict.claim} | {verdict.found} | {met} |")
    print("\n| candidate | mean | deviation | each seed | minutes |")
    print("|---|---|---|---|---|")
    for result in results:
        each = ", ".join(f"{score:,.1f}" for score in result.scores)
        print(
            f"| {result.name} | {result.mean:,.1f} | {result.spread:,.1f} | {each} | "
            f"{result.seconds / 60:.1f} |"
        )


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--only", default="", help="claims whose name has this word")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--first-seed", type=int, default=FIRST_SEED)
    parser.add_argument("--steps", type=int, help="of every run, instead of its own")
    parser.add_argument("--backend", help="of every run, instead of its own")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    print(machine(), "\n")
    first = arguments.first_seed
    bench = Bench(
        range(first, first + arguments.seeds), arguments.steps, arguments.backend
    )
    verdicts: list[Verdict] = []
    for name, judge in CLAIMS.items():
        if arguments.only in name:
            verdicts += judge(bench)
    report(bench.results, verdicts)
    return 0 if verdicts and all(verdict.is_met for verdict in verdicts) else 1


if __name__ == "__main__":
    sys.exit(main())
