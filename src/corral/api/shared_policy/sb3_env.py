"""One policy for all agents, as a Stable-Baselines3 `VecEnv`."""

from __future__ import annotations

import time
from collections.abc import Sequence
from itertools import compress
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from corral.api.gymnasium.errors import translated
from corral.api.sb3.action_masks import StepMasks
from corral.api.sb3.env import CorralVecEnv, Indices
from corral.api.shared_policy.pool import SharedPool
from corral.core import Step
from corral.engine.pool import Pool


class SharedVecEnv(CorralVecEnv):
    """Every agent of every env as one row of a Stable-Baselines3 `VecEnv`.

    Made by `corral.make_shared_policy(..., api="sb3")`. Stable-Baselines3 cannot skip
    rows: those of absent agents are zeros without reward, neither done nor counted as
    episodes, and it learns from them as from any other; `valid` is False there. Infos
    have `episode` where an agent ended, as Monitor writes it, so no Monitor is needed;
    VecMonitor would count padding rows as steps.
    """

    def __init__(self, shared: SharedPool) -> None:
        self.shared = shared
        self._began = time.time()
        # A SharedPool has all methods of a pool that a vector env calls.
        super().__init__(cast(Pool, shared))
        self._masks = StepMasks(lambda: shared.action_masks)

    @property
    def last_step(self) -> Step | None:
        """The last Step of the pool of envs, one row per env."""
        return self.shared.last

    def _step_infos(self, step: Step, ended: list[bool]) -> list[dict[str, Any]]:
        infos = super()._step_infos(step, ended)
        seconds = round(time.time() - self._began, 6)
        for row in compress(range(self.num_envs), (step.ended & step.valid).tolist()):
            infos[row]["episode"] = {
                "r": round(step.episode_return.item(row), 6),
                "l": step.episode_length.item(row),
                "t": seconds,
            }
        return infos

    def begin_again(
        self, rows: NDArray[np.intp], seeds: Sequence[int]
    ) -> tuple[NDArray[np.intp], Any]:
        """Reset some envs, and return their rows with what these see."""
        agents = self.shared.agents
        own = (rows[:, None] * agents + np.arange(agents)).ravel()
        return super().begin_again(own, np.repeat(seeds, agents).tolist())

    # Calls: all rows of an env get its result -----------------------------------------

    def set_attr(self, attr_name: str, value: Any, indices: Indices = None) -> None:
        """Set an attribute of the envs of these rows."""
        rows = self._slots(indices)
        with translated():
            self.shared.set_attr(attr_name, [value] * len(rows), slots=rows)

    def get_images(self) -> Sequence[Any]:
        """One frame for each env."""
        return list(self.shared.pool.render())
