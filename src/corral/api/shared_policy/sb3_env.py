"""One policy for all agents, as a Stable-Baselines3 `VecEnv`."""

from __future__ import annotations

import time
from collections.abc import Sequence
from itertools import compress
from typing import Any, cast

from corral.api.gymnasium.errors import translated
from corral.api.sb3.action_masks import METHOD
from corral.api.sb3.env import CorralVecEnv, Indices
from corral.api.shared_policy.pool import SharedPool
from corral.core import Step
from corral.engine.pool import Pool
from corral.errors import OptionError


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

    # Calls: all rows of an env get its result -----------------------------------------

    def set_attr(self, attr_name: str, value: Any, indices: Indices = None) -> None:
        """Set an attribute of the envs of these rows."""
        rows = self._slots(indices)
        with translated():
            self.shared.set_attr(attr_name, [value] * len(rows), slots=rows)

    def has_attr(self, attr_name: str) -> bool:
        """Whether all envs have the attribute; masks come with the steps."""
        if attr_name == METHOD:
            return self.shared.action_masks is not None
        return super().has_attr(attr_name)

    def env_method(
        self,
        method_name: str,
        *method_args: Any,
        indices: Indices = None,
        **method_kwargs: Any,
    ) -> list[Any]:
        """Call a method of the env of each row."""
        if method_name != METHOD:
            return super().env_method(
                method_name, *method_args, indices=indices, **method_kwargs
            )
        masks = self.shared.action_masks
        if masks is None:
            raise OptionError(
                "there are no action masks: call reset first; actions must be Discrete"
            )
        return [masks[row].copy() for row in self._slots(indices)]

    def get_images(self) -> Sequence[Any]:
        """One frame for each env."""
        return list(self.shared.pool.render())
