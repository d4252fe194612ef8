"""Task families for meta-RL: one env, and a table of tasks to train and test on.

    ant_dir         a MuJoCo ant walks in a direction                  task: an angle
    cheetah_vel     a MuJoCo cheetah runs at a speed                   task: a speed
    point_robot     a point looks for a goal on a half circle          task: (x, y)
    pendulum_v      a pendulum of which only the velocity is seen      no tasks

and the names that learners of pomdp-baselines use (`corral.meta`). They are imported at
first use: envs need no torch.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from corral.engine.lazy_names import lazy

if TYPE_CHECKING:
    from corral.rollouts.task_tables import TaskTable, task_table
    from corral.zoo.meta.collect_parallel import ParallelRollouts
    from corral.zoo.meta.making import make_env, make_parallel_env
    from corral.zoo.meta.parallel_env import ParallelEnvManager


__all__ = [
    "ParallelEnvManager",
    "ParallelRollouts",
    "TaskTable",
    "make_env",
    "make_parallel_env",
    "task_table",
]

__getattr__ = lazy(
    "corral.meta",
    {
        "corral.rollouts.task_tables": "TaskTable task_table",
        "corral.zoo.meta.collect_parallel": "ParallelRollouts",
        "corral.zoo.meta.making": "make_env make_parallel_env",
        "corral.zoo.meta.parallel_env": "ParallelEnvManager",
    },
)
