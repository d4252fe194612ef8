"""Recipes: an env, a learner and a config that work together, by name.

Most are only defaults, in a YAML file each. A recipe with code is also a module with

    Config       its own settings, a subclass of `config.RunConfig`
    build        config -> Parts: the pool, the learner, the collector

Systems with an env of their own are registered in `corral.zoo`. Naming recipes imports
none of them: `corral list` needs no torch.
"""

from __future__ import annotations

import importlib
import os
from pathlib import Path

_systems = importlib.import_module("corral.zoo")

_summaries = {
    "ant": "Ant-v5, a four-legged robot in MuJoCo: 300,000 steps",
    "cartpole": "CartPole-v1, the first one to try: solved in 100,000 steps",
    "pendulum": "Pendulum-v1, continuous actions: 100,000 steps",
    **_systems.RECIPES,
}
# Name -> summary for `corral list`.
RECIPES: dict[str, str] = dict(sorted(_summaries.items()))
# Ids of envs that no package registers -> what makes them.
ENVS: dict[str, str] = _systems.ENVS
# Name -> module, for recipes with code.
MODULES: dict[str, str] = _systems.MODULES
# Name -> extras that its env and learner need beside `train`.
EXTRAS: dict[str, tuple[str, ...]] = {"ant": ("mujoco",), **_systems.EXTRAS}


def defaults_file(name: str) -> Path:
    """Return the YAML file with a recipe's settings."""
    if name in _systems.FILES:
        return Path(os.path.dirname(str(_systems.__file__)), _systems.FILES[name])
    return Path(__file__).with_name(f"{name}.yaml")
