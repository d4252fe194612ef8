"""What travels between machines: code by name or by value, values, versions.

Ray has a cloudpickle of its own; what it is given here are bytes that Corral pickled,
and buffers of arrays, which it passes on without copying.
"""

from __future__ import annotations

import os
import pickle
import platform
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache
from typing import Any, NamedTuple

import gymnasium
import numpy as np
from numpy.typing import NDArray

from corral.engine.worker.serialization import Found, dumps
from corral.errors import ClusterError

# Their versions have to be the same everywhere, where the driver has them.
COMPARED = ("corral", "numpy", "gymnasium", "cloudpickle", "torch")


class Parcel(NamedTuple):
    """A pickled value, its arrays beside it."""

    data: bytes
    buffers: list[NDArray[np.uint8]]


def parcel(value: Any, found: Found) -> Parcel:
    """Pickle a value; arrays stay where they are."""
    buffers: list[pickle.PickleBuffer] = []
    data = dumps(value, found, buffer_callback=buffers.append)
    return Parcel(data, [np.frombuffer(one.raw(), np.uint8) for one in buffers])


def opened(packed: Parcel, owned: bool = False) -> Any:
    """The value; its arrays can be written to only if it owns them."""
    buffers: Iterable[Any] = packed.buffers
    if owned:
        buffers = [bytearray(one) for one in buffers]
    return pickle.loads(packed.data, buffers=buffers)


# Modules ------------------------------------------------------------------------------


@cache
def _distributions() -> Mapping[str, Sequence[str]]:
    """The installed packages of each top-level module."""
    from importlib import metadata  # 9 ms, which `import corral` should not take

    return metadata.packages_distributions()


def importable_with(working_dir: str | None) -> Found:
    """Whether another machine can import a module: Corral, and what is installed.

    Modules of `working_dir` go with it; all others travel by value.
    """
    folder = None if working_dir is None else os.path.realpath(working_dir)

    def found(name: str) -> bool:
        top = name.partition(".")[0]
        if top == "__main__":
            return False
        if top in COMPARED:  # every site has them, Corral also if it is not installed
            return True
        if top in sys.stdlib_module_names or top in _distributions():
            return True
        file = getattr(sys.modules.get(name), "__file__", None)
        if file is None:
            # Made by a C extension, or already by value.
            return name not in sys.modules or hasattr(sys.modules[name], "__path__")
        return folder is not None and os.path.realpath(file).startswith(folder + os.sep)

    return found


def registered_here(found: Found) -> list[bytes]:
    """The envs that this program has registered with Gymnasium, pickled."""
    own = [
        spec
        for spec in gymnasium.registry.values()
        if not str(spec.entry_point).startswith(("gymnasium.", "<"))
    ]
    packed = []
    for spec in own:
        try:
            packed.append(dumps(spec, found))
        except Exception:  # a site then says that it is not registered
            continue
    return packed


# Versions -----------------------------------------------------------------------------


def versions(packages: Iterable[str]) -> dict[str, str]:
    """Versions of Python and of these packages; "" for one that is missing."""
    return {"python": platform.python_version(), **{p: _version(p) for p in packages}}


def _version(package: str) -> str:
    from importlib import metadata

    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return ""


def packages_of(env: Any) -> tuple[str, ...]:
    """The packages to compare: Corral's own, and the one of the env."""
    known = [one for one in COMPARED if _version(one)]
    owners = _distributions()
    for module in _modules_of(env):
        known += owners.get(module.partition(".")[0], [])
    return tuple(dict.fromkeys(known))


def _modules_of(env: Any) -> list[str]:
    """Modules that an env is named by, or made in."""
    if isinstance(env, (list, tuple)):
        return [name for one in env for name in _modules_of(one)]
    if isinstance(env, str):
        named, colon, _ = env.partition(":")
        spec = gymnasium.registry.get(env)
        entry = "" if spec is None else str(spec.entry_point).partition(":")[0]
        return [named] if colon else [entry]
    inner: Callable[..., Any] = getattr(env, "func", env)
    return [str(getattr(inner, "__module__", ""))]


def check_versions(
    ours: Mapping[str, str], theirs: Mapping[str, Mapping[str, str]]
) -> None:
    """Raise ClusterError, with every difference by name, if any node differs.

    Args:
        ours: of this process.
        theirs: by node.
    """
    lines = []
    for node, found in theirs.items():
        for package, version in ours.items():
            there = found.get(package, "")
            same = _minor(version) == _minor(there) if package == "python" else False
            if version != there and not same:
                lines.append(
                    f"  {package} is {version} here and {there or 'missing'} on {node}"
                )
    if lines:
        raise ClusterError(
            "the nodes of the cluster have other versions than this process:\n"
            + "\n".join(dict.fromkeys(lines))
            + "\nInstall the same versions on every node, as results may differ "
            "otherwise"
        )


def _minor(version: str) -> tuple[str, ...]:
    return tuple(version.split(".")[:2])
