"""What a snapshot of shared state sees, and what it says it did not see."""

import bz2
import logging
import re
import sys
import threading
import weakref
from pathlib import Path

import holding_envs
import pytest
from holding_envs import CHANGES, Holding, Other, Turned

from corral.engine.worker import state_reader
from corral.engine.worker.shared_state import first_change, snapshot
from corral.engine.worker.state_reader import StateReader

TESTS = str(Path(__file__).parents[2])
OTHERS = ("conformance", "corral.tools", "corral.zoo")


@pytest.fixture(autouse=True)
def time_enough(monkeypatch):
    """On a busy machine, too."""
    monkeypatch.setattr(state_reader, "MAX_READ_SECONDS", 60.0)


@pytest.fixture(scope="module", autouse=True)
def alone():
    """Without what other tests have imported, and would be read as the user's own."""
    with pytest.MonkeyPatch.context() as patch:
        for name, module in list(sys.modules.items()):
            path = str(getattr(module, "__file__", None))
            other = path.startswith(TESTS) or name.startswith(OTHERS)
            if other and name not in (__name__, holding_envs.__name__):
                patch.delitem(sys.modules, name)
        yield


@pytest.fixture(scope="module", autouse=True)
def filled():
    """As after the first episodes of an env that ran alone."""
    holding_envs.cached()
    holding_envs.bounded()
    next(holding_envs.YIELDING)


def look():
    return snapshot([Holding()], [Holding])


@pytest.mark.parametrize("holder", CHANGES)
def test_what_changes_is_seen_wherever_it_is_held(holder):
    before = look()
    assert not first_change(before, look())
    CHANGES[holder]()
    assert first_change(before, look())


def test_an_env_that_changes_its_own_class_changes_nothing_that_others_have():
    env = Holding()
    before = snapshot([env], [Holding])
    env.__class__ = Turned
    assert not first_change(before, snapshot([env], [Holding], before))
    Turned.count += 1
    assert "Turned" in first_change(before, snapshot([env], [Holding], before))


def test_a_class_that_came_to_be_meanwhile_is_seen():
    env = Holding()
    before = snapshot([env], [Holding])
    env.__class__ = type("Local", (Holding,), {"count": 0, "__module__": "elsewhere"})
    assert first_change(before, snapshot([env], [Holding], before))


def test_a_cache_that_fills_is_no_change():
    holding_envs.pure(1)
    before = look()
    holding_envs.pure(2)
    assert not first_change(before, look())
    holding_envs.pure(1).append(0)
    assert "pure" in first_change(before, look())


def read(value):
    reader = StateReader(lambda module: module == "holding_envs")
    marks = reader.read("it", value)
    return marks, reader.unread


@pytest.mark.parametrize(
    "value",
    [
        logging.getLogger("any"),
        threading.Lock(),
        threading.RLock(),
        re.compile("a"),
        weakref.ref(Other),
        threading,
        object(),
        Other,
        Other(),
        holding_envs.SPACE,
        holding_envs.CYCLE,
        list[int],
        int | str,
        len,
    ],
)
def test_what_is_read_whole_leaves_nothing_open(value):
    assert read([value]) == (read([value])[0], "")


def test_a_generator_object_is_never_read_whole():
    assert "type generator" in read({"x": holding_envs.YIELDING})[1]


def test_an_object_of_c_that_shows_nothing_is_named():
    assert "type BZ2Compressor" in read([bz2.BZ2Compressor()])[1]


def test_an_object_that_raises_when_it_is_read_is_named():
    class Raises(dict):
        def items(self):
            raise RuntimeError("not now")

    assert "RuntimeError('not now')" in read([Raises()])[1]


@pytest.mark.parametrize(
    ("bound", "most"),
    [("MAX_OBJECTS", 100), ("MAX_BYTES", 100), ("MAX_READ_SECONDS", 0)],
)
def test_what_is_too_much_is_named(bound, most, monkeypatch):
    monkeypatch.setattr(state_reader, bound, most)
    many = [[Other()] for _ in range(1000)]
    assert "there is more in it than" in read([many, holding_envs.MANY])[1]


def test_deep_and_circular_values_are_read():
    chain = circle = []
    for _ in range(5000):
        chain = [chain]
    circle.append(chain)
    before = read(chain)
    assert not before[1]
    circle.append(1)
    assert read(chain) != before
