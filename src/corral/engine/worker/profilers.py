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


def stop_profilers() -> bool:
    """Stop the profilers of loaded simulators; returns whether one was running.

    For a process of our own, whenever envs were built in it: in some versions, building
    one starts the profiler again.
    """
    mujoco = sys.modules.get("mujoco")
    try:
        if mujoco is None or mujoco.get_mjcb_time() is not None:
            return False
        # The package can only set a clock, so we reach for the variable of its library.
        library = ctypes.CDLL(mujoco._callbacks.__file__)
        clock = ctypes.c_void_p.in_dll(library, "mjcb_time")
    except (AttributeError, OSError, ValueError):
        return False  # another MuJoCo than we know: its steps are timed as before
    running = clock.value is not None
    clock.value = None
    return running
