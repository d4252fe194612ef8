"""Drop-in replacements: change the import line and nothing else.

    from corral.dropin import AsyncVectorEnv, SyncVectorEnv     # Gymnasium
    from corral.dropin import DummyVecEnv, SubprocVecEnv        # Stable-Baselines3
    from corral.dropin import AsyncPettingZooVecEnv             # AgileRL

Names are imported at first use, so that Gymnasium's names import no other library. If
a library is not installed, its names raise MissingExtra.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from corral.api.agilerl.env import AsyncPettingZooVecEnv
    from corral.api.gymnasium.dropins import AsyncVectorEnv, SyncVectorEnv
    from corral.api.sb3.dropins import DummyVecEnv, SubprocVecEnv

_HOMES = {
    "AsyncPettingZooVecEnv": "corral.api.agilerl.env",
    "AsyncVectorEnv": "corral.api.gymnasium.dropins",
    "DummyVecEnv": "corral.api.sb3.dropins",
    "SubprocVecEnv": "corral.api.sb3.dropins",
    "SyncVectorEnv": "corral.api.gymnasium.dropins",
}

__all__ = [
    "AsyncPettingZooVecEnv",
    "AsyncVectorEnv",
    "DummyVecEnv",
    "SubprocVecEnv",
    "SyncVectorEnv",
]


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        return getattr(importlib.import_module(_HOMES[name]), name)
    raise AttributeError(
        f"corral.dropin has no {name!r}; it has {', '.join(sorted(_HOMES))}"
    )
