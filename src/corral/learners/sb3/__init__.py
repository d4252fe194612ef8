"""Stable-Baselines3's PPO as a learner; needs that library."""

from corral.errors import MissingExtra

try:
    import stable_baselines3 as stable_baselines3
except ImportError as error:
    raise MissingExtra(
        f"this needs Stable-Baselines3 ({error}): pip install 'corral[sb3,train]'"
    ) from error
