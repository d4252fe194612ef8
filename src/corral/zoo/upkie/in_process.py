"""Robots that can share a process: the package's own code, each with its simulator.

The package's backend calls `pybullet` and does not say which simulator it means. Here
each robot gets a copy of the backend's module in which that name is a Client:

    pybullet_backend (a copy)   pybullet = Client()      every call has its own
    entry_points (a copy)       PyBulletBackend = the copy's

So a robot runs the code of the installed version, line by line.
"""

from __future__ import annotations

import importlib.util
from types import ModuleType
from typing import Any

import gymnasium
import pybullet_data

from corral.errors import OptionError
from corral.zoo.bullet_pendulum.client import Client

BACKEND = "upkie.envs.backends.pybullet_backend"
ENTRY_POINTS = "upkie.envs.entry_points"


def make_robot(entry_point: str, **kwargs: Any) -> gymnasium.Env[Any, Any]:
    """Call one of the package's entry points, for a robot with its own simulator."""
    client = Client()
    points, backend = _copy(ENTRY_POINTS), _copy(BACKEND)
    names = (points, "PyBulletBackend"), (backend, "pybullet"), (points, entry_point)
    for module, name in names:
        if not hasattr(module, name):
            raise OptionError(
                f"in_process=True does not know this version of upkie: no {name} in "
                f'{module.__name__}. Use isolation="slot" instead, or upkie 13.1'
            )
    vars(backend).update(pybullet=client, pybullet_data=pybullet_data)
    vars(points).update(PyBulletBackend=backend.PyBulletBackend)
    robot: gymnasium.Env[Any, Any] = getattr(points, entry_point)(**kwargs)
    return robot


def _copy(name: str) -> ModuleType:
    """A module once more, beside the one that others import."""
    spec = importlib.util.find_spec(name)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
