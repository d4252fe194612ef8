"""A saved fault says whether another env of its process is why it failed."""

from __future__ import annotations

import functools
import os
import pickle
import threading
import zipfile
from dataclasses import replace

import pytest
from neighbouring_envs import (
    AlwaysFails,
    BuiltFirst,
    Collecting,
    Crashing,
    LastReset,
    Leaves,
    Lonely,
    Moody,
    MoodyProcesses,
    MoodySteps,
    Rude,
    RudeLater,
    Stuck,
    Told,
    Unlucky,
    Walk,
)

import corral
from corral.engine.faults.fault_file import load
from corral.engine.worker.worker import Worker
from corral.errors import CorralError
from corral.tools.doctor import neighbours
from corral.tools.doctor.replay import replay

INTERFERES = 'They interfere with each other: isolation="slot" gives each slot'


@pytest.fixture
def path(tmp_path):
    return tmp_path / "fault.zip"


@pytest.fixture(autouse=True)
def nobody_has_walked_here(monkeypatch):
    """What other tests and replays in this process leave is not there for the next."""
    monkeypatch.setattr(Rude, "walked", set())
    monkeypatch.setattr(Worker, "has_built", False)


@pytest.fixture
def single_runs(monkeypatch):
    """One process alone and one beside, where it is not about chance."""
    monkeypatch.setattr(neighbours, "RUNS", 1)


def fail(path, kind, **options):
    """Step until it fails, or its second reset does, and save why."""
    asked = {"num_envs": 2, "isolation": "shared", "seed": 0, **options}
    asked = {"backend": "process", "workers": 1, **asked}
    with pytest.raises(CorralError) as caught, corral.Pool(kind, **asked) as pool:
        pool.reset()
        for _ in range(40):
            pool.step([1] * pool.num_envs)
        pool.reset()
    caught.value.fault.save(path)
    return caught.value.fault


def test_an_env_that_another_one_broke_is_told_so(path) -> None:
    fault = fail(path, Rude)
    assert (fault.command, fault.company) == ("step", 1)
    with replay(path) as replayed:
        assert replayed.reproduced is False
        assert replayed.neighbours.alone == 0
        assert replayed.neighbours.beside == {1 - fault.slot: 3}
        assert replayed.neighbours.interferes and replayed.interferes
        assert INTERFERES in str(replayed)


@pytest.mark.parametrize("kind", [Lonely, RudeLater])
def test_so_is_one_that_cannot_be_reset_beside_another(path, single_runs, kind) -> None:
    assert fail(path, kind).command == "reset"
    with replay(path) as replayed:
        assert replayed.reproduced is False and replayed.neighbours.interferes


def test_so_is_one_that_cannot_be_built_beside_another(path, single_runs) -> None:
    fail(path, BuiltFirst, num_envs=3)
    with replay(path) as replayed:
        assert replayed.command == "construct"
        assert replayed.neighbours.interferes
        assert replayed.neighbours.beside == {0: 1}
        # It was built once in each process.
        assert "It works alone in 1 of 1 processes" in str(replayed)


def test_so_is_one_that_crashes_beside_another(path, single_runs) -> None:
    fault = fail(path, Crashing, num_envs=3)
    assert (fault.signal_name, fault.company) == ("SIGABRT", 2)
    assert replay(path).neighbours.interferes


def test_so_is_one_that_the_env_after_it_broke(path, single_runs) -> None:
    envs = corral.make(LastReset, 3, backend="process", workers=1, isolation="shared")
    with envs, pytest.raises(RuntimeError) as caught:
        envs.reset(seed=0)
        for _ in range(3):
            envs.step([1, 1, 1])
    fault = caught.value.__cause__.fault
    fault.save(path)
    assert fault.slot == 1
    with replay(path) as replayed:
        assert replayed.neighbours.beside == {0: 0, 2: 1}
        assert "fails beside slot 2" in str(replayed)


def test_a_neighbour_that_cannot_be_pickled_is_not_saved(path) -> None:
    asked = {"backend": "serial", "seed": 0, "isolation": "shared"}
    with (
        corral.Pool(LastReset, 3, **asked) as pool,
        pytest.raises(CorralError) as caught,
    ):
        pool.reset(tasks=[threading.Lock(), "mine", "yours"])
        for _ in range(3):
            pool.step([1, 1, 1])
    fault = next(one for one in caught.value.faults if one.slot == 1)
    assert fault.episode.beside.kit.slot == 0
    fault.save(path)
    beside = load(path).episode.beside
    assert (beside.kit.slot, beside.task, beside.beside) == (2, "yours", None)


def test_the_neighbour_is_what_it_was(path, single_runs) -> None:
    # Only one that is told to leaves what the other one fails of.
    fail(path, [functools.partial(Leaves, True), functools.partial(Leaves, False)])
    with replay(path) as replayed:
        assert replayed.neighbours.interferes


def test_an_env_that_fails_alone_too_blames_no_other(path) -> None:
    fail(path, AlwaysFails)
    with replay(path) as replayed:
        assert replayed.reproduced and replayed.neighbours is None
        assert replayed.interferes is False
        assert "the other envs of its process are not the reason." in str(replayed)


@pytest.mark.parametrize("backend", ["serial", "thread"])
def test_the_program_that_ran_the_others_does_not_blame_the_env(path, backend) -> None:
    fail(path, Rude, backend=backend, workers=None)
    with replay(path) as replayed:
        assert replayed.reproduced and replayed.neighbours is None
        assert replayed.interferes is None
        assert "has run other envs too, so this does not show" in str(replayed)
        assert f"To find out, run: corral replay {path}" in str(replayed)
    with replay(path, backend="process") as replayed:
        assert replayed.interferes
        # As the error said.
        assert 'other: backend="process", isolation="slot" gives each' in str(replayed)


def test_a_program_that_ran_envs_in_another_pool_does_not_blame_it(path) -> None:
    fail(path, Rude)
    with corral.Pool(Rude, 2, backend="serial", isolation="shared") as pool:
        pool.reset()
        pool.step([1, 1])
    with replay(path) as replayed:
        assert replayed.reproduced and replayed.interferes is None
        assert "To find out, run: corral replay" in str(replayed)


def test_another_program_of_the_same_pid_has_not_run_the_others(
    path, monkeypatch
) -> None:
    fault = fail(path, AlwaysFails, backend="serial", workers=None)
    assert fault.pid == os.getpid()
    monkeypatch.setattr(Worker, "has_built", False)  # as there
    with replay(path) as replayed:
        assert replayed.interferes is False
        assert "are not the reason." in str(replayed)


def test_an_env_that_is_alone_in_the_program_is_to_blame(path) -> None:
    fail(path, AlwaysFails, backend="serial", workers=None, num_envs=1)
    with replay(path) as replayed:
        assert replayed.reproduced and replayed.interferes is False
        assert "other envs" not in str(replayed)


def test_what_took_too_long_is_not_taken_for_what_works(path, single_runs) -> None:
    mark = path.with_name("mark")
    fail(path, [Rude, functools.partial(Stuck, mark)])
    mark.touch()
    with replay(path, timeout=0.5) as replayed:
        assert replayed.neighbours.late == 1
        assert replayed.neighbours.interferes is None
        said = "1 of the 2 processes took too long; allow more with timeout="
        assert said in str(replayed)


def test_slots_have_the_numbers_of_their_cluster(path, single_runs) -> None:
    fault = fail(path, Rude)
    replace(fault, slot=4 + fault.slot, site=1, node="n1").save(path)
    assert set(replay(path).neighbours.beside) == {4 + 1 - fault.slot}


@pytest.mark.parametrize("kind", [Moody, MoodySteps])
def test_an_env_that_failed_once_blames_no_other(path, single_runs, kind) -> None:
    fail(path, functools.partial(kind, path.parent / "mark"))
    with replay(path) as replayed:
        assert replayed.neighbours.alone == 0
        assert set(replayed.neighbours.beside.values()) == {0}
        assert replayed.neighbours.interferes is None and replayed.interferes is None
        assert "did not fail again in any of 2 runs" in str(replayed)
        assert "may fail at random, or depend on time" in str(replayed)


def test_an_env_that_draws_unlucky_numbers_blames_no_other(path) -> None:
    fail(path, Unlucky, backend="serial", workers=None)
    with replay(path) as replayed:
        assert not replayed.neighbours.interferes


def test_an_env_that_fails_in_some_processes_blames_no_other(path) -> None:
    marks = path.parent / "marks"
    marks.mkdir()
    fail(path, functools.partial(MoodyProcesses, marks))
    with replay(path) as replayed:  # in this process it works
        assert replayed.reproduced is False
        assert not replayed.neighbours.interferes


@pytest.mark.parametrize("backend", ["serial", "thread"])
def test_what_a_class_took_along_is_not_held_against_it(path, backend) -> None:
    class Crowded(Walk):  # goes by value, and with it those who have walked
        walked = set()  # noqa: RUF012

        def step(self, action):
            self.walked.add(id(self))
            if self.at > 2.0 and len(self.walked) > 1:
                raise RuntimeError("stepSimulation failed.")
            return super().step(action)

    fail(path, Crowded, backend=backend, workers=None)
    with replay(path) as replayed:
        assert replayed.reproduced and replayed.neighbours is None
        assert replayed.interferes is None
        assert "Whether other envs are the reason is not known" in str(replayed)
        assert "Move the class to a module to find out." in str(replayed)
    checked = neighbours.check_neighbours(load(path), None, 60.0)
    assert checked.alone and checked.interferes is None
    assert "Move the class to a module to find out." in str(checked)


def test_nor_is_what_a_function_took_along(path) -> None:
    walked: list[int] = []

    def make():
        return Collecting(walked)

    fail(path, make, backend="serial", workers=None)
    with replay(path) as replayed:
        assert replayed.reproduced and replayed.interferes is None
        assert "Move the factory to a module to find out." in str(replayed)


def test_a_class_that_was_sent_to_processes_took_nothing_along(path) -> None:
    class Failing(AlwaysFails):
        pass

    class Crowded(Walk):
        made: list[int] = []  # noqa: RUF012

        def __init__(self):
            self.made.append(1)

        def step(self, action):
            if self.at > 2.0 and len(self.made) > 1:
                raise RuntimeError("stepSimulation failed.")
            return super().step(action)

    fail(path, Failing)
    with replay(path) as replayed:
        assert replayed.reproduced and replayed.interferes is False
        # It is saved as it is here, where the program may have built one.
        assert "unless the program that saved this had built such" in str(replayed)
    fail(path, Crowded)
    with replay(path) as replayed:
        assert not replayed.reproduced and replayed.interferes


def test_an_env_that_had_its_process_to_itself_is_run_alone(path) -> None:
    fault = fail(path, functools.partial(Moody, path.parent / "mark"), num_envs=1)
    assert fault.company == 0
    with replay(path) as replayed:
        assert replayed.reproduced is False and replayed.neighbours is None


def test_a_neighbour_that_was_not_saved_does_what_the_env_did(
    path, single_runs
) -> None:
    fault = fail(path, Rude)
    # As a file of an earlier version: without the newer fields.
    episode = replace(fault.episode, before=(), beside=None)
    replace(fault, episode=episode).save(path)
    assert replay(path, backend="process").neighbours.interferes


def test_one_file_holds_what_both_were_built_with_once(path) -> None:
    text = "x" * 100_000
    fault = fail(path, functools.partial(Told, text))
    assert fault.episode.beside.kit.slot == 1 - fault.slot
    with zipfile.ZipFile(path) as archive:
        saved = archive.read("fault.pickle")
    assert len(saved) < 1.5 * len(text)
    assert pickle.loads(saved).episode.beside.actions == fault.episode.beside.actions
