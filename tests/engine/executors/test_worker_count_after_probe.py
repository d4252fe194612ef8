"""`auto` goes on with fewer or more processes than it launched for the probe."""

from __future__ import annotations

import os

import pytest
from running import children
from telling_env import Teller

import corral
from corral.engine.executors.assign import Placement

SLOTS = 4


@pytest.mark.parametrize("workers", [1, 2, 3, 4])
def test_every_slot_is_heard_whatever_was_launched(workers, monkeypatch):
    placement = Placement("process", workers, SLOTS, "told to")
    monkeypatch.setattr(
        "corral.engine.executors.placement.choose", lambda *_: placement
    )
    monkeypatch.setattr("corral.engine.pool.options.usable_cores", lambda: 2)
    with corral.Pool(Teller, SLOTS) as pool:
        assert (pool.layout.workers, pool.layout.reason) == (workers, "told to")
        assert len(children()) == workers
        pool.reset()
        for number in range(1, 4):
            step = pool.step([0] * SLOTS)
            assert step.obs.ravel().tolist() == [number] * SLOTS
            told = {step.infos.of(slot)["where"] for slot in range(SLOTS)}
            assert len(told) == workers
        assert len(pool.get_attr("steps")) == SLOTS
    assert not children()


def test_what_late_workers_print_is_passed_on(monkeypatch, capfd):
    class Talker(Teller):
        def __init__(self):
            print(f"built in {os.getpid()}", flush=True)

    placement = Placement("process", SLOTS, SLOTS, "told to")
    monkeypatch.setattr(
        "corral.engine.executors.placement.choose", lambda *_: placement
    )
    monkeypatch.setattr("corral.engine.pool.options.usable_cores", lambda: 2)
    with corral.Pool(Talker, SLOTS) as pool:
        pids = {child.pid for child in children()}
        pool.reset()
    printed = capfd.readouterr().out
    assert len(pids) == SLOTS
    assert all(f"built in {pid}" in printed for pid in pids)
