"""A policy of Stable-Baselines3's PPO as a plain torch module."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from gymnasium import spaces
from stable_baselines3.common.preprocessing import preprocess_obs

from corral.api.shared_policy.spaces import OBSERVATION
from corral.engine.adapters.team import MASK_KEY
from corral.learners.nets.exported import ExportedPolicy, Scale, choice_for
from corral.learners.sb3.policy import Predictor, SB3Scales
from corral.learners.torch_import import nn

# The output of options that are not allowed, as sb3-contrib has it.
FORBIDDEN = -1e8
# The key of observations that are one array.
PLAIN = ""


class SB3Features(nn.Module):  # type: ignore[misc]
    """Leaves of observations to features, as the policy sees them.

    Args:
        policy: of Stable-Baselines3.
        space: of raw observations; images of the policy have their channels first.
    """

    def __init__(self, policy: Any, space: spaces.Space[Any]) -> None:
        super().__init__()
        self.extractor = policy.pi_features_extractor
        self._space, self._scaled = policy.observation_space, policy.normalize_images
        seen, raw = _leaves(self._space), _leaves(space)
        self._keys = list(raw)
        self._turned = [seen[key].shape != raw[key].shape for key in raw]

    def forward(self, leaves: Sequence[Any]) -> Any:
        """Tensors of `(rows, ...)` to `(rows, features)`."""
        pairs = zip(leaves[: len(self._keys)], self._turned, strict=True)
        turned = [leaf.permute(0, 3, 1, 2) if turn else leaf for leaf, turn in pairs]
        by_key = dict(zip(self._keys, turned, strict=True))
        obs = by_key.get(PLAIN, by_key)
        return self.extractor(preprocess_obs(obs, self._space, self._scaled))


class MaskedPolicy(ExportedPolicy):
    """Masks as sb3-contrib does: where nothing is allowed, all options are alike."""

    def chosen(self, outputs: Any, leaves: Sequence[Any]) -> Any:
        """The likeliest allowed actions."""
        if self._mask is not None:
            allowed = leaves[self._mask] != 0
            outputs = outputs.masked_fill(~allowed, FORBIDDEN)
        return self.choice(outputs)


def exported(predictor: Predictor, venv: Any, beside: bool) -> ExportedPolicy:
    """Return scales, features, actor and choice of a frozen predictor.

    Args:
        predictor: of the learner.
        venv: says what is observed.
        beside: whether masks of actions come beside observations.
    """
    policy, space = predictor.policy.cpu(), venv.observation_space
    actor = nn.Sequential(policy.mlp_extractor.policy_net, policy.action_net)
    keys = list(_leaves(space))
    scales = [_scale(predictor.scales, key) for key in keys]
    parts = (SB3Features(policy, space), actor, choice_for(policy.action_space))
    if not beside:
        obeyed = predictor.obeys_masks and MASK_KEY in keys
        mask = keys.index(MASK_KEY) if obeyed else None
        return MaskedPolicy(scales, *parts, mask=mask)
    module = MaskedPolicy([*scales, nn.Identity()], *parts, mask=len(keys))
    names = {key: f"{OBSERVATION}.{key}" if key else OBSERVATION for key in keys}
    seen = {names[key]: key or OBSERVATION for key in keys}
    module.reads = {**seen, MASK_KEY: MASK_KEY}
    return module


def _leaves(space: spaces.Space[Any]) -> dict[str, spaces.Space[Any]]:
    return dict(space.spaces) if isinstance(space, spaces.Dict) else {PLAIN: space}


def _scale(scales: SB3Scales, key: str) -> Any:
    normalize, known = scales.normalize, dict(scales.moments())
    moments = known.get(f"scale/{key}")
    if moments is None:
        return nn.Identity()
    deviation = np.sqrt(moments.var + normalize.epsilon)
    return Scale(moments.mean, 1.0 / deviation, normalize.clip_obs)
