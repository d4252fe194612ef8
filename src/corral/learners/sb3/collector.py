"""Stable-Baselines3's `learn`, called once per update, with what it collected kept.

One call collects a rollout and learns from it. A callback, as users write them, sees
every step, leads restarted envs on, and notices where collecting ends and learning
begins.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from time import perf_counter
from typing import Any

import numpy as np
from numpy.typing import NDArray
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.vec_env import VecEnvWrapper

from corral.core import Step
from corral.engine.tree import mapped
from corral.engine.worker.seeds import SeedDomain, episode_seed
from corral.errors import TrainingDiverged, WorkerDied, WorkerHung
from corral.learners.sb3.global_rng import GlobalGenerators
from corral.learners.sb3.policy import SB3Scales
from corral.learners.sb3.run_schedule import RunProgress
from corral.rollouts.normalise import not_finite
from corral.rollouts.rollout import EpisodeSummary

# Called with the VecEnv and the steps so far, before each rollout, and for envs that
# were restarted in one.
Curriculum = Callable[[Any, int], None]
SB3_INFO_KEYS = ("terminal_observation", "TimeLimit.truncated", "episode")


@dataclass(slots=True)
class Collected:
    """What the envs returned; observations and actions are in the model's buffer.

    Attributes:
        reward: [rows, slots], as the envs gave them.
        valid: [rows, slots]; False where the result of an action was lost in a fault.
        learning_seconds: Time that `learn` has spent on the update that followed.
    """

    reward: NDArray[np.float64]
    valid: NDArray[np.bool_]
    episodes: tuple[EpisodeSummary, ...]
    learning_seconds: float


class SeededResets(VecEnvWrapper):  # type: ignore[misc]
    """A VecEnv whose next reset seeds its episodes from a given root."""

    root: int | None = None

    def reset(self) -> Any:
        """Reset every env."""
        root, self.root = self.root, None
        return self.venv.reset() if root is None else self.venv.begin_at(root)

    def step_wait(self) -> Any:
        """Wait for the steps that were sent."""
        return self.venv.step_wait()


class SB3Collector(BaseCallback):  # type: ignore[misc]
    """Has a model collect and learn; episodes continue from each rollout to the next.

    Args:
        trained: an on-policy algorithm of Stable-Baselines3.
        scales: its VecNormalize, if it has one.
        generators: what it draws from.
        progress: of the run, for schedules.
        resets: the innermost wrapper of its VecEnv.
        curriculum: changes the envs as the run goes on.
    """

    def __init__(
        self,
        trained: Any,
        scales: SB3Scales,
        generators: GlobalGenerators,
        progress: RunProgress,
        resets: SeededResets,
        curriculum: Curriculum | None = None,
    ) -> None:
        super().__init__()
        self.model = trained
        self._scales = scales
        self._generators = generators
        self._progress = progress
        self._resets = resets
        self._venv = resets.venv
        self._pool = resets.venv.pool
        self._seed = self._pool.seed
        self._curriculum = curriculum
        self._steps = 0  # as the curriculum was given last
        self._begun = False
        self._is_new = False  # whether the next rollout begins with a reset
        self._seeds: list[int] = []  # by slot: of its episode
        self._rows: list[tuple[NDArray[np.float64], NDArray[np.bool_]]] = []
        self._episodes: list[EpisodeSummary] = []
        self._collected_at = math.nan

    def collect(self, steps: int) -> Collected:
        """Collect the next rows of every slot, and learn from them."""
        model = self.model
        assert steps == model.n_steps, "as many rows as the model was made for"
        if not self._begun:
            self._begin(self._seed, counted=True)
        self._lead(model.num_timesteps)
        self._progress.reach(model.num_timesteps)
        self._rows, self._episodes = [], []
        self._collected_at = math.nan
        try:
            with self._generators.in_place():
                model.learn(
                    steps * model.n_envs,
                    callback=self,
                    log_interval=None,  # the learner reads the logger's values
                    reset_num_timesteps=False,
                )
        except ValueError as error:  # torch's distributions refuse nan
            if math.isnan(self._collected_at):
                raise
            raise diverged(model, str(error).partition("\n")[0]) from error
        seconds = perf_counter() - self._collected_at
        return Collected(*self._stacked(), tuple(self._episodes), seconds)

    def end_episodes(self, number: int) -> None:
        """End all running episodes; the next ones have seeds from (seed, slot, number).

        As `Collector.end_episodes` does: a run that is resumed by this call continues
        as the run that made the call and was not interrupted.
        """
        root = episode_seed(self._seed, number, SeedDomain.NUMBERED)
        self._begin(root, counted=False)

    def _begin(self, root: int, counted: bool) -> None:
        """Have the next `learn` reset the envs.

        Args:
            root: of the episodes' seeds.
            counted: whether normalisers learn from the first observations. Not after a
                checkpoint: a resumed run sees them a second time.
        """
        self._pool.drain()
        self._lead(self.model.num_timesteps)
        self._resets.root = root
        self._scales.learns(counted)
        self.model.set_env(self.model.get_env(), force_reset=True)
        self._begun = self._is_new = True

    def _lead(self, steps: int) -> None:
        self._steps = steps
        if self._curriculum is None:
            return
        try:
            self._curriculum(self._venv, steps)
        except (WorkerDied, WorkerHung):
            if not self._pool.restarts_workers:
                raise
            self._curriculum(self._venv, steps)  # it has been replaced

    # What SB3 calls -------------------------------------------------------------------

    def _on_training_start(self) -> None:
        """After the reset, if there was one."""
        self._scales.learns(True)
        if self._is_new:
            self._is_new = False
            self._seeds = self._venv.last_step.seed.tolist()

    def _on_step(self) -> bool:
        """Keep what the step returned, which the next one overwrites."""
        step: Step = self._venv.last_step
        row = len(self._rows)
        self._rows.append((step.reward.copy(), step.valid.copy()))
        for slot in np.flatnonzero(step.ended & step.valid).tolist():
            self._episodes.append(self._summary(step, slot, row))
        if step.started.any():
            self._seeds = step.seed.tolist()
        if self._curriculum is not None and not step.valid.all():
            self._begin_again(np.flatnonzero(~step.valid))
        return True

    def _on_rollout_end(self) -> None:
        """Before anything is learnt from the rollout."""
        reward, valid = self._stacked()
        if not np.isfinite(reward).all():
            culprit = not_finite((), reward, valid)
            said = f". {culprit[0].upper()}{culprit[1:]}" if culprit else ""
            raise TrainingDiverged(f"a reward is not finite{said}")
        self._collected_at = perf_counter()

    def _begin_again(self, slots: NDArray[np.intp]) -> None:
        """Reset envs that were restarted: they began without the curriculum."""
        self._lead(self._steps)
        seeds = [self._seeds[slot] for slot in slots.tolist()]
        rows, obs = self._venv.begin_again(slots, seeds)
        # The model acts on these next; until then they are in its locals alone.
        acted_on, scaled = self.locals["new_obs"], self._scales(obs)
        mapped(lambda whole, new: whole.__setitem__(rows, new), acted_on, scaled)

    def _stacked(self) -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
        reward, valid = (np.stack(one) for one in zip(*self._rows, strict=True))
        return reward, valid

    def _summary(self, step: Step, slot: int, row: int) -> EpisodeSummary:
        info = step.final_infos.get(slot, {})
        return EpisodeSummary(
            slot=slot,
            row=row,
            seed=self._seeds[slot],
            return_=step.episode_return.item(slot),
            length=step.episode_length.item(slot),
            terminated=step.terminated.item(slot),
            info={key: info[key] for key in info if key not in SB3_INFO_KEYS},
        )


def diverged(model: Any, reason: str) -> TrainingDiverged:
    """Return the error for a model that learnt something that is not finite."""
    return TrainingDiverged(
        f"learning diverged after {model.num_timesteps:,} steps ({reason}). Try a "
        "lower ppo.lr, or normalise_reward: true"
    )
