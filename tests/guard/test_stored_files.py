"""What earlier versions wrote can still be opened, evaluated, resumed and replayed."""

from __future__ import annotations

import json
import pickle
import shutil
import zipfile

import numpy as np
import pytest

import corral
from tests.guard import envs, recorded, stored, training

FAULTS = sorted(path.stem for path in (recorded.FILES / "faults").iterdir())
KINDS = {"died": "WorkerDied", "crashing": "OnPurpose"}
needs_numpy_2 = pytest.mark.skipif(
    np.lib.NumpyVersion(np.__version__) < "2.0.0",
    reason="arrays pickled by NumPy 2 are read by NumPy 2",
)


@pytest.fixture
def run(request, tmp_path, monkeypatch):
    """A copy of a stored run, where it may be written to."""
    one = stored.training_of(request.param)
    if one.missing:
        pytest.skip(f"{', '.join(one.missing)} is not installed")
    monkeypatch.chdir(tmp_path)
    kept = recorded.FILES / "trained" / request.param
    return shutil.copytree(kept, tmp_path / "runs" / request.param)


@pytest.mark.parametrize("run", ["cartpole"], indirect=True)
def test_a_stored_run_is_listed_with_its_state(run):
    status, said = training.corral_command("list", "--runs", "runs")
    assert status == 0
    assert any("cartpole" in line and "64/64" in line for line in said.splitlines())
    assert "done" in said


@pytest.mark.parametrize("run", ["cartpole"], indirect=True)
def test_a_stored_run_is_not_run_without_trust(run):
    status, said = training.corral_command("eval", str(run))
    assert status == 2 and "--trust" in said


@pytest.mark.parametrize("run", stored.RUNS, indirect=True)
def test_a_stored_run_is_evaluated(run):
    options = ["--trust", "--checkpoint=last", "--episodes=2", "--json=scores.json"]
    status, said = training.corral_command("eval", str(run), *options)
    assert status == 0, said
    assert len(json.loads((run.parents[1] / "scores.json").read_text())["returns"]) == 2


@pytest.mark.parametrize(
    "run",
    [
        *("cartpole", "grid_world", "tinyphysics"),
        pytest.param("memory", marks=pytest.mark.slow),
        pytest.param("bullet_pendulum", marks=pytest.mark.slow),
    ],
    indirect=True,
)
def test_a_stored_run_goes_on_with_its_third_update(run):
    stored.resume(run)
    checkpoint = training.weights(run / "checkpoints" / "last.pt")
    kept = recorded.read(recorded.WEIGHTS)
    same = training.same_machine(kept)
    training.compare(checkpoint, kept[f"{run.name}, resumed"], same)
    lines = (run / "metrics.jsonl").read_text().splitlines()
    steps = [json.loads(line)["step"] for line in lines]
    assert steps[0] == 32 and steps[-1] == 96


@pytest.mark.parametrize("run", ["cartpole"], indirect=True)
def test_a_new_run_begins_with_stored_weights(run):
    one = training.TRAININGS["cartpole"]
    training.train(one, run.parent / "new", f"--init-from={run}")
    begun = training.weights(run.parent / "new" / "checkpoints" / "last.pt")
    assert begun["update"] == 3


@pytest.mark.parametrize("run", ["cartpole"], indirect=True)
def test_a_run_writes_the_files_and_keys_that_it_wrote_or_more(run, tmp_path):
    new = tmp_path / "new"
    training.train(stored.training_of("cartpole"), new)
    there = {str(path.relative_to(new)) for path in new.rglob("*") if path.is_file()}
    events = {name for name in there if name.startswith("tensorboard/events")}
    kept = {str(path.relative_to(run)) for path in run.rglob("*") if path.is_file()}
    assert events and there - events >= kept
    for name in ("metrics.jsonl", "episodes.jsonl"):
        first, second = (
            json.loads((one / name).read_text().splitlines()[0]) for one in (new, run)
        )
        assert first.keys() >= second.keys()
    first, second = (json.loads((one / "about.json").read_text()) for one in (new, run))
    assert first.keys() >= second.keys()
    assert first["facts"].keys() >= second["facts"].keys()


def test_a_stored_report_can_be_read():
    page = (recorded.FILES / "trained" / "cartpole" / "report.html").read_text()
    assert page.startswith("<!DOCTYPE html>") and page.rstrip().endswith("</html>")
    assert "cartpole" in page and "CartPole-v1" in page


@needs_numpy_2
@pytest.mark.parametrize("name", FAULTS)
def test_a_stored_fault_is_replayed(name):
    path = recorded.FILES / "faults" / f"{name}.zip"
    with corral.replay(path, trust=True) as replayed:
        kind = KINDS.get(name, "ArithmeticError")
        assert type(replayed.error).__name__ == kind
        assert replayed.reproduced


@needs_numpy_2
def test_a_stored_fault_is_replayed_on_the_command_line():
    path = str(recorded.FILES / "faults" / "raised.zip")
    status, said = training.corral_command("doctor", "--replay", path)
    assert status == 2 and "--trust" in said
    status, said = training.corral_command("doctor", "--replay", path, "--trust")
    assert "ArithmeticError" in said


def test_a_fault_is_written_with_the_members_and_keys_of_stored_ones(tmp_path):
    with corral.Pool(envs.Fragile, 2, seed=71, backend="serial") as pool:
        pool.reset()
        with pytest.raises(corral.errors.EnvError) as raised:
            pool.step([8, 1])
    raised.value.fault.save(tmp_path / "new.zip")
    tables = []
    for path in (tmp_path / "new.zip", recorded.FILES / "faults" / "raised.zip"):
        with zipfile.ZipFile(path) as archive:
            table = json.loads(archive.read("fault.json"))
            tables.append({*archive.namelist(), *table})
    assert tables[0] >= tables[1]


@needs_numpy_2
def test_values_that_a_user_pickled_can_be_loaded():
    values = pickle.loads((recorded.FILES / "values.pickle").read_bytes())
    assert isinstance(values["rollout"], corral.Rollout)
    assert isinstance(values["evaluation"], corral.Evaluation)
    assert all(isinstance(one, corral.Episode) for one in values["episodes"])
    assert isinstance(values["spec"], corral.EnvSpec)
    assert isinstance(values["decision"], corral.Decision)
    assert values["rollout"].obs.shape == (6, 2, 3)
    with corral.Pool(envs.Walk, 2, seed=91, backend="serial") as pool:
        made = corral.Collector(
            pool,
            stored.Plain(),
            obs_norm=corral.ObsNorm(pool.spec.observation_space),
            reward_norm=corral.RewardNorm(0.9),
        )
        made.load_state_dict(values["state"])
        made.collect(2)
