"""Drop-in replacements: change the import line and nothing else.

    from corral.dropin import AsyncVectorEnv, SyncVectorEnv     # Gymnasium
    from corral.dropin import DummyVecEnv, SubprocVecEnv        # Stable-Baselines3
    from corral.dropin import AsyncPettingZooVecEnv             # AgileRL

Names are imported at first use, so that Gymnasium's names import no other library. If
a library is not installed, its names raise MissingExtra.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from corral.engine.lazy_names import lazy

if TYPE_CHECKING:
    from corral.api.agilerl.env import AsyncPettingZooVecEnv
    from corral.api.gymnasium.dropins import AsyncVectorEnv, SyncVectorEnv
    from corral.api.sb3.dropins import DummyVecEnv, SubprocVecEnv


__all__ = [
    "AsyncPettingZooVecEnv",
    "AsyncVectorEnv",
    "DummyVecEnv",
    "SubprocVecEnv",
    "SyncVectorEnv",
]

__getattr__ = lazy(
    "corral.dropin",
    {
        "corral.api.agilerl.env": "AsyncPettingZooVecEnv",
        "corral.api.gymnasium.dropins": "AsyncVectorEnv SyncVectorEnv",
        "corral.api.sb3.dropins": "DummyVecEnv SubprocVecEnv",
    },
)
