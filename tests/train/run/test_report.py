"""The page about a run: every curve, averaged as on the console, on any screen."""

import re

import pytest
from small_runs import made

from corral.train.run import report
from corral.train.run.directory import RECENT_EPISODES
from corral.train.run.parts import means_of
from corral.train.sinks import jsonl

CURVES = (
    "Policy loss",
    "Value loss",
    "Entropy",
    "KL divergence",
    "Clip fraction",
    "Explained variance",
    "Learning rate",
)


def titles(page):
    return re.findall(r"<h3>(.*?)</h3>", page)


def test_losses_are_curves(trained):
    shown = titles(report.page(trained))
    assert [title for title in CURVES if title not in shown] == []


def test_the_training_curve_is_what_the_console_shows(trained):
    metrics = jsonl.read(trained.metrics)
    training, evaluation = report._both(metrics, "return")
    shown = [
        (line["step"], line["episode/return"])
        for line in metrics
        if "episode/return" in line
    ]
    assert training.points == shown  # few enough to be drawn one by one
    rows = jsonl.read(trained.episodes)[-RECENT_EPISODES:]
    assert shown[-1][1] == pytest.approx(sum(row["return"] for row in rows) / len(rows))
    assert len(evaluation.points) == 2
    page = report.page(trained)
    assert (
        f"Training: mean of the last {RECENT_EPISODES} episodes, with exploration"
        in page
    )


def test_a_long_run_is_drawn_with_fewer_points_none_of_them_made_up():
    metrics = [{"step": 10 * n, "episode/return": n * n} for n in range(1, 5001)]
    (curve,) = report._both(metrics, "return")
    assert len(curve.points) <= report.MAX_POINTS
    assert curve.points[-1] == (50_000, 5000**2)
    assert all(y == (x / 10) ** 2 for x, y in curve.points)


def test_averages_of_losses_are_said(tmp_path):
    few = [{"step": n, "learn/kl": 0.1} for n in range(1, 100)]
    assert "Each point is one update." in report.page(made(tmp_path / "few", few))
    many = [{"step": n, "learn/kl": 0.1} for n in range(1, 1001)]
    page = report.page(made(tmp_path / "many", many))
    assert "Each point is the mean of 5 updates." in page


def test_success_and_infos_are_curves(tmp_path):
    told = {"episode/success_rate": 0.5, "episode/info/energy": 2.0}
    metrics = [{"step": n, "episode/return": 1.0, **told} for n in (1000, 2000)]
    metrics.append({"step": 2000, "eval/return": 1.0, "eval/success_rate": 1.0})
    many = {f"episode/info/key{n}": 1.0 for n in range(15)}
    metrics.append({"step": 3000, **many})
    page = report.page(made(tmp_path / "run", metrics))
    assert titles(page)[:2] == ["Success rate", "energy"]
    assert "Also in metrics.jsonl: key11, key12, key13, key14." in page
    assert "signature" not in page


# What is measured ---------------------------------------------------------------------


def test_success_and_infos_are_means_of_the_latest_episodes(train, go_on, capsys):
    directory = train(settings={"env": "run_envs:Succeeds"})
    assert ", success " in capsys.readouterr().out
    rows, metrics = jsonl.read(directory.episodes), jsonl.read(directory.metrics)
    last = [line for line in metrics if "episode/success_rate" in line][-1]
    succeeded = [row["info/is_success"] for row in rows[-RECENT_EPISODES:]]
    assert last["episode/success_rate"] == pytest.approx(
        sum(succeeded) / len(succeeded)
    )
    assert 0 < last["episode/success_rate"] < 1
    assert last["episode/info/energy"] == 0.5
    assert "episode/info/is_success" not in last
    evaluated = [line for line in metrics if "eval/return" in line][-1]
    assert evaluated["eval/info/energy"] == 0.5
    assert 0 <= evaluated["eval/success_rate"] <= 1
    assert "Success rate" in directory.report.read_text()


def test_numbers_that_are_not_finite_or_not_there_are_left_out():
    rows = [
        {"return": 1.0, "length": 3, "info/cost": float("nan")},
        {"return": 2.0, "length": 5, "info/cost": 4.0, "info/success": True},
        {"return": None, "length": 7, "info/cost": None, "seed": 5},
    ]
    assert means_of(rows) == {
        "return": 1.5,
        "length": 5.0,
        "info/cost": 4.0,
        "success_rate": 1.0,
    }
    assert means_of([]) == {}
