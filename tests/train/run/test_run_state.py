"""What has become of a run can be told from its directory, by anybody."""

import os
from pathlib import Path

import pytest
from small_runs import SMALL

from corral.train.run import directory as run_files
from corral.train.run.directory import is_held, state_of
from corral.train.run.start import begin, resume


@pytest.fixture
def registered(tmp_path, monkeypatch):
    """A register with nothing in it."""
    monkeypatch.setenv(run_files.RUNS_FILE_VARIABLE, str(tmp_path / "register"))


def test_a_run_is_running_until_its_program_has_ended():
    with begin("cartpole", SMALL, out=Path("run")) as training:
        directory = training.directory
        assert state_of(directory) == "running"
        training.checkpoint()
    assert state_of(directory) == "killed"  # it ended, and said nothing
    with resume(directory.path, {}) as training:
        assert state_of(directory) == "running"
        training.interrupt()
    assert state_of(directory) == "interrupted"


def test_looking_at_a_run_keeps_nobody_from_going_on_with_it(trained):
    """Two may look at the same time; a claim outlasts a look."""
    assert state_of(trained) == "done"
    assert is_held(trained) is False
    with resume(trained.path, {"total_steps": 999}):
        assert is_held(trained) is True


def test_a_run_is_found_from_another_directory(here, registered, tmp_path):
    with begin("cartpole", SMALL, out=Path("mine")) as training:
        pass
    os.chdir(tmp_path.parent)
    (found,) = run_files.registered_runs()
    assert found.path == (here / "mine").resolve()
    assert found.read_about()["total_steps"] == 192
    os.chdir(here)
    with begin("cartpole", SMALL) as training:
        path = training.directory.path
    assert [one.path for one in run_files.registered_runs()] == [
        found.path,
        path.resolve(),
    ]


def test_a_register_that_cannot_be_written_costs_no_run(here, monkeypatch, capsys):
    monkeypatch.setenv(run_files.RUNS_FILE_VARIABLE, str(here))
    with begin("cartpole", SMALL, out=Path("deep/run")):
        pass
    out = capsys.readouterr().out
    assert "Only `corral list --runs deep` finds this run: " in out
    assert "cannot be written (Is a directory)" in out
