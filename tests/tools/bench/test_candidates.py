"""Who takes part, by what was asked for."""

import pytest

from corral.engine.executors.placement import BACKENDS
from corral.engine.keywords import check_choice
from corral.errors import OptionError
from corral.tools.bench.candidates import (
    AUTO,
    PEERS,
    Peer,
    layouts,
    peers,
)


def titles(*arguments, **options):
    return [one.title for one in layouts(*arguments, **options)]


def test_layouts_that_make_sense():
    assert titles(8, 2) == [
        "Corral, serial",
        "Corral, 2 threads",
        "Corral, 2 processes",
        "Corral, auto",
    ]


def test_one_env_is_not_spread():
    assert titles(1, 16) == ["Corral, serial", "Corral, auto"]


def test_an_env_that_waits_gets_a_thread_for_each():
    assert "Corral, 64 threads" in titles(64, 2, waits=True)
    assert "Corral, 64 threads" not in titles(64, 2, waits=False)


def test_what_was_asked_for_and_nothing_else():
    assert titles(8, 2, ("process",), (1, 4), waits=True) == [
        "Corral, 1 process",
        "Corral, 4 processes",
    ]


def test_no_more_workers_than_envs_and_none_twice():
    assert titles(2, 2, ("thread",), (2, 4, 8)) == ["Corral, 2 threads"]


def test_auto_comes_last():
    assert layouts(4, 2, ("auto", "serial"))[-1] is AUTO


def test_peers_that_are_there_and_peers_that_are_not():
    there, missing = peers(("gymnasium",))
    assert (there, missing) == ([PEERS["gymnasium"]], [])


def test_a_peer_that_is_not_installed(monkeypatch):
    absent = Peer("x", "no_such_package_x", ())
    monkeypatch.setitem(PEERS, "x", absent)
    assert peers(("x", "gymnasium")) == ([PEERS["gymnasium"]], [absent])


def test_a_wrong_name_is_refused_with_a_near_one():
    with pytest.raises(OptionError, match="mean thread"):
        check_choice("--backend", "threads", BACKENDS)
    with pytest.raises(OptionError, match="mean sb3"):
        peers(("sb4",))
