"""Devices of workers: `devices="auto"`, and names of devices that do not exist.

Only CUDA devices are counted, without importing torch: by torch where the caller has
imported it, else by the driver's library. A count needs no CUDA context, so neither
the caller nor a child that it forks later is affected.
"""

from __future__ import annotations

import ctypes
import os
import re
import sys
from collections.abc import Sequence

from corral.engine.keywords import is_listed
from corral.errors import OptionError

AUTO = "auto"
# The driver's library of counters, which comes with every CUDA driver on Linux.
NVML = "libnvidia-ml.so.1"


def devices_for(asked: Sequence[str], must_exist: bool = True) -> tuple[str, ...]:
    """The devices that were asked for, which go round robin to the workers.

    Args:
        asked: names, or "auto": every CUDA device, or "cpu" where there is none.
        must_exist: whether CUDA devices are looked for. Envs that render with EGL use
            their numbers without CUDA.

    Raises:
        OptionError: something is not a name, or names a CUDA device that is not there.
    """
    if asked == AUTO:
        found = tuple(f"cuda:{number}" for number in range(cuda_devices()))
        return found or ("cpu",)
    if not is_listed(asked) or not all(isinstance(one, str) for one in asked):
        raise OptionError(
            f'devices is {asked!r}; it must be a list of names, as ["cuda:0"], or '
            f"{AUTO!r}"
        )
    if must_exist:
        numbers = {one: _cuda_number(one) for one in asked if one.startswith("cuda")}
        count = cuda_devices() if numbers else 0
        absent = [one for one, number in numbers.items() if number >= count]
        if absent:
            raise OptionError(
                f"devices has {', '.join(absent)}, but {_described(count)}; "
                "auto takes those that are there, or else the CPU"
            )
    return tuple(asked)


def _cuda_number(device: str) -> int:
    """The number in "cuda:2"; 0 for "cuda" alone."""
    parts = re.fullmatch(r"cuda(?::(\d+))?", device)
    if parts is None:
        raise OptionError(f'devices has {device!r}; write "cuda:0", or "cuda"')
    return int(parts[1] or 0)


def _described(count: int) -> str:
    if not count:
        return "this process can use no CUDA device"
    last = f" to cuda:{count - 1}" if count > 1 else ""
    return f"the CUDA devices that this process can use are cuda:0{last}"


def cuda_devices() -> int:
    """How many CUDA devices this process can use."""
    torch = sys.modules.get("torch")
    if torch is not None and hasattr(torch, "cuda"):
        return int(torch.cuda.device_count())
    return visible(os.environ.get("CUDA_VISIBLE_DEVICES"), _installed())


def visible(variable: str | None, installed: int) -> int:
    """How many of the installed devices CUDA_VISIBLE_DEVICES leaves.

    CUDA reads the list up to the first entry that is not a device.

    >>> visible(None, 4), visible("2,3", 4), visible("0,9,1", 4), visible("", 4)
    (4, 2, 1, 0)
    """
    if variable is None:
        return installed
    count = 0
    for entry in variable.split(","):
        name = entry.strip()
        known = name.isdigit() and int(name) < installed
        if not known and not (installed and name.startswith(("GPU-", "MIG-"))):
            break
        count += 1
    return count


def _installed() -> int:
    """How many devices the driver has; 0 without a driver."""
    try:
        library = ctypes.CDLL(NVML)
    except OSError:
        return 0
    count = ctypes.c_uint(0)
    if library.nvmlInit_v2() != 0:
        return 0
    try:
        failed = library.nvmlDeviceGetCount_v2(ctypes.byref(count))
    finally:
        library.nvmlShutdown()
    return 0 if failed else count.value
