"""`corral eval tinyphysics`, as it is typed."""

import json
import sys

import pytest

pytest.importorskip("onnx", reason="tinyphysics needs onnxruntime")
pytest.importorskip("onnxruntime", reason="tinyphysics needs onnxruntime")

from corral.cli.main import main
from corral.rollouts.number_format import number
from corral.zoo.tinyphysics import load_route, write_route
from corral.zoo.tinyphysics.onnx_graphs import small_model


@pytest.fixture
def corral(tmp_path, monkeypatch, capsys):
    """Type a command beside a directory of routes; returns status, stdout, stderr."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "data").mkdir()
    for place in range(2):
        path = tmp_path / "data" / f"{place:05d}.csv"
        write_route(load_route(f"synthetic:{place:05d}"), path)
    (tmp_path / "car.onnx").write_bytes(small_model())

    def run(*arguments):
        try:
            status = main(["eval", *arguments])
        except SystemExit as end:  # how argparse refuses
            status = end.code
        return status, *capsys.readouterr()

    return run


def test_costs_are_the_same_wherever_the_cars_are(corral, tmp_path):
    found = []
    for layout in (
        ["--backend", "serial", "--num-envs", "1"],
        ["--backend", "process", "--workers", "2", "--num-envs", "2", "--batched"],
    ):
        arguments = ["--data", "./data", "--model", "car.onnx", "--json", "costs.json"]
        status, out, err = corral("tinyphysics", *arguments, *layout)
        assert status == 0, err
        assert "over 2 routes" in out
        found.append(json.loads((tmp_path / "costs.json").read_text()))
    assert found[0] == found[1]
    assert list(found[0]) == [f"./data/{route:05d}.csv" for route in range(2)]
    for path, cost in found[0].items():
        assert cost["total"] == pytest.approx(50 * cost["lataccel"] + cost["jerk"])
        shown = [number(cost[name]) for name in ("lataccel", "jerk", "total")]
        assert [path, *shown] in [line.split() for line in out.splitlines()]
    page = (tmp_path / "costs.html").read_text()
    assert page.count("<svg") == 2 * (1 + 2 * 2)  # for wide and narrow screens
    assert "target" in page and "actual" in page and "steer" in page
    assert "data/00001.csv: cost" in page


def test_nothing_but_the_name_is_needed(corral, tmp_path):
    (tmp_path / "tinyphysics.html").mkdir()  # where the report would be
    status, out, err = corral("tinyphysics", "--limit", "2", "--backend", "serial")
    assert status == 0, err
    assert "synthetic:00001" in out and "PID: " in out
    assert "No report: tinyphysics.html cannot be written" in out


def test_without_what_draws_there_are_costs_and_no_report(corral, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    for name in ("corral.train.reports.charts", "corral.zoo.tinyphysics.page"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    status, out, err = corral("tinyphysics", "--data", "data", "--backend", "serial")
    assert status == 0, err
    assert "over 2 routes" in out
    assert "No report: a report with pictures needs matplotlib" in out


def lose_a_column(path):
    path.write_text(path.read_text().replace("vEgo", "speed"))


def spoil(path):
    lines = path.read_text().splitlines()
    lines[12] = lines[12].replace(lines[12].split(",")[3], "nan")
    path.write_text("\n".join(lines))


def cut(path):
    path.write_text("\n".join(path.read_text().splitlines()[:101]))


@pytest.mark.parametrize(
    ("spoiling", "told"),
    [
        (lose_a_column, "data/00001.csv has no column vEgo; expected vEgo, aEgo"),
        (
            spoil,
            "data/00001.csv, line 13, column roll, row 11: expected a finite number",
        ),
        (cut, "data/00001.csv is too short: expected at least 500 rows"),
    ],
)
def test_a_bad_route_is_one_message(corral, tmp_path, spoiling, told):
    spoiling(tmp_path / "data" / "00001.csv")
    status, out, err = corral("tinyphysics", "--data", "data")
    assert (status, told in err) == (2, True), err
    assert "Traceback" not in out + err


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["--data", "none"], "the directory of routes none cannot be read"),
        (["--data", "."], "no routes in .: expected files NAME.csv"),
        (["--model", "none.onnx"], "the model none.onnx cannot be read"),
        (["--model", "data/00000.csv"], "data/00000.csv is not an ONNX model"),
        (["--episodes", "3"], "--episodes has no meaning for tinyphysics"),
        (["--seed", "0"], "--seed has no meaning for tinyphysics"),
        (["--stochastic"], "--stochastic has no meaning for tinyphysics"),
        (["--json", "none/costs.json"], "--json none/costs.json cannot be written"),
        (["--html", "data"], "--html data is a directory; name a file in it"),
        (["--json", "out.html"], "out.html is also the file of the report"),
        (["--num-envs", "0"], "must be an integer >= 1, got '0'"),
        (["--backend", "moon"], "invalid choice: 'moon'"),
    ],
)
def test_bad_input_is_one_message(corral, tmp_path, arguments, told):
    status, out, err = corral("tinyphysics", *arguments)
    assert (status, told in err) == (2, True), err
    assert "Traceback" not in out + err
    assert not (tmp_path / "tinyphysics.html").exists()


def test_a_controller_that_is_no_run_is_told(corral, tmp_path):
    pytest.importorskip("torch", reason="runs need torch")
    test_bad_input_is_one_message(
        corral, tmp_path, ["--controller", "none"], "none is not a run"
    )


def test_its_options_go_with_nothing_else(corral):
    pytest.importorskip("torch", reason="runs need torch")
    status, _, err = corral("runs/cartpole", "--controller", "pid")
    assert status == 2
    assert "--controller is an option of `corral eval tinyphysics`" in err


def test_a_run_of_the_recipe_can_steer(corral, tmp_path):
    pytest.importorskip("torch", reason="training needs torch")
    small = ["--num-envs", "2", "--total-steps", "32", "--out", "run"]
    for setting in (
        "backend=serial",
        "ppo.n_steps=16",
        "ppo.hidden=[8]",
        "clone_epochs=0",
        "evaluate_episodes=1",
        "final_episodes=0",
        "checkpoint_every=1",
    ):
        small += ["--set", setting]
    assert main(["train", "tinyphysics", *small]) == 0
    (tmp_path / "costs.html").mkdir()  # no report: pictures take their time
    arguments = ["--controller", "run", "--limit", "2", "--json", "costs.json"]
    found = []
    for layout in (["--num-envs", "1"], ["--num-envs", "2", "--batched"]):
        status, out, err = corral(
            "tinyphysics", *arguments, *layout, "--backend", "serial"
        )
        assert status == 0, err
        assert "run: " in out
        found.append(json.loads((tmp_path / "costs.json").read_text()))
    assert list(found[0]) == ["synthetic:00000", "synthetic:00001"]
    assert found[0] == found[1]
