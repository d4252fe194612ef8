"""Recipes: an env, a learner and a config that work together, one file each.

A recipe is a module with

    SUMMARY      its line in `corral list`
    Config       its settings, as defaults of `config.Config`
    build        config -> Parts: the pool, the learner, the collector

Those with an env of their own are listed in `corral.zoo`. Naming recipes imports none
of them: `corral list` needs no torch.
"""

from __future__ import annotations

import importlib

_systems = importlib.import_module("corral.zoo")

RECIPES: dict[str, str] = {
    "ant": "Ant-v5, a four-legged robot in MuJoCo: 300,000 steps",
    "cartpole": "CartPole-v1, the first one to try: solved in 100,000 steps",
    "pendulum": "Pendulum-v1, continuous actions: 100,000 steps",
    **_systems.RECIPES,
}
"""Name -> what it is."""
RECIPES = {name: RECIPES[name] for name in sorted(RECIPES)}
MODULES: dict[str, str] = {
    "ant": "corral.train.recipes.ant",
    "cartpole": "corral.train.recipes.cartpole",
    "pendulum": "corral.train.recipes.pendulum",
    **_systems.MODULES,
}
"""Name -> the module that is the recipe."""
EXTRAS: dict[str, tuple[str, ...]] = {"ant": ("mujoco",), **_systems.EXTRAS}
"""Name -> the extras that its env and learner need beside `train`."""
