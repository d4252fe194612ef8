"""Stable-Baselines3's way of collecting, with the episodes kept that ended in it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from corral.core import Step
from corral.engine.worker.seeds import SeedDomain, episode_seed
from corral.errors import MissingExtra, WorkerDied, WorkerHung
from corral.learners.sb3.ppo import SB3PPO, Collected
from corral.rollouts.rollout import EpisodeSummary

try:
    from stable_baselines3.common.callbacks import BaseCallback
except ImportError as error:
    raise MissingExtra(
        f"this needs Stable-Baselines3 ({error}): pip install 'corral[sb3,train]'"
    ) from error

Curriculum = Callable[[Any, int], None]
"""Called with the VecEnv and the steps so far, before each rollout, and for envs that
were restarted in one: rows of the VecEnv are slots of its pool."""


class SB3Collector:
    """Collects rollouts into a model's buffer; episodes go on from each to the next.

    Args:
        learner: whose model, and whose VecEnv.
        curriculum: changes the envs as the run goes on.
    """

    def __init__(self, learner: SB3PPO, curriculum: Curriculum | None = None) -> None:
        self._learner = learner
        self._model = learner.model
        self._venv = learner.venv
        self._pool = learner.venv.pool
        self._seed = self._pool.seed
        self._curriculum = curriculum
        self._led_at = 0
        """The steps that the curriculum was told last."""
        self._begun = False
        self._seeds: list[int] = []
        """By slot: of the episode it is in."""
        self._watcher = _StepCallback(self._take_rollout)
        self._watcher.init_callback(self._model)
        self._rows: list[tuple[NDArray[np.float64], NDArray[np.bool_]]] = []
        self._episodes: list[EpisodeSummary] = []

    def collect(self, steps: int) -> Collected:
        """The next so many rows of every slot."""
        if not self._begun:
            self._begin(self._seed, counted=True)
        self._prepare()
        self._rows, self._episodes = [], []
        model = self._model
        with self._learner.generators.in_place():
            model.collect_rollouts(
                model.env, self._watcher, model.rollout_buffer, n_rollout_steps=steps
            )
        reward, valid = (np.stack(one) for one in zip(*self._rows, strict=True))
        return Collected(reward, valid, tuple(self._episodes))

    def end_episodes(self, number: int) -> None:
        """End all running episodes; the next ones have seeds from (seed, slot, number).

        As `Collector.end_episodes` does: a run that is resumed by this call goes on as
        the one that made it and was not interrupted.
        """
        root = episode_seed(self._seed, number, SeedDomain.NUMBERED)
        self._begin(root, counted=False)

    def _prepare(self) -> None:
        self._led_at = self._learner.steps
        self._lead()

    def _lead(self) -> None:
        if self._curriculum is None:
            return
        try:
            self._curriculum(self._venv, self._led_at)
        except (WorkerDied, WorkerHung):
            if not self._pool.restarts_workers:
                raise
            self._curriculum(self._venv, self._led_at)  # it has been replaced

    def _begin(self, root: int, counted: bool) -> None:
        self._pool.drain()
        self._prepare()  # before the reset, as a run that is resumed here does
        obs = self._venv.begin_at(root)
        step: Step = self._venv.last_step
        self._seeds = step.seed.tolist()
        rows = self._venv.num_envs
        self._model._last_obs = self._learner.scales.begin(obs, counted)
        self._model._last_episode_starts = np.ones(rows, np.bool_)
        self._begun = True

    # What came ------------------------------------------------------------------------

    def _take_rollout(self) -> None:
        """Keep what the step said, which the next one overwrites."""
        step: Step = self._venv.last_step
        row = len(self._rows)
        self._rows.append((step.reward.copy(), step.valid.copy()))
        for slot in np.flatnonzero(step.ended & step.valid).tolist():
            self._episodes.append(self._summary(step, slot, row))
        if step.started.any():
            self._seeds = step.seed.tolist()
        if self._curriculum is not None and not step.valid.all():
            self._begin_again(np.flatnonzero(~step.valid))

    def _begin_again(self, slots: NDArray[np.intp]) -> None:
        """These have new envs, which began as if there were no curriculum."""
        self._lead()
        seeds = [self._seeds[slot] for slot in slots.tolist()]
        obs = self._learner.scales(self._pool.reset(slots, seeds=seeds).obs)
        # What is acted on next; until then it is here alone.
        _put(self._watcher.locals["new_obs"], slots, obs)

    def _summary(self, step: Step, slot: int, row: int) -> EpisodeSummary:
        return EpisodeSummary(
            slot=slot,
            row=row,
            seed=self._seeds[slot],
            return_=step.episode_return.item(slot),
            length=step.episode_length.item(slot),
            terminated=step.terminated.item(slot),
            info=_own(step.final_infos.get(slot, {})),
        )


def _put(rows: Any, slots: NDArray[np.intp], values: Any) -> None:
    """Some rows of a batch of observations."""
    if isinstance(rows, dict):
        for key, part in rows.items():
            _put(part, slots, values[key])
    else:
        rows[slots] = values


def _own(info: dict[str, Any]) -> dict[str, Any]:
    """What the env said, without what Stable-Baselines3 wants to find there."""
    return {key: value for key, value in info.items() if key not in _SB3_INFO_KEYS}


_SB3_INFO_KEYS = ("terminal_observation", "TimeLimit.truncated", "episode")


class _StepCallback(BaseCallback):  # type: ignore[misc]
    """Tells the collector of every step."""

    def __init__(self, took: Callable[[], None]) -> None:
        super().__init__()
        self._took = took

    def _on_step(self) -> bool:
        self._took()
        return True
