"""Runs: training from its config to its report, and its files on disk.

training          the loop: collect, learn, log, evaluate, save
evaluation        exactly N episodes now and then; which checkpoint is best
episode_video     one episode as a GIF, recorded while training continues
checkpoint        everything a run needs to continue as if it had not stopped
directory         a run's files, its lock and state; the register of all runs
time_split        where the time went
report            the page about it
"""
