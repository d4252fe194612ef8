"""Envs share a process only where that is known to be safe, whatever was asked for."""

import contextlib
import functools
import os

import gymnasium
import numpy as np
import pytest
from running import children
from tried_envs import (
    AgreesByChance,
    Declared,
    Endless,
    Forking,
    Marked,
    Pupil,
    SlowToRepeat,
    Stuck,
    TellsTime,
    Unseeded,
    UnseededLater,
)

import corral
from corral.engine.executors import isolation_cache
from corral.errors import IsolationError
from tests.stateful_envs import STATEFUL, ClassCounter, Plain, SeedsNumpy

SEEN = "envs share a process, since two of them in one process did the same as alone"


@pytest.fixture(autouse=True)
def nothing_known(tmp_path, monkeypatch):
    """As on the first day, on a machine with two cores."""
    monkeypatch.setenv("CORRAL_VERDICTS", str(tmp_path / "verdicts"))
    monkeypatch.setattr(isolation_cache, "_here", {})
    monkeypatch.setattr("corral.engine.pool.options.usable_cores", lambda: 2)


def layout_of(kind, slots=3, **options):
    with corral.Pool(kind, slots, **{"backend": "process", **options}) as pool:
        return pool.layout


# Seen ---------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", STATEFUL)
def test_envs_whose_state_is_their_process_s_get_one_each(kind):
    layout = layout_of(kind)
    assert layout.workers == 3
    assert layout.reason.startswith("one process per slot, since an env ")
    assert not layout.sharing


@pytest.mark.parametrize("kind", [Plain, TellsTime, UnseededLater, "Pendulum-v1"])
def test_envs_that_do_the_same_together_as_alone_share(kind):
    layout = layout_of(kind)
    assert (layout.workers, layout.sharing) == (2, SEEN)
    assert layout.extra_envs >= 3


def test_what_a_bare_reset_draws_by_chance_is_no_disturbance(tmp_path):
    layout = layout_of(functools.partial(AgreesByChance, str(tmp_path)), seed=None)
    assert (layout.workers, layout.sharing) == (2, SEEN)


def test_state_that_changes_in_a_trial_and_shows_later_gives_gymnasium_s_numbers():
    def played(envs):
        with contextlib.closing(envs):
            seen = [envs.reset(seed=0)[0]]
            seen += [envs.step(np.ones(2, int))[0] for _ in range(90)]
        return np.array(seen)

    theirs = played(gymnasium.vector.AsyncVectorEnv([Pupil] * 2))
    assert theirs[-1, 0, 1] == 1.0
    ours = corral.dropin.AsyncVectorEnv([Pupil] * 2, workers=1)
    assert "tried_envs.Curriculum changed" in ours.layout.reason
    np.testing.assert_array_equal(played(ours), theirs)


def test_envs_that_fork_are_never_placed_in_the_caller():
    layout = layout_of(Forking, 2, backend="auto")
    assert layout.backend == "process"
    assert "an env forked its process in a trial run" in layout.reason
    again = layout_of(Forking, 2, backend="auto")  # what was seen is remembered
    assert again.backend == "process"


def test_what_an_env_declares_is_believed_and_costs_nothing():
    layout = layout_of(Declared)
    assert (layout.workers, layout.extra_envs) == (2, 0)
    assert 'metadata["corral.isolation"] is "shared"' in layout.sharing


@pytest.mark.parametrize(
    ("kind", "why"),
    [
        (Unseeded, "an env does not do the same twice under equal seeds"),
        (Endless, "an env failed in a trial run (RuntimeError: reset before"),
        (Stuck, "it cannot be found out in 0.5 s"),
    ],
)
def test_what_is_not_known_is_not_shared(kind, why):
    layout = layout_of(kind)
    assert layout.workers == 3
    assert f"whether envs may share one is not known: {why}" in layout.reason


def test_envs_with_generators_of_their_own_may_share():
    assert layout_of(SeedsNumpy).workers == 3
    assert layout_of(SeedsNumpy, isolate_rng=True).workers == 2


@pytest.mark.parametrize(
    "asked", [{"step_timeout": 60.0}, {"on_fault": "restart"}, {"backend": "auto"}]
)
def test_the_rule_holds_however_processes_come_about(asked):
    assert layout_of(ClassCounter, **{"backend": "auto", **asked}).workers == 3


def test_who_asks_for_sharing_gets_it():
    layout = layout_of(ClassCounter, isolation="shared")
    assert (layout.workers, layout.extra_envs) == (2, 0)


# Asked for ----------------------------------------------------------------------------


def test_workers_that_envs_must_not_share_are_refused():
    with pytest.raises(
        IsolationError, match=r"workers=2: .*ClassCounter\.made"
    ) as told:
        layout_of(ClassCounter, workers=2)
    assert 'isolation="slot"' in str(told.value)
    assert 'isolation="shared"' in str(told.value)


def test_workers_are_shared_where_nothing_is_known_and_the_layout_says_so():
    layout = layout_of(Unseeded, workers=2)
    assert layout.workers == 2
    assert "whether envs disturb each other is not known" in layout.sharing


def test_as_many_workers_as_slots_ask_nothing():
    layout = layout_of(ClassCounter, workers=3)
    assert (layout.workers, layout.extra_envs) == (3, 0)


def test_threads_that_envs_must_not_share_are_refused():
    with pytest.raises(IsolationError, match='each env a process: backend="process"'):
        layout_of(ClassCounter, backend="thread")


def test_threads_run_where_nothing_is_known_and_the_layout_says_so():
    assert "not known" in layout_of(Unseeded, backend="thread").sharing
    lock = __import__("threading").Lock()  # which cannot be sent anywhere

    def unsendable():
        assert lock is not None
        return Plain()

    layout = layout_of(unsendable, backend="thread")
    assert "the factory cannot be sent to a worker process" in layout.sharing


def test_an_answer_that_comes_too_late_is_not_taken_for_the_next_one(tmp_path):
    marks = tmp_path / "marks"
    marks.mkdir()
    slow = functools.partial(SlowToRepeat, marks)
    assert "not known" in layout_of(slow, backend="thread").sharing


# What it costs ------------------------------------------------------------------------


def test_extra_envs_are_counted(tmp_path):
    marks = tmp_path / "marks"
    marks.mkdir()
    layout = layout_of(functools.partial(Marked, marks), slots=4)
    assert layout.extra_envs == 3
    assert len(os.listdir(marks)) == 4 + layout.extra_envs


def test_factories_that_differ_in_numbers_are_one_kind(tmp_path):
    marks = tmp_path / "marks"
    marks.mkdir()
    ranks = [functools.partial(Marked, marks, rank=rank) for rank in range(6)]
    layout = layout_of(ranks, slots=None)
    assert (layout.workers, layout.extra_envs) == (2, 4)
    assert len(os.listdir(marks)) == 6 + 4


def test_envs_that_take_long_to_build_are_built_once(tmp_path):
    marks = tmp_path / "marks"
    marks.mkdir()
    layout = layout_of(functools.partial(Marked, marks, 0.3), slots=3)
    assert (layout.workers, layout.extra_envs) == (3, 0)
    assert "to build" in layout.reason
    assert len(os.listdir(marks)) == 3


def test_worker_init_is_called_once_in_each_worker(tmp_path):
    def mark():
        with open(tmp_path / str(os.getpid()), "a") as file:
            file.write("x")

    assert layout_of(Plain, slots=4, worker_init=mark).workers == 2
    files = [path for path in tmp_path.iterdir() if path.name.isdigit()]
    assert [path.read_text() for path in files] == ["x", "x"]


def test_no_process_of_a_trial_stays():
    with corral.Pool(ClassCounter, 3, backend="process") as pool:
        pool.reset(seed=0)
        assert [row[1] for row in pool.step([0, 0, 0]).obs] == [1.0, 1.0, 1.0]
    assert not children()


# Remembered ---------------------------------------------------------------------------


def test_what_was_seen_is_not_tried_again():
    assert layout_of(Plain).extra_envs == 3
    again = layout_of(Plain)
    assert (again.workers, again.extra_envs, again.sharing) == (2, 0, SEEN)


def test_what_was_seen_is_known_to_the_next_program(monkeypatch):
    layout_of(Plain)
    unsafe = layout_of(ClassCounter)
    monkeypatch.setattr(isolation_cache, "_here", {})  # another process
    assert layout_of(Plain).extra_envs == 0
    again = layout_of(ClassCounter)
    assert (again.extra_envs, again.reason) == (0, unsafe.reason)
