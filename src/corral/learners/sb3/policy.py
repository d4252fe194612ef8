"""A model of Stable-Baselines3 as a policy, for evaluations, and what it sees.

`VecNormalize` is around its VecEnv, if anything is to be scaled.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray
from stable_baselines3.common.vec_env import VecNormalize

from corral.core import Decision, Generators, Step
from corral.engine.tree import mapped
from corral.errors import OptionError
from corral.learners.exact_rows import ExactRows
from corral.learners.protocol import PolicyVariants
from corral.learners.tensors import load_weights, weights_of
from corral.learners.torch_import import torch


@dataclass(slots=True)
class SB3Scales:
    """What Stable-Baselines3 steps, and how it scales what it sees.

    Attributes:
        venv: The outermost VecEnv.
        normalize: The VecNormalize among its wrappers, if there is one.
    """

    venv: Any
    normalize: Any = None

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
        # Pickling deletes them, and would not find them.
        normalize.class_attributes, normalize.returns = {}, np.zeros(0)
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

    def moments(self) -> Iterator[tuple[str, Any]]:
        """The means and variances of observations, by name."""
        if self.normalize is not None and self.normalize.norm_obs:
            found = self.normalize.obs_rms
            named = found if isinstance(found, dict) else {"": found}
            yield from ((f"scale/{key}", one) for key, one in named.items())


def _moments(moments: Any) -> dict[str, Any]:
    return {
        "mean": np.array(moments.mean),
        "var": np.array(moments.var),
        "count": float(moments.count),
    }


def _load(moments: Any, state: dict[str, Any]) -> None:
    moments.mean, moments.var = np.array(state["mean"]), np.array(state["var"])
    moments.count = state["count"]


@dataclass(frozen=True, slots=True)
class Predictor:
    """A policy of Stable-Baselines3, and how it scales observations."""

    policy: Any
    scales: SB3Scales
    # Whether it obeys the action masks in what it sees, or beside that.
    obeys_masks: ClassVar[bool] = False

    def predict(self, obs: Any, deterministic: bool = True) -> Any:
        """Return actions for a batch of unscaled observations."""
        return self.policy.predict(self.scales(obs), deterministic=deterministic)[0]

    def frozen(self) -> Predictor:
        """Return a copy that later updates do not change."""
        # A distribution holds on to the last graph, which cannot be copied.
        known = {
            id(self.policy.action_dist): copy.copy(self.policy.action_dist),
            id(self.policy.optimizer): None,
        }
        policy = copy.deepcopy(self.policy, known)
        return replace(self, policy=policy, scales=self.scales.frozen())


class SB3Policy(PolicyVariants):
    """Asks the predictor; a row does not depend on the others in its batch.

    Args:
        predictor: predicts, with its weights and scales at that time.
    """

    def __init__(self, predictor: Predictor) -> None:
        self._predictor = predictor
        self._exact_rows = ExactRows()

    def frozen(self) -> SB3Policy:
        """Return a deterministic copy that later updates do not change."""
        return SB3Policy(self._predictor.frozen()).deterministic()

    def act(self, step: Step, carry: Any, rng: Generators) -> Decision:
        """Choose an action for each row of a step."""
        if not self.greedy:
            return Decision(self._drawn(step.obs, rng))
        predict = self._predictor.predict
        return Decision(self._exact_rows(predict, step.obs, len(step)))

    def weights(self) -> dict[str, NDArray[Any]]:
        """Return the weights of the model's policy, and how it scales observations."""
        found = weights_of(self._predictor.policy)
        for name, one in self._predictor.scales.moments():
            found |= {f"{name}/mean": np.array(one.mean), f"{name}/var": one.var}
        return found

    def load_weights(self, weights: Mapping[str, NDArray[Any]]) -> None:
        """Set what `weights` returned."""
        moments = list(self._predictor.scales.moments())
        besides = [f"{name}/{part}" for name, _ in moments for part in ("mean", "var")]
        load_weights(self._predictor.policy, weights, besides)
        for name, one in moments:
            one.mean = weights[f"{name}/mean"].copy()
            one.var = weights[f"{name}/var"].copy()

    def on(self, device: str) -> SB3Policy:
        """Return a copy on another device, without an optimizer."""
        other = copy.copy(self)
        other._predictor = self._predictor.frozen()
        other._predictor.policy.to(device)
        return other

    def initial_carry(self, rows: int) -> None:
        """It remembers nothing."""

    def _drawn(self, obs: Any, rng: Generators) -> Any:
        """Row by row, each from a seed of its own episode."""
        drawn = []
        with torch.random.fork_rng():
            for row in range(len(rng)):
                torch.manual_seed(int(rng[row].integers(2**62)))
                one = mapped(lambda part, at=row: part[[at]], obs)
                drawn.append(self._predictor.predict(one, False))
        return np.concatenate(drawn)
