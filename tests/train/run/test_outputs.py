"""What a run says: results, what is odd about them, and the command that goes on."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import pytest

from corral.errors import TrainingDiverged
from corral.train.recipes.resolve import resolve
from corral.train.run.directory import RunDirectory
from corral.train.run.failure import RunFailure
from corral.train.run.outputs import Outputs
from corral.train.sinks.console import ConsoleSink

RESULTS = {"eval/return": 20.0, "eval/return_std": 4.0}


class Run:
    """The announcements of a run, and what they have said so far."""

    def __init__(self, path: Path, **settings: Any) -> None:
        self._file = io.StringIO()
        self.directory = RunDirectory(path)
        self.directory.checkpoints.mkdir(parents=True)
        self.config = resolve("cartpole", settings)
        console = ConsoleSink(100, self._file)
        self.announce = Outputs(self.directory, self.config, console)

    def said(self) -> list[str]:
        """The lines since the last time, without their times."""
        text = self._file.getvalue()
        self._file.seek(0)
        self._file.truncate()
        return [line.partition("] ")[2] for line in text.splitlines()]


@pytest.fixture
def run(tmp_path: Path) -> Run:
    return Run(tmp_path / "my run")


def test_an_evaluation_names_its_metric_where_another_one_chooses_the_best(
    run, tmp_path
) -> None:
    run.announce.evaluation(512, RESULTS, improved=True)
    assert run.said() == ["step 512  evaluated 20 ± 4  best so far"]
    other = Run(tmp_path / "other", best_metric="eval/height")
    other.announce.evaluation(
        7, RESULTS | {"eval/height": 1.5, "eval/success_rate": 0.25}, improved=False
    )
    assert other.said() == ["step 7  evaluated 20 ± 4, success 25%, eval/height 1.5"]


def test_episodes_that_were_cut_or_failed_in_an_evaluation_are_told(run) -> None:
    odd = RESULTS | {"eval/cut": 2.0, "eval/failed": 1.0}
    run.announce.evaluation(512, odd, improved=False)
    _, cut, failed = run.said()
    assert cut.startswith("2 of the ") and "(evaluate_length)" in cut
    assert failed.startswith("1 of the ") and "do not count" in failed


def test_episodes_that_checkpoints_cut_are_told_once(run) -> None:
    run.announce.cut_episodes(set())
    assert not run.said()
    run.announce.cut_episodes({5, 3})
    (line,) = run.said()
    assert "in slot 3 none has ended" in line and "raise checkpoint_every" in line
    run.announce.cut_episodes({4})
    assert not run.said()


def test_the_first_video_that_failed_is_told(run) -> None:
    run.announce.failed_video(None)
    assert not run.said()
    for reason in ("no camera", "no disk"):
        run.announce.failed_video(reason)
    assert run.said() == ["No video: no camera."]
    run.announce.finished()
    report, evaluate = run.said()
    assert report == f"Report      {run.directory.report}"
    assert evaluate == f"Evaluate    corral eval '{run.directory.path}'"


def test_a_run_that_was_stopped_says_how_to_go_on(run) -> None:
    run.announce.interrupted(update=3, steps=1500)
    stopped, go_on = run.said()
    assert stopped.startswith("Stopped after update 3 of ") and "1,500" in stopped
    assert go_on == f"Continue    corral train --resume '{run.directory.path}'"
    run.directory.last.touch()
    run.announce.interrupted(update=3, steps=1500)
    assert f"--resume {run.directory.last})" in run.said()[2]


def test_one_stopped_at_once_names_what_is_kept(run) -> None:
    run.directory.best.touch()
    run.announce.stopped_at_once(trained=False)
    assert run.said() == [
        "Stopped at once.",
        f"Saved       {run.directory.best}",
        f"Continue    corral train --resume '{run.directory.path}'",
    ]
    run.announce.stopped_at_once(trained=True)
    said = run.said()
    assert said[2].startswith("All updates are done") and "corral eval" in said[4]


def test_commands_about_a_run_that_is_not_signed_trust_it(run) -> None:
    run.announce.signed = False
    assert run.announce.typed("eval").endswith("--trust")


def test_an_error_says_what_is_kept_where_it_is_written_and_how_to_go_on(run) -> None:
    run.directory.last.touch()
    error = TrainingDiverged("the loss is nan")
    announce = run.announce
    failure = RunFailure(error, run.config, ("corral", "train", "cartpole"))
    text = announce.failure(failure, trained=False).splitlines()
    assert text[0] == "the loss is nan"
    assert text[1] == f"Saved       {run.directory.last}"
    assert text[2] == f"Traceback   {run.directory.error}"
    assert run.directory.error.read_text().strip().endswith("the loss is nan")
    assert text[-1].startswith("Continue    corral train ")
    assert not run.said()  # it is the error's own text


class Shelf:
    """Keeps the names of videos, in the place of W&B."""

    def __init__(self) -> None:
        self.kept: list[str] = []

    def video(self, name: str, path: Path, step: int) -> None:
        self.kept.append(name)

    def write(self, metrics: Any, step: int) -> None: ...

    def close(self) -> None: ...


@pytest.mark.parametrize("asked", [True, False])
def test_wandb_gets_videos_of_training_only_if_it_may(tmp_path, monkeypatch, asked):
    shelf = Shelf()
    monkeypatch.setattr("corral.train.run.outputs._wandb", lambda *given: shelf)
    run = Run(tmp_path / "run", wandb={"videos": asked})
    run.announce.video("training", tmp_path / "step-1.gif", 1)
    assert shelf.kept == ["training"] * asked
    assert run.said() == [f"Video       {tmp_path / 'step-1.gif'}"]
