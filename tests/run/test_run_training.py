"""A run leaves what it promises; what goes wrong costs nothing that was saved."""

import json
import resource
from contextlib import contextmanager
from pathlib import Path

import pytest
import yaml
from small_runs import SMALL

from corral.errors import OptionError, TrainingDiverged, WriteFailed
from corral.run.checkpoint import Checkpoint
from corral.run.start import begin
from corral.sinks import jsonl


def test_a_run_leaves_everything_it_promises(train, capsys):
    directory = train(command=["corral", "train", "cartpole"])
    config = yaml.safe_load(directory.config.read_text())
    assert config["num_envs"] == 2 and config["ppo"]["n_steps"] == 16
    metrics = jsonl.read(directory.metrics)
    assert [line["step"] for line in metrics if "learn/kl" in line] == [
        32 * update for update in range(1, 7)
    ]
    assert [line["step"] for line in metrics if "eval/return" in line] == [96, 192]
    assert Checkpoint.load(directory.last).update == 6
    assert Checkpoint.load(directory.best).update in (3, 6)
    assert list(directory.tensorboard.iterdir())
    about = directory.told()
    assert about["state"] == "done"
    assert about["command"] == ["corral", "train", "cartpole"]
    assert sum(about["split"].values()) == pytest.approx(1.0)
    out = capsys.readouterr().out
    assert "2 envs in this process" in out
    assert "one env at a time" in out
    assert "over 3 fresh episodes" in out
    assert f"Report      {directory.report}" in out


def test_the_report_is_one_page_that_loads_nothing(trained):
    page = trained.report.read_text()
    for heading in ("Learning curve", "Episode lengths", "Entropy", "KL"):
        assert f"<h2>{heading}</h2>" in page
    for heading in ("Where the time went", "CPU and GPU", "Every setting"):
        assert f"<h2>{heading}</h2>" in page
    assert "http://" not in page.replace("http://www.w3.org", "")
    assert "https://" not in page
    assert "n_steps: 16" in page


def test_every_episode_is_written_with_the_numbers_of_its_last_info(train):
    directory = train(settings={"env": "run_envs:Counting"})
    rows = jsonl.read(directory.episodes)
    assert {row["length"] for row in rows} == {10}
    assert {row["info/cost"] for row in rows} == {2.5}
    assert len({row["seed"] for row in rows}) == len(rows)


def test_a_video_is_taken_where_the_env_renders(train):
    directory = train(settings={"video": "end"})
    assert (directory.videos / "best.gif").read_bytes()[:4] == b"GIF8"
    assert "data:image/gif;base64," in directory.report.read_text()


def test_without_pictures_the_run_goes_on(train, capsys):
    directory = train(settings={"video": "end", "env": "run_envs:Counting"})
    assert "No video: the env does not render to rgb_array." in capsys.readouterr().out
    assert directory.report.exists()


def test_it_stops_when_it_is_good_enough(train):
    directory = train(settings={"stop_at": 1.0})
    assert Checkpoint.load(directory.best).update == 3


@pytest.mark.parametrize(
    ("best_is", "metric"), [("min", "eval/length"), ("max", "episode/return")]
)
def test_the_best_checkpoint_is_by_the_metric_that_was_asked_for(
    train, best_is, metric
):
    directory = train(settings={"best_is": best_is, "best_metric": metric})
    measured = [
        line[metric] for line in jsonl.read(directory.metrics) if metric in line
    ]
    best = Checkpoint.load(directory.best)
    assert best.best in measured
    if metric.startswith("eval"):
        assert best.best == min(measured)


def test_a_metric_that_is_not_measured_is_told(train):
    with pytest.raises(
        OptionError, match=r"'eval/retrun', which is not measured; did "
    ):
        train(settings={"best_metric": "eval/retrun"})


def test_configs_of_ones_own_need_no_recipe(train, here):
    (here / "mine.yaml").write_text("env: run_envs:Counting\n")
    directory = train("mine.yaml")
    assert directory.told()["state"] == "done"
    assert yaml.safe_load(directory.config.read_text())["name"] == "run_envs-Counting"


# Troubles -----------------------------------------------------------------------------


def test_a_run_directory_that_exists_is_left_alone(train, here):
    (here / "taken").mkdir()
    (here / "taken" / "precious").write_text("text")
    with pytest.raises(OptionError, match=r"taken exists already.*--resume taken"):
        train(out="taken")
    assert [path.name for path in (here / "taken").iterdir()] == ["precious"]


def test_two_runs_of_one_second_have_two_directories(here):
    from corral.run.directory import create

    paths = {create("same").path for _ in range(3)}
    assert len(paths) == 3


def test_a_loss_that_is_not_finite_ends_the_run_and_keeps_what_was_good(here):
    settings = {**SMALL, "env": "run_envs:TurnsNan", "total_steps": 10**6}
    settings["checkpoint_every"] = 2
    with (
        begin("cartpole", settings, out=Path("run")) as training,
        pytest.raises(TrainingDiverged) as caught,
    ):
        training.run()
    told = str(caught.value)
    assert "nan in update 5" in told
    assert "The env of slot 0 gave the reward nan in row 0 of the rollout" in told
    assert "Kept: run/checkpoints/last.pt" in told
    assert "corral train --resume run" in told
    kept = Checkpoint.load(training.directory.last)
    assert kept.update == 4
    assert all(bool(t.isfinite().all()) for t in kept.learner["net"].values())
    assert training.directory.told()["state"] == "diverged"


@contextmanager
def file_size_limit(size):
    """No file may grow beyond this: what a disk that is full looks like to us."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def test_a_disk_that_fills_up_costs_the_new_checkpoint_alone(trained):
    directory = trained
    before = directory.last.read_bytes()
    moment = Checkpoint.load(directory.last)
    with file_size_limit(len(before) // 2), pytest.raises(WriteFailed) as caught:
        moment.save(directory.last)
    assert "last.pt cannot be written: File too large" in str(caught.value)
    assert directory.last.read_bytes() == before
    assert {path.name for path in directory.checkpoints.iterdir()} == {
        "last.pt",
        "best.pt",
    }


def test_a_disk_that_fills_up_while_training_is_told_with_what_is_kept(here):
    settings = {**SMALL, "total_steps": 10**6}
    with (
        begin("cartpole", settings, out=Path("run")) as training,
        file_size_limit(20_000),
        pytest.raises(WriteFailed) as caught,
    ):
        training.run()
    told = str(caught.value)
    assert "cannot be written: File too large" in told
    assert "Kept: " in told or "Nothing had been saved yet" in told


def test_what_is_told_about_a_run_is_json(trained):
    assert json.loads(trained.about.read_text())["final"] > 0
