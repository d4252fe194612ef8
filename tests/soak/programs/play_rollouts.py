"""Plays a program with a policy: `collect`, `run_episodes` and `evaluate`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from corral.core import NO_TASK, Decision
from corral.engine.pool import Pool
from corral.engine.worker.seeds import episode_seed
from corral.rollouts.collector import Collector
from corral.rollouts.episodic import run_episodes
from corral.rollouts.evaluation import evaluate
from corral.tools.testing.values import part_of
from tests.soak.programs.compare import canonical, difference
from tests.soak.programs.digests import digest
from tests.soak.programs.program import Program, options_of
from tests.soak.programs.shapes import sampled
from tests.soak.programs.stage import ProgramPlay, batch_of
from tests.soak.programs.truth import ExpectedRow, kept

MAX_EPISODE_STEPS = 40
"""Steps after which an episode of `run_episodes` is truncated."""


class Hashing:
    """A policy whose rows depend on nothing but themselves and their past."""

    def __init__(self, obs_space: Any, action_space: Any) -> None:
        self._obs_space, self._action_space = obs_space, action_space

    def initial_carry(self, rows: int) -> Any:
        """How often each was asked in its episode."""
        return {"asked": np.zeros(rows, np.int64)}

    def act(self, step: Any, carry: Any, rng: Any) -> Decision:
        """Asked by a collector."""
        asked = carry["asked"] + 1
        seen = rows_of(self._obs_space, step.obs, len(step))
        actions = [self.choose(o, int(n)) for o, n in zip(seen, asked, strict=True)]
        value = np.array([self.worth(o) for o in seen])
        batch = batch_of(self._action_space, actions)
        return Decision(batch, {"asked": asked}, {"value": value, "asked": asked})

    def value(self, obs: Any, carry: Any) -> Any:
        """Asked where episodes and rollouts break off."""
        count = len(carry["asked"])
        return np.array([self.worth(o) for o in rows_of(self._obs_space, obs, count)])

    def choose(self, obs: Any, asked: int) -> Any:
        """The action of one row."""
        return sampled(
            self._action_space, digest(canonical(self._obs_space, obs), asked)
        )

    def worth(self, obs: Any) -> float:
        """The value of one row."""
        return digest(canonical(self._obs_space, obs)) % 1000 / 10


def rows_of(space: Any, batch: Any, count: int) -> list[Any]:
    """A batch of observations, one by one."""
    return [part_of(space, batch, row) for row in range(count)]


class RolloutPlay(ProgramPlay):
    """A pool that is led by a policy."""

    def open(self) -> Pool:
        """The pool of the program."""
        program = self.program
        return Pool(
            self.factories,
            backend=program.backend,
            seed=self.root,
            copy=program.copy,
            autoreset=program.autoreset if program.api == "collect" else "same_step",  # type: ignore[arg-type]
            **options_of(program),
        )

    def play(self) -> None:
        """All of it."""
        self.policy = Hashing(self.obs_space, self.action_space)
        with self.open() as pool:
            getattr(self, f"play_{self.program.api}")(pool)
            self.look_again()

    # collect --------------------------------------------------------------------------

    def play_collect(self, pool: Pool) -> None:
        """Two or three rollouts, one after the other."""
        mode = self.rng.choice(("sync", "two_groups", "first_ready"))
        if self.program.slots == 1:
            mode = "sync"
        collector = Collector(pool, self.policy, mode=mode)
        now = [slot.reset() for slot in self.slots]
        asked = [0] * len(self.slots)
        for _ in range(self.rng.randint(1, 3)):
            steps = self.rng.randint(1, self.program.steps)
            rollout = collector.collect(steps)
            tape = [self.row_by_row(i, now, asked, steps) for i in range(len(now))]
            self.again(lambda r=rollout, t=tape: self.compare_rollout(r, t))  # type: ignore[misc]

    def row_by_row(
        self, slot: int, now: list[ExpectedRow], asked: list[int], steps: int
    ) -> list[tuple[ExpectedRow, Any, int, ExpectedRow]]:
        """What one slot sees, does and gets: rows before, actions, rows after."""
        rows = []
        for _ in range(steps):
            before = now[slot]
            asked[slot] = 1 if before.started else asked[slot] + 1
            action = self.policy.choose(before.obs, asked[slot])
            after = self.slots[slot].step(action, self.program.autoreset)
            rows.append((before, action, asked[slot], after))
            now[slot] = after
        return rows

    def compare_rollout(self, rollout: Any, tape: list[Any]) -> str:
        """Where a rollout is not what the loops gave."""
        for slot, rows in enumerate(tape):
            for time, (before, action, asked, after) in enumerate(rows):
                where = f"rollout row {time}, slot {slot}: "
                found = self.compare_moment(
                    rollout, time, slot, (before, action, asked, after), where
                )
                if found:
                    return found
        ends = [
            (time, slot, rows[time][3])
            for time in range(len(rollout))
            for slot, rows in enumerate(tape)
            if rows[time][3].ended
        ]
        return self.compare_ends(rollout, ends)

    def compare_moment(
        self, rollout: Any, time: int, slot: int, moment: Any, where: str
    ) -> str:
        """One row of one slot."""
        before, action, asked, after = moment
        got = {
            "obs": self.at(self.obs_space, rollout.obs, time, slot),
            "action": self.at(self.action_space, rollout.action, time, slot),
            "started": bool(rollout.started[time, slot]),
            "reward": float(rollout.reward[time, slot]),
            "terminated": bool(rollout.terminated[time, slot]),
            "truncated": bool(rollout.truncated[time, slot]),
            "valid": bool(rollout.valid[time, slot]),
            "asked": int(rollout.extras["asked"][time, slot]),
            "value": float(rollout.extras["value"][time, slot]),
            "bootstrap": float(rollout.bootstrap[time, slot]),
        }
        cut = after.truncated and not after.terminated
        expected = {
            "obs": canonical(self.obs_space, before.obs),
            "action": canonical(self.action_space, action),
            "started": before.started,
            "reward": after.reward,
            "terminated": after.terminated,
            "truncated": after.truncated,
            "valid": after.valid,
            "asked": asked,
            "value": self.policy.worth(before.obs),
            "bootstrap": self.policy.worth(after.final_obs) if cut else 0.0,
        }
        if after.terminated and after.truncated:
            got["bootstrap"] = expected["bootstrap"] = 0.0  # nothing is promised
        return difference(got, expected, where)

    def at(self, space: Any, batch: Any, *place: int) -> Any:
        """One value out of `[rows, slots, ...]` arrays."""
        return canonical(space, part_of(space, batch, place))  # type: ignore[arg-type]

    def compare_ends(self, rollout: Any, ends: Sequence[Any]) -> str:
        """The episodes that ended, and their last observations."""
        got = [(e.row, e.slot, e.return_, e.length, e.seed) for e in rollout.episodes]
        expected = []
        for position, (time, slot, row) in enumerate(ends):
            final = self.at(self.obs_space, rollout.final_obs, position)
            truth = canonical(self.obs_space, row.final_obs)
            found = difference(final, truth, f"final_obs of row {time}, slot {slot}")
            if found:
                return found
            expected.append((time, slot, row.episode_return, row.episode_length))
        return difference([one[:4] for one in got], expected, "episodes")

    # Whole episodes -------------------------------------------------------------------

    def play_run_episodes(self, pool: Pool) -> None:
        """Some episodes, in the order asked for."""
        count = self.rng.randint(1, 12)
        tasks, seeds, seed = self.asked_for(count)
        rows = self.rng.random() < 0.7
        episodes = run_episodes(
            pool,
            self.policy,
            episodes=count,
            tasks=tasks,
            seeds=seeds,
            seed=seed,
            rows=rows,
            max_length=MAX_EPISODE_STEPS,
        )
        self.check(difference([e.item for e in episodes], list(range(count)), "items"))
        for item, episode in enumerate(episodes):
            truth = self.by_hand(item, tasks, seeds, seed)
            self.again(lambda e=episode, t=truth: self.compare_episode(e, t, rows))  # type: ignore[misc]

    def asked_for(self, count: int) -> tuple[Any, Any, int]:
        """Tasks and seeds of episodes, if any are given."""
        tasks = [self.rng.randint(0, 99) for _ in range(count)]
        seeds = [self.rng.getrandbits(40) for _ in range(count)]
        return (
            tasks if self.rng.random() < 0.4 else None,
            seeds if self.rng.random() < 0.4 else None,
            self.rng.getrandbits(20),
        )

    def by_hand(self, item: int, tasks: Any, seeds: Any, seed: int) -> Any:
        """One episode in a plain loop: its rows, actions and seed."""
        own = seeds[item] if seeds is not None else episode_seed(seed, item)
        task = NO_TASK if tasks is None else tasks[item]
        return self.episode(own, task)

    def episode(self, seed: int, task: Any) -> tuple[list[ExpectedRow], list[Any], int]:
        """An episode of an environment that is as new."""
        slot, asked = self.slots[0], 0
        rows, actions = [slot.reset(seed, None, task)], []
        while not rows[-1].ended and len(rows) <= MAX_EPISODE_STEPS:
            asked += 1
            actions.append(self.policy.choose(rows[-1].obs, asked))
            rows.append(slot.step(actions[-1], "off"))
        return rows, actions, seed

    def compare_episode(self, episode: Any, truth: Any, rows: bool) -> str:
        """Where an episode is not what the loop gave."""
        moments, actions, seed = truth
        last = moments[-1]
        choice = self.program.info_choice
        got = [episode.seed, episode.return_, episode.length, episode.terminated]
        expected = [seed, last.episode_return, last.episode_length, last.terminated]
        where = f"episode {episode.item}"
        found = difference(got, expected, f"{where}: seed, return, length, terminated")
        if last.ended and not found:
            info = kept(choice, last).info
            found = difference(episode.info, info, f"{where}: info")
        if found or not rows:
            return found
        seen = [canonical(self.obs_space, row.obs) for row in moments[:-1]]
        shown = [
            self.at(self.obs_space, episode.obs, row) for row in range(episode.length)
        ]
        found = difference(shown, seen, f"{where}: obs")
        final = self.at(self.obs_space, episode.final_obs, 0)
        truth_obs = canonical(self.obs_space, last.obs)
        found = found or difference(final, truth_obs, f"{where}: final_obs")
        done = [canonical(self.action_space, action) for action in actions]
        told = [
            self.at(self.action_space, episode.action, row) for row in range(len(done))
        ]
        found = found or difference(told, done, f"{where}: actions")
        earned = [row.reward for row in moments[1:]]
        return found or difference(episode.reward.tolist(), earned, f"{where}: rewards")

    def play_evaluate(self, pool: Pool) -> None:
        """So many episodes, scored."""
        count = self.rng.randint(1, 12)
        tasks, _, seed = self.asked_for(count)
        scores = evaluate(
            self.policy, pool, count, seed, tasks=tasks, max_length=MAX_EPISODE_STEPS
        )
        truths = [self.by_hand(item, tasks, None, seed) for item in range(count)]
        returns = [moments[-1].episode_return for moments, _, _ in truths]
        self.check(difference(scores.returns.tolist(), returns, "returns"))
        lengths = [moments[-1].episode_length for moments, _, _ in truths]
        self.check(difference(scores.lengths.tolist(), lengths, "lengths"))
        seeds = tuple(seed for _, _, seed in truths)
        self.check(difference(scores.seeds, seeds, "seeds"))


def play(program: Program) -> list[str]:
    """Play it; returns what was wrong."""
    stage = RolloutPlay(program)
    return stage.finished(stage.play)
