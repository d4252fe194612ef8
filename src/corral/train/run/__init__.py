"""Runs: training from its config to its report, and what is kept of it on disk.

training    the loop: collect, learn, log, evaluate, save
evaluation  exactly N episodes now and then; which checkpoint is best
film        one episode as a moving picture; camera: made while training goes on
checkpoint  everything a run needs to go on as if nothing had happened
directory   where a run's files are; register: where the runs are; states: how they are
accounts    where the time went
report      the page about it
"""
