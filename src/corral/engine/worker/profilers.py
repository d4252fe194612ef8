"""Profilers that simulators start by themselves.

MuJoCo times every stage of every step for `mjData.timer` where `mjcb_time` is a clock.
In C there is none unless the program sets one; the Python package does so by itself,
3.3.7 with every `MjData`, 3.17 and 4.0 when it is imported (3.2.7 did not). Reading the
clock is 6 % of an Ant-v5's step, and hardly any program reads the times.

A clock that the program has set with `mujoco.set_mjcb_time` stays. One set
in C, behind the package's back, cannot be told from the package's own.
"""

from __future__ import annotations

import ctypes
import sys
from contextlib import suppress


def stop_profilers() -> None:
    """Stop the profilers of loaded simulators.

    For a process of our own, whenever envs were built in it: in some versions, building
    one starts the profiler again.
    """
    mujoco = sys.modules.get("mujoco")
    # Steps of another MuJoCo than we know are timed as before.
    with suppress(AttributeError, OSError, ValueError):
        if mujoco is not None and mujoco.get_mjcb_time() is None:
            # The package can only set a clock, so we reach for its library's variable.
            library = ctypes.CDLL(mujoco._callbacks.__file__)
            ctypes.c_void_p.in_dll(library, "mjcb_time").value = None
