"""Task families for meta-RL: one env, and a table of tasks to train and test on.

ant_dir         a MuJoCo ant walks in a direction                  task: an angle
cheetah_vel     a MuJoCo cheetah runs at a speed                   task: a speed
point_robot     a point looks for a goal on a half circle          task: (x, y)
pendulum_v      a pendulum of which only the velocity is seen      no tasks
"""
