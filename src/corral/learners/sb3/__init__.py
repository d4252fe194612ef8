"""Stable-Baselines3's PPO as a learner; needs that library."""

from corral.errors import requires

with requires(
    "this needs Stable-Baselines3 ({error}): pip install 'corral[sb3,train]'"
):
    import stable_baselines3 as stable_baselines3
