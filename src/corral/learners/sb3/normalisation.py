"""`VecNormalize` around a VecEnv, if anything is to be scaled, and what it knows."""

from __future__ import annotations

import copy
from dataclasses import dataclass
from typing import Any

import numpy as np
from stable_baselines3.common.vec_env import VecNormalize

from corral.engine.tree import mapped
from corral.errors import OptionError


@dataclass(slots=True)
class SB3Scales:
    """What Stable-Baselines3 steps, and how it scales what it sees."""

    venv: Any
    """The outermost VecEnv."""
    normalize: Any = None
    """The VecNormalize among its wrappers, if there is one."""

    @classmethod
    def around(cls, venv: Any, obs: bool, reward: bool, gamma: float) -> SB3Scales:
        """Scales for what is asked; none if nothing is."""
        if not (obs or reward):
            return cls(venv)
        try:
            normalize = VecNormalize(
                venv, norm_obs=obs, norm_reward=reward, gamma=gamma
            )
        except ValueError as error:
            raise OptionError(f"normalise_obs: {error}") from None
        return cls(normalize, normalize)

    def __call__(self, obs: Any) -> Any:
        """Observations as the policy sees them; learns nothing from them."""
        return obs if self.normalize is None else self.normalize.normalize_obs(obs)

    def frozen(self) -> SB3Scales:
        """A copy that scales as it does now; it steps nothing."""
        if self.normalize is None:
            return SB3Scales(None)
        state = self.normalize.__getstate__()  # all but what it steps
        normalize = VecNormalize.__new__(VecNormalize)
        normalize.__setstate__(copy.deepcopy(state))
        return SB3Scales(None, normalize)

    def learns(self, learns: bool) -> None:
        """Say whether means and variances learn from what comes."""
        if self.normalize is not None:
            self.normalize.training = learns

    def state_dict(self) -> dict[str, Any]:
        """Means and variances, to be saved."""
        if self.normalize is None:
            return {}
        state = {"reward": _moments(self.normalize.ret_rms)}
        if self.normalize.norm_obs:
            state["obs"] = mapped(_moments, self.normalize.obs_rms)
        return state

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue from what was saved."""
        if self.normalize is None:
            return
        if "reward" in state:
            _load(self.normalize.ret_rms, state["reward"])
        if self.normalize.norm_obs and "obs" in state:
            mapped(_load, self.normalize.obs_rms, state["obs"])


def _moments(moments: Any) -> dict[str, Any]:
    return {
        "mean": np.array(moments.mean),
        "var": np.array(moments.var),
        "count": float(moments.count),
    }


def _load(moments: Any, state: dict[str, Any]) -> None:
    moments.mean, moments.var = np.array(state["mean"]), np.array(state["var"])
    moments.count = state["count"]
