"""Restarts of a run's pools are reported once each, and counted by update."""

from types import SimpleNamespace

from corral.errors import Fault
from corral.train.run.restarts import Restarts


class WatchedPool:
    """Has had a restart before it is watched."""

    def __init__(self) -> None:
        self.faults = [Fault("raised", "step", slot=0)]

    def call_on_restart(self, hook) -> None:
        self.restarted = hook


def test_restarts_before_and_after_are_reported_with_their_number_and_step():
    reported = []
    outputs = SimpleNamespace(write_fault=lambda *told: reported.append(told))
    progress, pool = SimpleNamespace(steps=32), WatchedPool()
    restarts = Restarts(outputs, progress)
    restarts.watch(pool)
    progress.steps = 64
    died = Fault("died", "step", worker=1)
    pool.restarted(died)
    assert reported == [(pool.faults[0], 1, 32), (died, 2, 64)]
    assert (restarts.count, restarts.lost_processes) == (2, 1)


def test_every_restart_is_new_once():
    silent = SimpleNamespace(write_fault=lambda *_: None)
    restarts = Restarts(silent, SimpleNamespace(steps=0))
    pool = WatchedPool()
    restarts.watch(pool)
    assert [restarts.take_new(), restarts.take_new()] == [1, 0]
    pool.restarted(Fault("hung", "reset"))
    assert restarts.take_new() == 1 and restarts.count == 2
