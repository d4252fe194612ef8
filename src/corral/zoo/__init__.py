"""Example systems, one folder each: env, recipe, evaluation, page.

RECIPES, MODULES and EXTRAS register their recipes, as in `corral.train.recipes`.

EVALUATIONS names the systems that `corral eval NAME` evaluates in a way of their own,
and the module that does it. It has

    EXAMPLES                          for `corral eval --help`
    add_arguments(parser)             the options that go with this system alone
    need(arguments) -> Need           the optional packages that it imports
    run(arguments) -> status          evaluate, print, write
    refuse(arguments)                 its options were given to another evaluation
"""

RECIPES = {
    "bullet_pendulum": "a wheeled pendulum in PyBullet, with SB3's PPO",
    "grid_world": "agents on the ground and in the air watch a target, with SB3's PPO",
    "memory": "CartPole-v1 without velocities: a recurrent policy has to remember",
    "tinyphysics": "steer a simulated car: a PID controller cloned, then improved",
    "tinyphysics_tuned": "the same with settings that go much further",
    "upkie": "the Upkie robot balances in PyBullet, with SB3's PPO",
}
"""Name -> what it is."""
MODULES = {
    "bullet_pendulum": "corral.zoo.bullet_pendulum.recipe",
    "grid_world": "corral.zoo.grid_world.recipe",
    "memory": "corral.zoo.positions.recipe",
    "tinyphysics": "corral.zoo.tinyphysics.recipe",
    "tinyphysics_tuned": "corral.zoo.tinyphysics.tuned_recipe",
    "upkie": "corral.zoo.upkie.recipe",
}
"""Name -> the module that is the recipe."""
EXTRAS = {
    "bullet_pendulum": ("bullet",),
    "grid_world": ("multi", "sb3"),
    "tinyphysics": ("tinyphysics",),
    "tinyphysics_tuned": ("tinyphysics",),
    "upkie": ("upkie",),
}
"""Name -> the extras that its env and learner need beside `train`."""
EVALUATIONS = {"tinyphysics": "corral.zoo.tinyphysics.eval_command"}
"""Name -> the module that evaluates the system in its own way."""
