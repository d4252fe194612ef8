"""Ctrl-C and SIGTERM while a run trains.

The first one asks the loop to stop after its update, so that the update is saved; the
second one ends the program. SIGTERM, as schedulers send it, is taken for the first.
"""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress


class StopSignals:
    """Whether Ctrl-C or SIGTERM asked the run to stop."""

    def __init__(self) -> None:
        self.came = False

    @contextmanager
    def heeded(self) -> Iterator[None]:
        """Handle the signals in this block; only the main thread can."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        before = {
            number: signal.signal(number, self._take)
            for number in (signal.SIGINT, signal.SIGTERM)
        }
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    def _take(self, number: int, frame: object) -> None:
        if self.came:
            raise KeyboardInterrupt
        self.came = True
        # Not by the console: it may be what was interrupted.
        said = "\nStopping after this update, to save it. Ctrl-C again stops at once.\n"
        with suppress(OSError):  # stderr may be closed
            os.write(2, said.encode())
