"""A run as a controller of the official challenge: the same costs without Corral."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from types import SimpleNamespace

import numpy as np
import pytest

pytest.importorskip("torch", reason="training needs torch")

import plain_tinyphysics as plain

from corral.cli.main import main
from corral.errors import OptionError
from corral.train.run.start import begin
from corral.zoo.tinyphysics import Model, load_route, write_route
from corral.zoo.tinyphysics.controller_export import export_controller
from corral.zoo.tinyphysics.evaluation import controller_of, drive, open_pool

QUICK = {
    "num_envs": 4,
    "backend": "serial",
    "clone_rows": 1600,
    "clone_epochs": 6,
    "evaluate_episodes": 1,
    "final_episodes": 0,
    "total_steps": 800,
    "ppo.n_steps": 200,
}
STEERS, TURNS = "tinyphysics_steer", "tinyphysics"
pytestmark = pytest.mark.first  # all together: they share two runs


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """A short run of each recipe, by its name."""
    found = {}
    for recipe in (STEERS, TURNS):
        found[recipe] = tmp_path_factory.mktemp(recipe) / "run"
        with begin(recipe, QUICK, out=found[recipe]) as training:
            assert training.run() == 0
    return found


def imported(path):
    spec = importlib.util.spec_from_file_location(path.stem, path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


class Simulator:
    """Calls a controller as the official simulator does."""

    def __init__(self, controller, path):
        self.controller, self.row = controller, 20
        roll, *rest, self._logged = plain.columns(path)
        speed, acceleration, target = rest
        self._columns = {
            "lataccel": target,
            "roll_lataccel": [9.81 * np.sin(value) for value in roll],
            "v_ego": speed,
            "a_ego": acceleration,
        }
        self.action_history = [-value for value in self._logged[:20]]

    def __call__(self, target, current):
        row = self.row
        named = self._columns.items()
        state = SimpleNamespace(**{name: values[row] for name, values in named})
        plan = {name: values[row + 1 : row + 50] for name, values in named}
        steer = self.controller.update(target, current, state, SimpleNamespace(**plan))
        used = -self._logged[row] if row < 100 else steer
        self.action_history.append(min(max(used, -2.0), 2.0))
        self.row += 1
        return steer


def costs_of_corral(run, model, paths):
    controller = controller_of(str(run))
    with open_pool(controller, model, len(paths), backend="serial") as pool:
        costs = drive(pool, controller.policy_for(pool.spec), paths)
    return [costs[path].total for path in paths]


def costs_of_file(file, model, paths):
    module, session = imported(file), Model(model)._session
    simulators = [Simulator(module.Controller(), path) for path in paths]
    pairs = zip(paths, simulators, strict=True)
    return [plain.total_cost(*plain.drive(session, *pair)) for pair in pairs]


@pytest.mark.parametrize("recipe", [STEERS, TURNS])
def test_the_file_costs_what_the_policy_costs_in_corral(runs, recipe, tmp_path):
    paths = [str(tmp_path / f"{number}.csv") for number in (1, 2)]
    for number, path in enumerate(paths):
        write_route(load_route(f"synthetic:{number:05d}"), path)
    files = export_controller(runs[recipe], tmp_path / "mine.py")
    ours = costs_of_corral(runs[recipe], None, paths)
    assert costs_of_file(files[0], None, paths) == pytest.approx(ours, rel=1e-9)


@pytest.mark.parametrize("recipe", [STEERS, TURNS])
def test_so_it_does_with_the_official_model(official, runs, recipe, tmp_path):
    files = export_controller(runs[recipe], tmp_path / "mine.py")
    given = "tinyphysics.onnx", ["data/00000.csv", "data/00003.csv"]
    ours = costs_of_corral(runs[recipe], *given)
    assert costs_of_file(files[0], *given) == pytest.approx(ours, rel=1e-9)


def test_the_file_needs_numpy_alone_and_the_weights_torch_alone(runs, tmp_path):
    export_controller(runs[TURNS], tmp_path / "mine.py")
    code = (
        "import sys; import mine; mine.Controller(); "
        "print(sorted({'corral', 'torch'} & sys.modules.keys()))"
    )
    found = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True
    )
    assert found.stdout == "[]\n", found.stderr
    import torch

    weights = torch.load(tmp_path / "mine.pth", weights_only=True)
    assert weights["head.layer.weight"].shape == (1, 128)


def test_the_command_says_what_it_wrote(runs, tmp_path, capsys):
    file = tmp_path / "mine.py"
    assert main(["export", str(runs[TURNS]), "--controller", str(file)]) == 0
    weights = file.with_suffix(".pth")
    assert capsys.readouterr().out == f"Written: {file}\nWritten: {weights}\n"
    both = ["--controller", str(file), "--out", str(tmp_path)]
    assert main(["export", str(runs[TURNS]), *both]) == 2
    assert "leave out --out" in capsys.readouterr().err


def test_without_the_simulator_the_wheel_is_not_guessed_silently(runs, tmp_path):
    file, _ = export_controller(runs[TURNS], tmp_path / "mine.py")
    module = imported(file)
    straight = SimpleNamespace(lataccel=0.0, roll_lataccel=0.0, v_ego=20.0, a_ego=0.0)
    ahead = SimpleNamespace(**{name: [0.0] * 49 for name in vars(straight)})

    def driven():
        controller = module.Controller()
        return [controller.update(0.0, 0.0, straight, ahead) for _ in range(82)]

    with pytest.raises(RuntimeError, match=r"set READ_WHEEL = False in .*mine\.py"):
        driven()
    module.READ_WHEEL = False
    assert np.isfinite(driven()).all()


@pytest.mark.parametrize(
    ("name", "told"),
    [("mine.txt", "name it as a module"), ("my-own.py", "name it as a module")],
)
def test_a_file_that_the_challenge_could_not_import_is_refused(
    runs, tmp_path, name, told
):
    with pytest.raises(OptionError, match=told):
        export_controller(runs[TURNS], tmp_path / name)
    assert not (tmp_path / name).exists()
