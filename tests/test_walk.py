"""A step takes few Python calls in the caller; ARCHITECTURE.md draws all of them."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import corral
from corral.engine.worker.compiled import COMPILED

pytestmark = pytest.mark.skipif(not COMPILED, reason="Python twins make more calls")
ROOT = Path(corral.__file__).parent
PAGE = Path(__file__).parents[1] / "ARCHITECTURE.md"
WARM_UP = 60
"""Turns: first appearances, growth, caches."""
TURNS = 20
ACTIONS = np.zeros((8, 1), np.float32)
Call = tuple[str, str]


def shortest_walk(turn: Callable[[], Any]) -> list[Call]:
    """Names and files of our calls in the turn that took the fewest of them.

    Others had to wait for their workers, and looked after them meanwhile.
    """
    for _ in range(WARM_UP):
        turn()
    return min((walk(turn) for _ in range(TURNS)), key=len)


def walk(turn: Callable[[], Any]) -> list[Call]:
    calls: list[Call] = []

    def watch(frame: Any, event: str, _: Any) -> None:
        code = frame.f_code
        path = Path(code.co_filename)
        if event == "call" and ROOT in path.parents and code.co_name[0] != "<":
            calls.append((code.co_name, str(path.relative_to(ROOT).with_suffix(""))))

    before = sys.getprofile()
    sys.setprofile(watch)
    try:
        turn()
    finally:
        sys.setprofile(before)
    return calls


def size(calls: list[Call]) -> tuple[int, int]:
    return len(calls), len({file for _, file in calls})


@pytest.fixture(autouse=True)
def torch_is_not_loaded(monkeypatch):
    """Its idle threads are ended before a batch, which is another call."""
    monkeypatch.delitem(sys.modules, "torch._C", raising=False)


@pytest.fixture
def pool():
    with corral.Pool("Pendulum-v1", 8, backend="process", workers=2) as pool:
        yield pool


def test_a_step_makes_the_calls_that_are_drawn():
    with corral.make("Pendulum-v1", 8, backend="process", workers=2) as envs:
        envs.reset(seed=0)
        calls = shortest_walk(lambda: envs.step(ACTIONS))
    text = PAGE.read_text().partition("## One step's calls")[2].partition("\n## ")[0]
    told, drawing = re.search(r"`envs.step\(actions\)` .*?: (.*?)\.", text), []
    for line in text.split("```")[1].strip().splitlines():
        drawing.append(re.match(r"[│├└─ ]*([\w.]+)", line)[1].rpartition(".")[2])
    assert [name for name, _ in calls] == drawing
    assert told[1] == "{} in {} files".format(*size(calls)) == "20 in 8 files"


def test_a_first_ready_turn_is_short(pool):
    pool.send_reset()
    pool.recv()
    pool.send(ACTIONS)

    def turn():
        step = pool.recv(min_slots=4)
        pool.send(ACTIONS[step.slots], slots=step.slots)

    calls, files = size(shortest_walk(turn))
    assert calls <= 35 and files <= 9


class Zero:
    def act(self, step, carry, rng):
        return corral.Decision(ACTIONS, extras={"value": np.zeros(len(step))})

    def value(self, obs, carry=None):
        return np.zeros(len(obs))


def test_a_row_of_a_rollout_is_collected_in_few_calls(pool):
    collector = corral.Collector(pool, Zero())
    calls, files = size(shortest_walk(lambda: collector.collect(1)))
    assert calls <= 60 and files <= 14
