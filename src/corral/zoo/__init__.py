"""Example systems, one folder each: env, recipe, evaluation, page.

RECIPES, FILES, MODULES and EXTRAS register their recipes, as in
`corral.train.recipes`.

EVALUATIONS lists the systems that have their own `corral eval NAME`, and the module of
each. It has

    EXAMPLES                          for `corral eval --help`
    add_arguments(parser)             the options of this system
    need(arguments) -> Need           the optional packages that it imports
    run(arguments) -> status          evaluate, print, write
    refuse(arguments)                 raise if another evaluation got its options
"""

# Ids of pomdp-baselines -> what makes these envs here.
ENVS = {
    "AntDir-v0": "corral.zoo.meta.ant_dir:make",
    "HalfCheetahVel-v0": "corral.zoo.meta.cheetah_vel:make",
    "Pendulum-V-v0": "corral.zoo.meta.pendulum_v:make",
    "PointRobotSparse-v0": "corral.zoo.meta.point_robot:make",
}
# Name -> summary for `corral list`.
RECIPES = {
    "ant_dir": "an ant in MuJoCo finds out in which direction to walk: trials, SAC",
    "ant_dir_rl2": "the same ant with recurrent PPO, which learns it much sooner",
    "box_jump": "boxes jump onto each other to build a tower, with TAAC",
    "bullet_pendulum": "a wheeled pendulum in PyBullet, with SB3's PPO",
    "cheetah_vel": "a cheetah in MuJoCo finds out how fast to run: trials, SAC",
    "grid_world": "agents on the ground and in the air watch a target, with SB3's PPO",
    "memory": "CartPole-v1 without velocities: a recurrent policy has to remember",
    "pendulum_v": "Pendulum-v1 of which only the velocity is seen: TD3 with a memory",
    "point_robot": "a point looks for a hidden goal in trials of two episodes: SAC",
    "point_robot_rl2": "the same point with recurrent PPO: it remembers the goal",
    "tinyphysics": "steer a simulated car by turns of its wheel, better than _steer",
    "tinyphysics_steer": "the same car: 56 inputs, and the action is the steer itself",
    "tinyphysics_tuned": "tinyphysics with settings that go much further: the best",
    "upkie": "the Upkie robot balances in PyBullet, with SB3's PPO",
}
# Name -> the file with its settings, in this folder.
FILES = {
    **{name: f"{name}/recipe.yaml" for name in RECIPES},
    "memory": "positions/recipe.yaml",
    **{
        name: f"meta/{name}.yaml"
        for name in (
            "ant_dir",
            "ant_dir_rl2",
            "cheetah_vel",
            "pendulum_v",
            "point_robot",
            "point_robot_rl2",
        )
    },
    "tinyphysics_steer": "tinyphysics/steer_recipe.yaml",
    "tinyphysics_tuned": "tinyphysics/tuned_recipe.yaml",
}
# Name -> its module, for recipes with code.
MODULES = {
    "box_jump": "corral.zoo.box_jump.recipe",
    "tinyphysics": "corral.zoo.tinyphysics.recipe",
    "tinyphysics_steer": "corral.zoo.tinyphysics.recipe",
    "tinyphysics_tuned": "corral.zoo.tinyphysics.recipe",
    "upkie": "corral.zoo.upkie.recipe",
}
# Name -> the extras that its env and learner need beside `train`.
EXTRAS = {
    "ant_dir": ("mujoco",),
    "ant_dir_rl2": ("mujoco",),
    "box_jump": ("box_jump",),
    "bullet_pendulum": ("bullet",),
    "cheetah_vel": ("mujoco",),
    "grid_world": ("multi", "sb3"),
    "tinyphysics": ("tinyphysics",),
    "tinyphysics_steer": ("tinyphysics",),
    "tinyphysics_tuned": ("tinyphysics",),
    "upkie": ("upkie",),
}
# Name -> the module of its evaluation.
EVALUATIONS = {"tinyphysics": "corral.zoo.tinyphysics.eval_command"}
# `corral export --controller`: the module whose `export_controller` writes it.
CONTROLLERS = "corral.zoo.tinyphysics.controller_export"
