"""Steps take few Python calls in the caller; ARCHITECTURE.md draws all of them."""

from __future__ import annotations

import math
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from running import wait_until

import corral
from corral.engine.pool import dispatch
from corral.engine.worker.compiled import COMPILED

pytestmark = pytest.mark.skipif(not COMPILED, reason="Python twins make more calls")
ROOT = Path(corral.__file__).parent
PAGE = Path(__file__).parents[1] / "ARCHITECTURE.md"
WARM_UP = 60
"""Turns: first appearances, growth, caches."""
TURNS = 20
ACTIONS = np.zeros((8, 1), np.float32)
Call = tuple[int, str, str]
"""How deep in other calls of ours, its name, its file."""


def shortest_walk(turn: Callable[[], Any]) -> list[Call]:
    """Our calls in the turn that took the fewest of them.

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
            file = str(path.relative_to(ROOT).with_suffix(""))
            calls.append((depth_of(frame.f_back), code.co_name, file))

    before = sys.getprofile()
    sys.setprofile(watch)
    try:
        turn()
    finally:
        sys.setprofile(before)
    return calls


def depth_of(frame: Any) -> int:
    depth = 0
    while frame is not None:
        depth += ROOT in Path(frame.f_code.co_filename).parents
        frame = frame.f_back
    return depth


def size(calls: list[Call]) -> str:
    return f"{len(calls)} calls in {len({file for *_, file in calls})} files"


@pytest.fixture(autouse=True)
def torch_is_not_loaded(monkeypatch):
    """Its idle threads are ended before a batch, which is another call."""
    monkeypatch.delitem(sys.modules, "torch._C", raising=False)


@pytest.fixture
def pool():
    with corral.Pool("Pendulum-v1", 8, backend="process", workers=2) as pool:
        yield pool


def drawn_after(sentence: str) -> tuple[str, list[str]]:
    """The size told in a sentence of the page, and the names in the drawing below."""
    text = PAGE.read_text().partition("## One step's calls")[2].partition("\n## ")[0]
    told = re.search(rf"{re.escape(sentence)}.*?: (\d+ calls in \d+ files)", text, re.S)
    assert told is not None, f"{PAGE.name} does not tell the size of {sentence}"
    drawing = text[told.end() :].split("```")[1].strip().splitlines()
    names = [re.match(r"[│├└─ ]*([\w.]+)", line)[1] for line in drawing]
    return told[1], [name.rpartition(".")[2] for name in names]


def without_calls_in(calls: list[Call], outer: set[str]) -> list[str]:
    """The names of calls, without what these of the pool's call in turn."""
    names, closed = [], None
    for depth, name, file in calls:
        if closed is None or depth <= closed:
            closed = depth if name in outer and file.endswith("/pool") else None
            names.append(name)
    return names


def test_a_step_makes_the_calls_that_are_drawn():
    with corral.make("Pendulum-v1", 8, backend="process", workers=2) as envs:
        envs.reset(seed=0)
        calls = shortest_walk(lambda: envs.step(ACTIONS))
    told, drawing = drawn_after("`envs.step(actions)`")
    assert [name for _, name, _ in calls] == drawing
    assert told == size(calls) == "20 calls in 8 files"


def test_a_first_ready_turn_makes_the_calls_that_are_drawn(pool, monkeypatch):
    monkeypatch.setattr(dispatch, "HEALTH_CHECK_INTERVAL", math.inf)
    halves = np.arange(4), np.arange(4, 8)
    pool.send_reset()
    pool.recv()
    for half in halves:
        pool.send(ACTIONS[half], half)

    def turn():
        step = pool.recv(min_slots=4, max_slots=4)
        pool.send(ACTIONS[step.slots], slots=step.slots)

    def turn_of_one_worker():
        wait_until(lambda: len(pool._state.ready()) == 8)
        return walk(turn)

    calls = min((turn_of_one_worker() for _ in range(WARM_UP)), key=len)
    told, drawing = drawn_after("`send(actions, slots)`")
    assert [name for _, name, _ in calls] == drawing
    assert told == size(calls) == "33 calls in 9 files"


class Zero:
    def act(self, step, carry, rng):
        actions, value = ACTIONS[: len(step)], np.zeros(len(step))
        return corral.Decision(actions, extras={"value": value})

    def value(self, obs, carry=None):
        return np.zeros(len(obs))


def test_a_row_of_a_rollout_is_collected_with_the_calls_that_are_drawn(pool):
    collector = corral.Collector(pool, Zero())
    calls = shortest_walk(lambda: collector.collect(1))
    told, drawing = drawn_after("`Collector.collect(1)`")
    assert without_calls_in(calls, {"send", "recv"}) == drawing
    assert told == size(calls) == "59 calls in 14 files"
