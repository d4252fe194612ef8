"""Modules that have moved: the old name still imports the module.

    corral.run.start          is corral.train.run.start
    corral.workers.kit        is corral.engine.worker.rebuild_spec

Saved faults (functions and values, by pickle), configs of runs (`env: module:function`)
and users' own imports name modules and outlive a release. One finder serves all of
them, in the caller and in workers. It comes first in `sys.meta_path`, since Python
would find folders of an older checkout, with only bytecode in them, as packages.

An old name is a module of its own with the attributes of the new one.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Sequence
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

# Old packages and where their modules are now, except those in MODULES.
ROOMS = {
    "adapters": "engine.adapters",
    "bench": "tools.bench",
    "doctor": "tools.doctor",
    "executors": "engine.executors",
    "faces": "api",
    "layout": "engine.layout",
    "mapping": "engine.parallel_map",
    "pool": "engine.pool",
    "recipes": "train.recipes",
    "reports": "train.reports",
    "run": "train.run",
    "sinks": "train.sinks",
    "supervision": "engine.faults",
    "testing": "tools.testing",
    "transport": "engine.transport",
    "workers": "engine.worker",
}

# Renamed modules that saved files or programs may name.
MODULES = {
    "adapters.flattened": "engine.adapters.flattened_agents",
    "adapters.from_aec": "engine.adapters.aec",
    "adapters.from_batched": "engine.adapters.batched",
    "adapters.from_gymnasium": "engine.adapters.single_agent",
    "adapters.from_parallel": "engine.adapters.parallel",
    "adapters.from_returns": "engine.adapters.parallel",
    "adapters.multi": "engine.adapters.pettingzoo",
    "adapters.named": "engine.adapters.env_names",
    "adapters.registered": "engine.adapters.env_names",
    "engine.adapters.gymnasium_registry": "engine.adapters.env_names",
    "engine.adapters.returned_agents": "engine.adapters.parallel",
    "engine.layout.entries": "engine.layout.readout",
    "faces.agilerl_env": "api.agilerl.env",
    "faces.gymnasium_dropins": "api.gymnasium.dropins",
    "faces.gymnasium_env": "api.gymnasium.env",
    "faces.gymnasium_make": "api.gymnasium.make",
    "faces.multi_env": "api.pettingzoo.env",
    "faces.multi_make": "api.pettingzoo.env",
    "faces.sb3_dropins": "api.sb3.dropins",
    "faces.sb3_env": "api.sb3.env",
    "faces.sb3_make": "api.sb3.make",
    "faces.sb3_masks": "api.sb3.action_masks",
    "faces.shared_make": "api.shared_policy.make",
    "learners.sb3_collector": "learners.sb3.collector",
    "learners.sb3_policy": "learners.sb3.policy",
    "learners.sb3_ppo": "learners.sb3.ppo",
    "recipes.bullet_pendulum": "zoo.bullet_pendulum",
    "recipes.grid_world_envs": "zoo.grid_world.training_env",
    "recipes.memory": "zoo.positions",
    "recipes.tinyphysics": "zoo.tinyphysics.recipe",
    "recipes.tinyphysics_tuned": "zoo.tinyphysics.recipe",
    "recipes.upkie": "zoo.upkie.recipe",
    "rollouts.episode": "rollouts.episodic",
    "run.revisit": "train.run.loaded_run",
    "run.tinyphysics": "zoo.tinyphysics",
    "run.tinyphysics.driving": "zoo.tinyphysics.evaluation",
    "supervision.saving": "engine.faults.fault_file",
    "workers.kit": "engine.worker.rebuild_spec",
    "workers.luggage": "engine.worker.serialization",
}

# Old packages whose names are public modules today.
PUBLIC = ("doctor", "testing")

# (old module, old name) -> the name now, where classes or functions were renamed.
NAMES = {
    ("adapters.from_returns", "returns_env"): "ReturnsAdapter",
    ("engine.adapters.returned_agents", "returns_env"): "ReturnsAdapter",
    ("run.revisit", "Revisit"): "LoadedRun",
    ("workers.kit", "Kit"): "RebuildSpec",
}


def current(name: str) -> str | None:
    """The present name of a module; None if the name is not an old one."""
    package, *old = name.split(".")
    if package != "corral" or ".".join(old) in PUBLIC:
        return None
    for count in range(len(old), 0, -1):
        known = ".".join(old[:count])
        new = MODULES.get(known) or ROOMS.get(known)
        if new is not None:
            return ".".join(["corral", new, *old[count:]])
    return None


class OldPaths:
    """Finds modules by their old names, and loads them.

    A finder and a loader by their methods: importing `importlib.abc` to say so would
    take longer than `import corral`.
    """

    def find_spec(
        self,
        fullname: str,
        path: Sequence[str] | None = None,
        target: ModuleType | None = None,
    ) -> ModuleSpec | None:
        if current(fullname) is None:
            return None
        # As a package without a folder: what is below it comes here as well.
        return ModuleSpec(fullname, self, is_package=True)  # type: ignore[arg-type]

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        return None

    def exec_module(self, module: ModuleType) -> None:
        old = module.__name__.removeprefix("corral.")
        new = current(module.__name__)
        assert new is not None
        home = importlib.import_module(new)

        def attribute(name: str) -> Any:
            return getattr(home, NAMES.get((old, name), name))

        module.__doc__ = home.__doc__
        module.__dict__["__getattr__"] = attribute
        module.__dict__["__dir__"] = lambda: dir(home)


def install() -> None:
    """Install the finder, before all others; once per process."""
    if not any(isinstance(finder, OldPaths) for finder in sys.meta_path):
        sys.meta_path.insert(0, OldPaths())
