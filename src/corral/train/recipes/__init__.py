"""Recipes: an env, a learner and a config that work together, one file each.

A recipe is a module with

    SUMMARY      its line in `corral list`
    Config       its settings, as defaults of `config.Config`
    build        config -> Parts: the pool, the learner, the collector

Naming them imports nothing: `corral list` needs no torch.
"""

from __future__ import annotations

RECIPES = {
    "ant": "Ant-v5, a four-legged robot in MuJoCo: 300,000 steps",
    "bullet_pendulum": "a wheeled pendulum in PyBullet, with SB3's PPO",
    "cartpole": "CartPole-v1, the first one to try: solved in 100,000 steps",
    "grid_world": "agents on the ground and in the air watch a target, with SB3's PPO",
    "memory": "CartPole-v1 without velocities: a recurrent policy has to remember",
    "pendulum": "Pendulum-v1, continuous actions: 100,000 steps",
    "tinyphysics": "steer a simulated car: a PID controller cloned, then improved",
    "tinyphysics_tuned": "the same with settings that go much further",
    "upkie": "the Upkie robot balances in PyBullet, with SB3's PPO",
}
"""Name -> what it is."""
MODULES = {
    "ant": "corral.train.recipes.ant",
    "bullet_pendulum": "corral.zoo.bullet_pendulum.recipe",
    "cartpole": "corral.train.recipes.cartpole",
    "grid_world": "corral.zoo.grid_world.recipe",
    "memory": "corral.zoo.positions.recipe",
    "pendulum": "corral.train.recipes.pendulum",
    "tinyphysics": "corral.zoo.tinyphysics.recipe",
    "tinyphysics_tuned": "corral.zoo.tinyphysics.tuned_recipe",
    "upkie": "corral.zoo.upkie.recipe",
}
"""Name -> the module that is the recipe."""
EXTRAS: dict[str, tuple[str, ...]] = {
    "ant": ("mujoco",),
    "bullet_pendulum": ("bullet",),
    "grid_world": ("multi", "sb3"),
    "tinyphysics": ("tinyphysics",),
    "tinyphysics_tuned": ("tinyphysics",),
    "upkie": ("upkie",),
}
"""Name -> the extras that its env and learner need beside `train`."""
