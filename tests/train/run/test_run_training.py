"""A run leaves what it promises; what goes wrong costs nothing that was saved."""

import json
import resource
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest
import yaml
from PIL import Image
from small_runs import SMALL

from corral import replay
from corral.errors import EnvError, OptionError, TrainingDiverged, WriteFailed
from corral.train.recipes.resolve import resolve
from corral.train.run.checkpoint import Checkpoint
from corral.train.run.parts import is_better
from corral.train.run.start import begin
from corral.train.sinks import jsonl


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
    about = directory.read_about()
    assert about["state"] == "done"
    assert about["command"] == ["corral", "train", "cartpole"]
    assert sum(about["split"].values()) == pytest.approx(1.0)
    out = capsys.readouterr().out
    assert "2 envs in this process" in out
    assert "one env at a time" in out
    assert "over 3 new episodes" in out
    assert f"Report      {directory.report}" in out


def test_what_came_before_training_does_not_slow_it_down(tmp_path):
    with begin("cartpole", SMALL, out=tmp_path / "run") as training:
        training._time_split._began -= 3600  # as if it had cloned for an hour
        training.run()
    about = training.directory.read_about()
    assert about["seconds"] > 3600
    speeds = [
        line["speed/steps_per_second"]
        for line in jsonl.read(training.directory.metrics)
        if "speed/steps_per_second" in line
    ]
    assert speeds and min(speeds) > 1


def test_the_report_is_one_page_that_loads_nothing(trained):
    page = trained.report.read_text()
    for heading in ("Learning curve", "Episodes", "Losses and policy"):
        assert f"<h2>{heading}</h2>" in page
    for heading in ("Where the time went", "Speed, CPU and GPU", "Every setting"):
        assert f"<h2>{heading}</h2>" in page
    assert "signature" not in page
    assert "http://" not in page.replace("http://www.w3.org", "")
    assert "https://" not in page
    assert "n_steps: 16" in page


def test_every_episode_is_written_with_the_numbers_of_its_last_info(train):
    directory = train(settings={"env": "run_envs:Counting"})
    rows = jsonl.read(directory.episodes)
    assert {row["length"] for row in rows} == {10}
    assert {row["info/cost"] for row in rows} == {2.5}
    assert {row["info/energy"] for row in rows} == {0.5}
    assert {row["info/laps"] for row in rows} == {3}
    assert len({row["seed"] for row in rows}) == len(rows)


def test_a_video_is_taken_where_the_env_renders(train):
    directory = train(settings={"video": "end"})
    assert (directory.videos / "best.gif").read_bytes()[:4] == b"GIF8"
    assert "data:image/gif;base64," in directory.report.read_text()


def test_an_env_that_never_ends_holds_nothing_up(train, capsys):
    settings = {"env": "run_envs:Endless", "evaluate_length": 320, "video": "end"}
    directory = train(settings=settings)
    out = capsys.readouterr().out
    assert "2 of the 2 episodes were cut after 320 steps (evaluate_length)" in out
    lines = jsonl.read(directory.metrics)
    assert {line["eval/length"] for line in lines if "eval/length" in line} == {320.0}
    with Image.open(directory.videos / "best.gif") as video:
        assert 150 <= video.n_frames < 300  # no more of them were ever kept
        assert video.info["duration"] * video.n_frames == pytest.approx(16_000, rel=0.1)


def test_without_pictures_the_run_goes_on(train, capsys):
    directory = train(settings={"video": "end", "env": "run_envs:Counting"})
    assert "No video: the env does not render to rgb_array." in capsys.readouterr().out
    assert directory.report.exists()


def test_it_stops_when_it_is_good_enough(train):
    directory = train(settings={"stop_at": 1.0})
    assert Checkpoint.load(directory.best).update == 3
    (evaluated,) = (
        one for one in jsonl.read(directory.metrics) if "eval/return" in one
    )
    told = directory.read_about()
    assert told["best"] == evaluated["eval/return"]
    assert told["best_std"] == evaluated["eval/return_std"]


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


def test_a_metric_of_episodes_may_come_later(train):
    settings = {"env": "run_envs:Counting", "best_metric": "episode/return"}
    # Four steps of each env until the first evaluation: no episode has ended by then.
    settings |= {"ppo.n_steps": 4, "evaluate_every": 1, "total_steps": 48}
    assert Checkpoint.load(train(settings=settings).best).best == 10.0


@pytest.mark.parametrize(("metric", "sign"), [("max", 1), ("min", -1)])
def test_what_is_not_known_is_not_the_best(metric, sign):
    config = resolve("cartpole", {**SMALL, "best_is": metric})
    assert not is_better(config, {"eval/return": float("nan")}, None)
    assert is_better(config, {"eval/return": 0.0}, None)
    assert not is_better(config, {"eval/return": float("nan")}, 0.0)
    assert is_better(config, {"eval/return": sign * 1.0}, 0.0)
    assert not is_better(config, {"eval/return": sign * -1.0}, 0.0)


@pytest.mark.parametrize("sign", [1, -1])
@pytest.mark.parametrize("value", [7.5, float("inf"), -float("inf")])
def test_a_tie_is_not_the_best(sign, value):
    best_is = "max" if sign > 0 else "min"
    config = resolve("cartpole", {**SMALL, "best_is": best_is})
    assert is_better(config, {"eval/return": value}, None)
    assert not is_better(config, {"eval/return": value}, value)


def test_the_first_of_equal_policies_is_kept_and_told_once(train, go_on, capsys):
    settings = {"env": "run_envs:Counting", "evaluate_every": 1}
    directory = train(settings=settings)  # every episode returns 10
    assert Checkpoint.load(directory.best).update == 1
    assert capsys.readouterr().out.count("best so far") == 1
    go_on(directory.path, total_steps=256)
    assert Checkpoint.load(directory.best).update == 1
    assert "best so far" not in capsys.readouterr().out


def test_the_best_by_a_metric_of_training_is_told(train, capsys):
    train(settings={"best_metric": "episode/return", "evaluate_every": 6})
    assert capsys.readouterr().out.count("best so far") == 1


def test_episodes_that_checkpoints_cut_short_are_told_once(train, capsys):
    settings = {"env": "run_envs:Counting", "ppo.n_steps": 8, "checkpoint_every": 1}
    train(settings=settings)
    out = capsys.readouterr().out
    assert out.count("Episodes are cut short: in slot 0 none has ended in 8 steps") == 1
    train(settings={**settings, "checkpoint_every": 2}, out="other")
    assert "cut short" not in capsys.readouterr().out


def test_configs_of_ones_own_need_no_recipe(train, here):
    (here / "mine.yaml").write_text("env: run_envs:Counting\n")
    directory = train("mine.yaml")
    assert directory.read_about()["state"] == "done"
    assert yaml.safe_load(directory.config.read_text())["name"] == "run_envs-Counting"


# Troubles -----------------------------------------------------------------------------


def test_a_run_directory_that_exists_is_left_alone(train, here):
    (here / "taken").mkdir()
    (here / "taken" / "precious").write_text("text")
    with pytest.raises(OptionError, match=r"taken exists already.*--resume taken"):
        train(out="taken")
    assert [path.name for path in (here / "taken").iterdir()] == ["precious"]


def test_two_runs_of_one_second_have_two_directories(here):
    from corral.train.run.directory import create

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
    assert "The env of slot 0 returned the reward nan in row 0 of the rollout" in told
    assert "Saved       run/checkpoints/last.pt" in told
    assert "Continue    corral.train.run.start.resume(Path('run'), {})" in told
    kept = Checkpoint.load(training.directory.last)
    assert kept.update == 4
    assert all(bool(t.isfinite().all()) for t in kept.learner["net"].values())
    assert training.directory.read_about()["state"] == "diverged"


@contextmanager
def file_size_limit(size):
    """No file may grow beyond this: what a disk that is full looks like to us."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


@pytest.mark.parametrize(
    ("env", "scaled"), [("TurnsInfinite", True), ("TurnsUnseen", False)]
)
def test_an_observation_that_is_not_finite_costs_no_checkpoint(here, env, scaled):
    settings = {**SMALL, "env": f"run_envs:{env}", "normalise_obs": scaled}
    settings |= {"checkpoint_every": 1, "evaluate_every": 99}
    told = "he env of slot 0 returned the observation (inf|nan) in row 9 of the rollout"
    with (
        begin("cartpole", settings, out=Path("run")) as training,
        pytest.raises(TrainingDiverged, match=told),
    ):
        training.run()
    kept = Checkpoint.load(training.directory.last)
    assert kept.update == 2
    for scale in kept.normalisers.values():
        assert np.isfinite(scale[""]["variance"]).all()


def test_an_env_that_breaks_is_told_in_whole_sentences(here):
    settings = {**SMALL, "env": "run_envs:Breaks"}
    with (
        begin("cartpole", settings, out=Path("run")) as training,
        pytest.raises(EnvError) as caught,
    ):
        training.run()
    told = str(caught.value)
    assert "At run_envs.py, line " in told and 'in step: raise RuntimeError("' in told
    assert "Replay      corral doctor --replay run/fault.zip\n" in told
    # In Python's words: it was begun from there.
    call = "resume(Path('run'), {'on_fault': 'restart', 'backend': 'process'})"
    assert told.endswith(f"Continue    corral.train.run.start.{call}")
    assert "RuntimeError: broken" in training.directory.error.read_text()
    with replay("run/fault.zip") as again:
        assert again.reproduced


def test_what_is_restarted_is_told_and_counted(train, capsys):
    settings = {"env": "run_envs:SometimesBreaks", "on_fault": "restart"}
    # Whoever broke a moment ago waits: a slot for each is quicker.
    settings |= {"backend": "process", "num_envs": 8, "ppo.n_steps": 6}
    settings |= {"evaluate_every": 99, "evaluate_episodes": 9, "final_episodes": 0}
    settings |= {"checkpoint_every": 99, "total_steps": 336}
    directory = train(settings=settings)
    out = capsys.readouterr().out
    restarts = jsonl.read(directory.faults)
    assert out.count("Restarted   slot ") == len(restarts) > 1
    assert "RuntimeError in step: broken (2 so far)" in out
    assert [line["count"] for line in restarts] == [*range(1, len(restarts) + 1)]
    assert "of the 9 episodes failed each time they were run" in out
    assert directory.read_about()["state"] == "done"
    lines = jsonl.read(directory.metrics)
    assert sum(line.get("episode/faults", 0) for line in lines) > 0
    assert {line["eval/length"] for line in lines if "eval/length" in line} == {10.0}


def test_a_restart_is_told_before_the_update_is_over(here, capsys):
    settings = {**SMALL, "env": "run_envs:Once", "on_fault": "restart"}
    settings |= {"backend": "process", "workers": 1, "isolation": "shared"}
    with begin("cartpole", settings, out=Path("run")) as training:
        rollout = training.collect()
        out = capsys.readouterr().out
        assert out.count("Restarted   slot ") == 1
        assert len(jsonl.read(training.directory.faults)) == 1
        training.log(rollout, training.learn(rollout))
        assert "Restarted" not in capsys.readouterr().out
        (line,) = jsonl.read(training.directory.metrics)
        assert line["episode/restarts"] == 1


def test_a_second_ctrl_c_ends_it_at_once_and_says_what_is_kept(here, capfd):
    settings = {**SMALL, "env": "run_envs:Impatient", "evaluate_every": 99}
    with (
        begin("cartpole", settings, out=Path("run")) as training,
        pytest.raises(KeyboardInterrupt),
    ):
        training.run()
    out, err = capfd.readouterr()
    assert "Stopping after this update" in err
    assert "Stopped at once." in out and "Saved       run/checkpoints/last.pt" in out
    assert "Continue    corral train --resume run\n" in out
    assert training.directory.read_about()["state"] == "interrupted"
    assert training.directory.report.exists()


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
    assert "Saved       run/checkpoints/last.pt" in told


def test_what_is_told_about_a_run_is_json(trained):
    assert json.loads(trained.about.read_text())["final"] > 0
