"""sb3-contrib's MaskablePPO, driven as Stable-Baselines3's PPO is.

Masks come with observations, under `action_mask`: in training, sb3-contrib asks the
VecEnv for them; in evaluations, the policy finds them in what it sees.
"""

from __future__ import annotations

from typing import Any

from gymnasium import spaces

from corral.api.sb3.action_masks import METHOD, StepMasks
from corral.api.sb3.env import CorralVecEnv
from corral.api.shared_policy.spaces import OBSERVATION
from corral.engine.adapters.team import MASK_KEY, TEAM_KEY
from corral.engine.pool import Pool
from corral.errors import OptionError, requires
from corral.learners.nets.encoders import mask_leaf
from corral.learners.protocol import LearnerSetup
from corral.learners.sb3.policy import Predictor
from corral.learners.sb3.ppo import SB3PPO

with requires(
    "learner: sb3_maskable_ppo needs sb3-contrib ({error}): pip install "
    "'corral[sb3_contrib,train]'"
):
    from sb3_contrib import MaskablePPO


class MaskedVecEnv(CorralVecEnv):
    """A VecEnv whose `action_masks` are those of the last observations."""

    def __init__(self, pool: Pool) -> None:
        super().__init__(pool)
        self._masks = StepMasks(self._seen)

    def _seen(self) -> Any:
        return None if self._last is None else self._last.obs[MASK_KEY]


class MaskedPredictor(Predictor):
    """Obeys the masks in what it sees, or beside that, as agents that share it do."""

    obeys_masks = True

    def predict(self, obs: Any, deterministic: bool = True) -> Any:
        """Return allowed actions for a batch of unscaled observations."""
        masks = obs.get(MASK_KEY) if isinstance(obs, dict) else None
        if masks is not None and not _has_mask(self.policy.observation_space):
            obs = obs[OBSERVATION]
        return self.policy.predict(
            self.scales(obs), deterministic=deterministic, action_masks=masks
        )[0]


def _has_mask(space: spaces.Space[Any]) -> bool:
    return isinstance(space, spaces.Dict) and MASK_KEY in space.spaces


class SB3MaskablePPO(SB3PPO):
    """Learns as `MaskablePPO.learn` does, one rollout at a time; see `SB3PPO`."""

    algorithm = MaskablePPO
    predictor_class = MaskedPredictor
    vec_env_class = MaskedVecEnv

    def __init__(self, setup: LearnerSetup, **options: Any) -> None:
        spec = setup.spec
        single = TEAM_KEY not in spec.metadata
        if single and mask_leaf(spec.observation_space, spec.action_space) is None:
            raise OptionError(
                "learner: sb3_maskable_ppo needs masks of discrete actions, and this "
                f"env ({spec.observation_space} -> {spec.action_space}) has none: give "
                f"it a method {METHOD}(), or a Dict observation with {MASK_KEY!r}; or "
                "use learner: sb3_ppo"
            )
        super().__init__(setup, **options)

    def _nets(self, setup: LearnerSetup) -> dict[str, Any]:
        """Return the arguments for the model's policy, which has no Box actions."""
        kwargs = super()._nets(setup)
        del kwargs["log_std_init"]
        return kwargs
