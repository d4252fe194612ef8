"""SAC, TD3 and their replay beside plain references and Stable-Baselines3's SAC.

    python benchmarks/off_policy_speed.py                 all claims, some minutes
    python benchmarks/off_policy_speed.py --quick         the same with short turns
    python benchmarks/off_policy_speed.py --only replay   those whose key has the word

memory    updates of recurrent TD3 (LSTM, whole settings of the recipes) against the
          same nets, unrolled step by step in Python, with torch's Adam, from sequences
          that are sampled one at a time. Both compute the same losses; this is checked.
replay    sampling 32 windows of 64 rows out of a million against a loop over windows
sac       frames of SAC on HalfCheetah-v5, learning included: two layers of 256, batches
          of 256, one update per env step

Runners take turns, on one torch thread, and envs run in the caller. Seconds are those
of the CPU, so that other work on the machine counts less; `--wall` takes the clock's.
"""

from __future__ import annotations

import argparse
import copy
import json
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import torch
from contests import Verdict, note, report_verdicts, table
from races import Runner, machine, race
from stable_baselines3 import SAC as PeerSAC
from stable_baselines3.common.vec_env import DummyVecEnv

from corral.core import EnvSpec
from corral.engine.pool import Pool
from corral.learners.off_policy.batch import batch_of
from corral.learners.off_policy.learner import SACLearner, TD3Learner
from corral.learners.off_policy.nets import History
from corral.learners.off_policy.transitions import columns_for
from corral.learners.protocol import LearnerSetup
from corral.rollouts.collector import Collector
from corral.rollouts.replay import SequenceReplay
from corral.tools.bench.measure import Rates

OBS, ACTION = 27, 8
"""Of AntDir."""
WINDOW, BATCH = 64, 32
CPU = torch.device("cpu")
clock: Callable[[], float] = time.process_time


class Timed:
    """Runs its work in batches of `slots`."""

    def __init__(self, work: Callable[[], object], slots: int = 1) -> None:
        self.slots = slots
        self._work = work

    def run(self, batches: int) -> float:
        began = clock()
        for _ in range(batches):
            self._work()
        return clock() - began

    def close(self) -> None:
        """Nothing to release."""


# --- replay -----------------------------------------------------------------------


def made_episodes(rows: int, length: int) -> list[dict[str, np.ndarray]]:
    rng = np.random.default_rng(0)
    episodes, left = [], rows
    while left > length:
        steps = int(rng.integers(length // 2, length + 1))
        left -= steps
        columns = columns_for(OBS, ACTION)
        episode = {n: rng.random((steps, w), np.float32) for n, w in columns.items()}
        episode["terminated"][:] = 0
        episodes.append(episode)
    return episodes


def filled(episodes: list[dict[str, np.ndarray]]) -> SequenceReplay:
    replay = SequenceReplay(1_000_000, columns_for(OBS, ACTION), WINDOW)
    for episode in episodes:
        replay.add(episode)
    return replay


def plain_sample(episodes, weights, count: int, rng) -> dict[str, np.ndarray]:
    """Windows one at a time: an episode, a start, its rows, and padding."""
    windows = []
    for _ in range(count):
        episode = episodes[rng.choice(len(episodes), p=weights)]
        length = len(episode["reward"])
        start = rng.integers(max(length - WINDOW, 0) + 1)
        window = {n: part[start : start + WINDOW] for n, part in episode.items()}
        window["mask"] = np.ones((len(window["reward"]), 1), np.float32)
        missing = WINDOW - len(window["mask"])
        if missing:
            window = {n: np.pad(p, ((0, missing), (0, 0))) for n, p in window.items()}
        windows.append(window)
    return {name: np.stack([one[name] for one in windows], 1) for name in windows[0]}


def start_weights(episodes) -> np.ndarray:
    starts = np.array([max(len(one["reward"]) - WINDOW, 0) + 1 for one in episodes])
    return starts / starts.sum()


def replay_runners() -> dict[str, Runner]:
    episodes = made_episodes(1_000_000, 400)
    replay, rng = filled(episodes), np.random.default_rng(1)
    weights = start_weights(episodes)
    return {
        "ours": Timed(lambda: replay.sample(BATCH, rng)),
        "plain": Timed(lambda: plain_sample(episodes, weights, BATCH, rng)),
    }


# --- updates with a memory --------------------------------------------------------


class PlainTD3:
    """The nets of an agent, unrolled step by step, with an optimiser per net."""

    def __init__(self, agent: Any) -> None:
        self.settings = agent.settings
        nets = {name: copy.deepcopy(net) for name, net in agent.nets().items()}
        self.actor, self.critic = nets["actor"], nets["critic"]
        self.target_actor, self.target_critic = (
            nets["target_actor"],
            nets["target_critic"],
        )
        self._noise = torch.Generator().set_state(agent.noise.get_state())
        lr = self.settings.lr
        self._actor_adam = torch.optim.Adam(self.actor.parameters(), lr=lr)
        self._critic_adam = torch.optim.Adam(self.critic.parameters(), lr=lr)

    def update(self, sampled: dict[str, np.ndarray]) -> dict[str, Any]:
        self._read(sampled)
        settings = self.settings
        with torch.no_grad():
            action = self._actions(self.target_actor)[1:]
            noise = torch.empty_like(action).normal_(generator=self._noise)
            noise = noise * settings.target_noise
            noise = noise.clamp(-settings.noise_clip, settings.noise_clip)
            action = (action + noise).clamp(-1, 1)
            hidden = self._hidden(self.target_critic)[1:]
            both = self._estimates(self.target_critic, hidden, self.obs[1:], action)
            lives = 1 - self.terminated
            target = self.reward[1:] + settings.gamma * lives * torch.minimum(*both)
        hidden = self._hidden(self.critic)[:-1]
        both = self._estimates(self.critic, hidden, self.obs[:-1], self.action[1:])
        critic_loss = sum(self._mean((q - target) ** 2) for q in both)
        self._critic_adam.zero_grad()
        critic_loss.backward()
        self._critic_adam.step()
        action = self._actions(self.actor)[:-1]
        with torch.no_grad():
            hidden = self._hidden(self.critic)[:-1]
        both = self._estimates(self.critic, hidden, self.obs[:-1], action)
        actor_loss = -self._mean(both[0])
        self._actor_adam.zero_grad()
        actor_loss.backward()
        self._actor_adam.step()
        self._follow(self.target_actor, self.actor)
        self._follow(self.target_critic, self.critic)
        return {"critic_loss": critic_loss.detach(), "actor_loss": actor_loss.detach()}

    def _read(self, sampled: dict[str, np.ndarray]) -> None:
        tensors = {name: torch.from_numpy(one) for name, one in sampled.items()}
        self.terminated, self.mask = tensors["terminated"], tensors["mask"]
        self.obs = torch.cat([tensors["obs"][:1], tensors["next_obs"]])
        for name in ("action", "reward"):
            values = tensors[name]
            setattr(self, name, torch.cat([torch.zeros_like(values[:1]), values]))

    def _mean(self, losses: Any) -> Any:
        return (losses * self.mask).sum() / self.mask.sum()

    def _steps(self) -> list[History]:
        steps = range(len(self.obs))
        return [History(self.action[t], self.reward[t], self.obs[t]) for t in steps]

    def _actions(self, actor: Any) -> Any:
        carry, outputs = actor.history.memory.zeros(self.obs.shape[1]), []
        for step in self._steps():
            output, carry = actor.step(step, carry)
            outputs.append(torch.tanh(output))
        return torch.stack(outputs)

    def _hidden(self, critic: Any) -> Any:
        carry, states = critic.history.memory.zeros(self.obs.shape[1]), []
        for step in self._steps():
            hidden, carry = critic.history.step(step, carry)
            states.append(hidden)
        return torch.stack(states)

    @staticmethod
    def _estimates(critic: Any, hidden: Any, obs: Any, action: Any) -> list[Any]:
        known = critic.shortcut(torch.cat([obs, action], -1))
        inputs = torch.cat([hidden, known], -1)
        return [tower(inputs) for tower in critic.towers]

    def _follow(self, target: Any, net: Any) -> None:
        with torch.no_grad():
            for mine, its in zip(target.parameters(), net.parameters(), strict=True):
                mine.mul_(1 - self.settings.tau).add_(its, alpha=self.settings.tau)


def recurrent_agent() -> Any:
    box = gymnasium.spaces.Box
    spec = EnvSpec(
        box(-np.inf, np.inf, (OBS,), np.float32), box(-1.0, 1.0, (ACTION,), np.float32)
    )
    settings = TD3Learner.Config(architecture="memory", replay_size=1)
    return TD3Learner(LearnerSetup(spec, settings)).agent


def memory_runners() -> dict[str, Runner]:
    episodes = made_episodes(100_000, 400)
    replay, weights = filled(episodes), start_weights(episodes)
    agent, rng = recurrent_agent(), np.random.default_rng(1)
    plain = PlainTD3(agent)
    check_equal(agent, plain, replay)
    return {
        "ours": Timed(lambda: agent.update(batch_of(replay.sample(BATCH, rng), CPU))),
        "plain": Timed(
            lambda: plain.update(plain_sample(episodes, weights, BATCH, rng))
        ),
    }


def check_equal(agent: Any, plain: PlainTD3, replay: SequenceReplay) -> None:
    """Both do the same: a plain reference of something else would say nothing."""
    rng = np.random.default_rng(2)
    for _ in range(3):
        sampled = replay.sample(BATCH, rng)
        ours, theirs = agent.update(batch_of(sampled, CPU)), plain.update(sampled)
        for name, value in theirs.items():
            torch.testing.assert_close(ours[name], value, rtol=1e-3, atol=1e-5)


# --- SAC on HalfCheetah -----------------------------------------------------------

ENVS, ROWS, WARM_UP = 4, 16, 256


def make_cheetah() -> gymnasium.Env:
    return gymnasium.make("HalfCheetah-v5")


class PeerRunner:
    """SB3's SAC; a batch is 64 frames and as many updates."""

    slots = ENVS * ROWS

    def __init__(self, envs: int) -> None:
        self._envs = DummyVecEnv([make_cheetah] * envs)
        self._model = PeerSAC(
            "MlpPolicy",
            self._envs,
            learning_starts=WARM_UP,
            gradient_steps=-1,  # as many as env steps
            buffer_size=100_000,
            seed=0,
            device="cpu",
        )
        self._model.learn(WARM_UP)

    def run(self, batches: int) -> float:
        began = clock()
        self._model.learn(batches * self.slots, reset_num_timesteps=False)
        return clock() - began

    def close(self) -> None:
        self._envs.close()


class LearnerRunner:
    """Ours: the loop that a training run has at its heart."""

    slots = ENVS * ROWS

    def __init__(self, envs: int, **settings: Any) -> None:
        self._pool = Pool(make_cheetah, envs, seed=0, infos="final", backend="serial")
        chosen = SACLearner.Config(
            random_steps=WARM_UP, replay_size=100_000, **settings
        )
        self._learner = SACLearner(LearnerSetup(self._pool.spec, chosen))
        self._collector = Collector(self._pool, self._learner.policy)
        self._rows = self.slots // envs
        self.run(WARM_UP // self.slots)

    def run(self, batches: int) -> float:
        began = clock()
        for _ in range(batches):
            self._learner.update(self._collector.collect(self._rows))
        return clock() - began

    def close(self) -> None:
        self._pool.close()


def sac_runners() -> dict[str, Runner]:
    return {
        "ours": LearnerRunner(ENVS),
        "ours_1": LearnerRunner(1),
        "sb3": PeerRunner(1),
        "sb3_4": PeerRunner(ENVS),
    }


# --- the whole --------------------------------------------------------------------


@dataclass(frozen=True)
class Contest:
    """One piece of work: who does it, and claims as (faster, slower, target)."""

    key: str
    title: str
    unit: str
    runners: Callable[[], dict[str, Runner]]
    titles: dict[str, str]
    claims: tuple[tuple[str, str, float], ...]


CONTESTS = (
    Contest(
        "replay",
        "32 windows of 64 rows out of a million",
        "samples/s",
        replay_runners,
        {"ours": "Corral", "plain": "a loop over windows"},
        (("ours", "plain", 10.0),),
    ),
    Contest(
        "memory",
        "recurrent TD3, 32 sequences of 64 steps",
        "updates/s",
        memory_runners,
        {"ours": "Corral", "plain": "the same nets in Python loops"},
        (("ours", "plain", 2.0),),
    ),
    Contest(
        "sac",
        "SAC on HalfCheetah-v5, one update per frame",
        "frames/s",
        sac_runners,
        {
            "ours": f"Corral, {ENVS} envs",
            "ours_1": "Corral, 1 env",
            "sb3": "SB3, 1 env",
            "sb3_4": f"SB3, {ENVS} envs",
        },
        (("ours", "sb3", 1.3), ("ours_1", "sb3", 1.3), ("ours", "sb3_4", 1.3)),
    ),
)


def verdicts_of(contest: Contest, rates: dict[str, Rates]) -> list[Verdict]:
    found = []
    for ours, theirs, target in contest.claims:
        measured = rates[ours].over(rates[theirs])
        words = f"{contest.titles[ours]} over {contest.titles[theirs]}"
        found.append(
            Verdict(contest.title, words, measured, target, measured >= target)
        )
    return found


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help="short turns, few rounds")
    parser.add_argument("--only", nargs="+", default=[""], metavar="WORD")
    parser.add_argument("--rounds", type=int, help="turns per runner (9; quick: 3)")
    parser.add_argument("--wall", action="store_true", help="seconds of the clock")
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write this")
    return parser.parse_args()


def main() -> int:
    global clock
    arguments = parse()
    torch.set_num_threads(1)
    clock = time.perf_counter if arguments.wall else time.process_time
    rounds = arguments.rounds or (3 if arguments.quick else 9)
    seconds = 0.5 if arguments.quick else 2.0
    words = f"{machine()}, Stable-Baselines3 {version('stable_baselines3')}"
    kind = "clock" if arguments.wall else "CPU"
    print(f"{words}; {rounds} rounds of {seconds} s turns, seconds of the {kind}\n")
    record: dict[str, object] = {"machine": words, "rounds": rounds}
    verdicts: list[Verdict] = []
    for contest in CONTESTS:
        if not any(word in contest.key for word in arguments.only):
            continue
        note(f"{contest.key} ")
        runners = contest.runners()
        rates = race(
            runners,
            rounds=rounds,
            turn_seconds=seconds,
            on_turn=lambda name: note("."),
        )
        for runner in runners.values():
            runner.close()
        note("\n")
        rows = [
            (contest.titles[name], f"{one.median:,.1f}", f"±{one.spread:.0%}")
            for name, one in rates.items()
        ]
        body = table(("runner", contest.unit, "spread"), rows)
        print(f"### {contest.title}\n\n{body}\n", flush=True)
        verdicts += verdicts_of(contest, rates)
        record[contest.key] = {name: one.rounds for name, one in rates.items()}
    print(report_verdicts(verdicts))
    if arguments.json:
        record["claims"] = [asdict(one) for one in verdicts]
        arguments.json.write_text(json.dumps(record, indent=2) + "\n")
    return 0 if all(one.met for one in verdicts) else 1


if __name__ == "__main__":
    sys.exit(main())
