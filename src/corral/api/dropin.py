"""The names people import today; change the import line and nothing else.

    from corral.dropin import AsyncVectorEnv, SyncVectorEnv     # Gymnasium
    from corral.dropin import DummyVecEnv, SubprocVecEnv        # Stable-Baselines3
    from corral.dropin import AsyncPettingZooVecEnv             # AgileRL

Lazy: a name is looked up when it is asked for, so that Gymnasium's names import no
other library. One whose library is not installed raises MissingExtra.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from corral.faces.agilerl_env import AsyncPettingZooVecEnv
    from corral.faces.gymnasium_dropins import AsyncVectorEnv, SyncVectorEnv
    from corral.faces.sb3_dropins import DummyVecEnv, SubprocVecEnv

_HOMES = {
    "AsyncPettingZooVecEnv": "corral.faces.agilerl_env",
    "AsyncVectorEnv": "corral.faces.gymnasium_dropins",
    "DummyVecEnv": "corral.faces.sb3_dropins",
    "SubprocVecEnv": "corral.faces.sb3_dropins",
    "SyncVectorEnv": "corral.faces.gymnasium_dropins",
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
