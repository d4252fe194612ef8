"""The names people import today; change the import line and nothing else.

    from corral.dropin import AsyncVectorEnv, SyncVectorEnv     # Gymnasium

Lazy: a name is looked up when it is asked for, so that Gymnasium's names import no
other library.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from corral.faces.gymnasium_dropins import AsyncVectorEnv, SyncVectorEnv

_HOMES = {
    "AsyncVectorEnv": "corral.faces.gymnasium_dropins",
    "SyncVectorEnv": "corral.faces.gymnasium_dropins",
}

__all__ = ["AsyncVectorEnv", "SyncVectorEnv"]


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        return getattr(importlib.import_module(_HOMES[name]), name)
    raise AttributeError(
        f"corral.dropin has no {name!r}; it has {', '.join(sorted(_HOMES))}"
    )
