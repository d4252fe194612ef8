"""A deadline that the kernel keeps: this process is killed, even while it is stopped.

Guarantees (Linux):
    - SIGKILL comes at the deadline, whatever the process does: it may hang in C, hold
      the GIL, or have received SIGSTOP.
Elsewhere there is no such timer, and nothing happens.
"""

from __future__ import annotations

import ctypes
import signal
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache

_SIGEV_SIGNAL = 0


class _Event(ctypes.Structure):
    """`struct sigevent`, 64 bytes."""

    _fields_ = (
        ("value", ctypes.c_void_p),
        ("signal", ctypes.c_int),
        ("notify", ctypes.c_int),
        ("rest", ctypes.c_char * 48),
    )


class _Times(ctypes.Structure):
    """`struct itimerspec`: seconds and nanoseconds of the period and of the first."""

    _fields_ = (("period", ctypes.c_long * 2), ("first", ctypes.c_long * 2))


@contextmanager
def killed_after(seconds: float | None) -> Iterator[None]:
    """Kill this process if the block takes longer; None for no limit."""
    if seconds is None or sys.platform != "linux":
        yield
        return
    _set(seconds)
    try:
        yield
    finally:
        _set(0.0)


def _set(seconds: float) -> None:
    """Start the timer anew; 0 stops it."""
    whole = int(seconds)
    times = _Times((0, 0), (whole, int((seconds - whole) * 1e9)))
    libc, timer = _timer()
    if libc.timer_settime(timer, 0, ctypes.byref(times), None):
        raise OSError(ctypes.get_errno(), "timer_settime failed")


@cache
def _timer() -> tuple[ctypes.CDLL, ctypes.c_void_p]:
    """The C library, and one timer for the life of this process."""
    libc, timer = ctypes.CDLL(None, use_errno=True), ctypes.c_void_p()
    if not hasattr(libc, "timer_create"):  # glibc before 2.34
        libc = ctypes.CDLL("librt.so.1", use_errno=True)
    event = _Event(None, signal.SIGKILL, _SIGEV_SIGNAL)
    if libc.timer_create(time.CLOCK_MONOTONIC, *map(ctypes.byref, (event, timer))):
        raise OSError(ctypes.get_errno(), "timer_create failed")
    return libc, timer
