"""Runs: training from its config to its report, and what is kept of it on disk.

training          the loop: collect, learn, log, evaluate, save
evaluation        exactly N episodes now and then; which checkpoint is best
episode_video     one episode as a GIF; background_video: made while training goes on
checkpoint        everything a run needs to go on as if nothing had happened
directory         where a run's files are
run_register      where the runs are; run_state: whether they run, ended or failed
time_split        where the time went
report            the page about it
"""
