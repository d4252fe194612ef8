"""How much of a constructor's time went into imports, which the next env is spared."""

from __future__ import annotations

import builtins
import importlib
from collections.abc import Callable
from typing import Any

from corral.engine.faults.run_delay import own_time


class ImportTimer:
    """Seconds that imports take inside the context; for a worker's main thread."""

    def __init__(self) -> None:
        self.seconds = 0.0
        self._is_importing = False

    def __enter__(self) -> ImportTimer:
        self._before = builtins.__import__, importlib.import_module
        builtins.__import__ = self._timed(builtins.__import__)
        importlib.import_module = self._timed(importlib.import_module)
        return self

    def __exit__(self, *exception: object) -> None:
        builtins.__import__, importlib.import_module = self._before

    def _timed(self, function: Callable[..., Any]) -> Callable[..., Any]:
        def timed(*arguments: Any, **named: Any) -> Any:
            if self._is_importing:
                return function(*arguments, **named)
            self._is_importing = True  # before the clock is read: that may import too
            began = own_time()
            try:
                return function(*arguments, **named)
            finally:
                self.seconds += own_time() - began
                self._is_importing = False

        return timed
