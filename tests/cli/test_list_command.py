"""`corral list` finds every run, wherever it is and whatever has become of it."""

import json
import os
import sys

import pytest

from corral.cli.main import main
from corral.train.run import directory as run_files
from corral.train.run.directory import RunDirectory


@pytest.fixture(autouse=True)
def nothing_registered(tmp_path, monkeypatch):
    monkeypatch.setenv(run_files.RUNS_FILE_VARIABLE, str(tmp_path / "state" / "runs"))


@pytest.fixture
def listed(here, capsys):
    """Type `corral list ...`; returns the runs' rows, as lists of words."""

    def run(*arguments):
        assert main(["list", *arguments]) == 0
        out, err = capsys.readouterr()
        sys.stderr.write(err)
        out = out.partition("\n\n")[2]
        return {line.split()[0]: line.split()[1:] for line in out.splitlines() if line}

    return run


def put(path, metrics=(), episodes=(), **about):
    """A run's directory, as far as `corral list` looks at it."""
    path.mkdir(parents=True)
    (path / "config.yaml").write_text("env: CartPole-v1\n")
    (path / "about.json").write_text(json.dumps(about))
    for name, rows in (("metrics", metrics), ("episodes", episodes)):
        lines = "".join(json.dumps(line) + "\n" for line in rows)
        (path / f"{name}.jsonl").write_text(lines)
    return RunDirectory(path)


def test_runs_are_found_at_any_depth(here, listed):
    names = ["top", "name/time", "team/name/time", "a/b/c/d/e", "a/b/c/d/e/inner"]
    for name in names:
        put(here / "runs" / name)
    (here / "runs" / "no-run").mkdir()
    assert {f"runs/{name}" for name in names} == {
        path for path in listed() if path.startswith("runs/")
    }


def test_links_are_followed_and_no_run_is_listed_twice(here, listed):
    put(here / "disk" / "robot" / "time")
    put(here / "runs" / "z" / "time")
    os.symlink(here / "disk", here / "runs" / "disk")
    os.symlink(here / "runs" / "z" / "time", here / "runs" / "latest")
    os.symlink(here / "runs", here / "runs" / "z" / "loop")
    os.symlink("itself", here / "runs" / "itself")
    found = [path for path in listed() if path.startswith("runs/")]
    assert found == ["runs/disk/robot/time", "runs/z/time"]


def test_runs_elsewhere_are_found_by_the_register(here, listed, tmp_path):
    away = put(tmp_path / "elsewhere" / "mine", state="done")
    gone = RunDirectory(tmp_path / "deleted")
    inside = put(here / "runs" / "a" / "time", state="done")
    for directory in (away, gone, inside, away):
        run_files.register(directory)
    found = listed()
    assert found[str(away.path)] == ["done", "0"]
    assert found["runs/a/time"] == ["done", "0"]
    assert str(gone.path) not in found and str(inside.path) not in found
    assert run_files.register_path().read_text().count("elsewhere/mine") == 1
    assert str(away.path) not in listed("--runs", "runs")
    assert listed("--runs", str(away.path.parent))[str(away.path)] == ["done", "0"]


def test_a_row_says_how_far_it_came_and_how_good_it_is(here, listed):
    evaluated = {"step": 64, "eval/return": 9.0}
    trained = [{"step": 32, "episode/return": 31.416}, evaluated]
    put(here / "runs/done", trained, state="done", final=0.97, final_std=0.03, best=1.0)
    put(here / "runs/cut", trained, state="interrupted", best=9.0, total_steps=96)
    put(here / "runs/new", state="failed", total_steps=96)
    put(here / "runs/odd", trained, state="failed", final="good", best=[1])
    with open("runs/odd/metrics.jsonl", "a") as file:  # as a kill leaves it
        file.write('{"step": 96, "episode/re')
    found = listed()
    assert found["runs/done"] == ["done", "64", "0.97", "±", "0.03"]
    assert found["runs/cut"] == ["interrupted", "64/96", "9", "(best", "evaluation)"]
    assert found["runs/new"] == ["failed", "0/96"]
    assert found["runs/odd"] == ["failed", "64", "31.42", "(while", "training)"]


def test_a_return_has_no_more_digits_than_its_spread_allows(here, listed):
    put(here / "runs/best", state="interrupted", best=351.94, best_std=101.4)
    about = {"best": 0.97, "best_std": None, "best_metric": "eval/success_rate"}
    put(here / "runs/other", state="interrupted", **about)
    rows = [{"step": 32, "return": value} for value in (20.0, 31.0, 43.2)]
    mean = [{"step": 32, "episode/return": 31.4}]
    put(here / "runs/begun", mean, rows, state="failed")
    found = listed()
    assert found["runs/best"][2:] == ["352", "±", "101", "(best", "evaluation)"]
    assert found["runs/other"][2:] == ["0.97", "(best", "eval/success_rate)"]
    assert found["runs/begun"][2:] == ["31.4", "±", "9.5", "(while", "training)"]


def test_files_that_are_damaged_or_absent_hide_no_run(here, listed):
    put(here / "runs/a").about.write_text("{")
    bare = put(here / "runs/b")
    bare.about.unlink()
    bare.metrics.unlink()
    run_files.register_path().parent.mkdir()
    run_files.register_path().write_text('\n{"a": 1}\nno path\n')
    assert listed()["runs/a"][0] == "damaged"
    assert listed()["runs/b"] == ["killed", "0"]


def test_a_register_that_cannot_be_read_is_told(here, listed, capsys):
    put(here / "runs/a", state="done")
    run_files.register_path().mkdir(parents=True)
    assert listed()["runs/a"] == ["done", "0"]
    assert "cannot be read (Is a directory)" in capsys.readouterr().err


def test_where_there_is_none_it_says_so(here, capsys):
    assert main(["list"]) == 0
    assert "No runs in runs." in capsys.readouterr().out
