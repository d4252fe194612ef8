"""The recipe `tinyphysics`: a PID controller is cloned, and PPO goes on from there."""

from __future__ import annotations

import json
import math

import numpy as np
import psutil
import pytest

pytest.importorskip("torch", reason="training needs torch")
pytest.importorskip("onnx", reason="the simulator is an ONNX model")
pytest.importorskip("onnxruntime", reason="the simulator is an ONNX model")

from corral.core import Decision
from corral.engine.pool import Pool
from corral.errors import OptionError
from corral.rollouts.collector import Collector
from corral.train.recipes.resolve import resolve
from corral.train.run.loaded_run import load_policy
from corral.train.run.start import begin, resume
from corral.zoo.tinyphysics import load_route, recipe, route, write_route
from corral.zoo.tinyphysics.cockpit import make_cockpit, turn_of_pid
from corral.zoo.tinyphysics.recipe import RouteSplit, UnsteadyPID
from corral.zoo.tinyphysics.views import STEERS

SMALL = {
    "num_envs": 4,
    "clone_rows": 1600,
    "clone_epochs": 8,
    "evaluate_episodes": 2,
    "final_episodes": 1,
    "total_steps": 800,
    "ppo.n_steps": 200,
}
GIBIBYTE = 1 << 30
pytestmark = pytest.mark.first  # all together: they share a run


@pytest.fixture(autouse=True, scope="module")
def threads():
    """Leave torch as it was."""
    import torch

    before = torch.get_num_threads()
    yield
    torch.set_num_threads(before)


def trained(path, **settings):
    """Run to the end; the folder, and what was measured of clone and policy."""
    with begin("tinyphysics", {**SMALL, **settings}, out=path) as training:
        cloned = training.parts.validate()
        assert training.run() == 0
    lines = training.directory.metrics.read_text().splitlines()
    found = [line for line in map(json.loads, lines) if "eval/cost" in line]
    return training.directory, [cloned, *found]


@pytest.fixture(scope="module")
def sequential(tmp_path_factory):
    """A run with one car after the other, in this process."""
    return trained(tmp_path_factory.mktemp("sequential") / "run", parallel=False)


def test_an_update_later_there_is_a_report_and_a_best_policy(sequential):
    directory, (cloned, found) = sequential
    assert directory.report.exists() and directory.best.exists()
    assert cloned["eval/cost_ratio"] < 1.2, "a clone costs what the PID does"
    assert found["eval/pid_cost"] == cloned["eval/pid_cost"]


@pytest.mark.parametrize(
    "settings",
    [{"backend": "serial"}, {"backend": "process", "workers": 2}],
    ids=["batched", "batched in two processes"],
)
def test_a_run_in_parallel_costs_what_one_car_after_the_other_does(
    tmp_path, sequential, settings
):
    _, truth = sequential
    _, found = trained(tmp_path / "run", final_episodes=0, **settings)
    for ours, theirs in zip(found, truth, strict=True):
        assert ours["eval/cost"] == pytest.approx(theirs["eval/cost"], abs=1e-6)


def test_a_hundred_drives_are_of_a_hundred_routes_in_little_memory():
    config = resolve(
        "tinyphysics",
        {"num_envs": 20, "backend": "process", "workers": 2},
    )
    routes = [f"synthetic:{number:05d}" for number in range(100)]
    pool = recipe._training_pool(config, routes)
    try:
        rollout = Collector(pool, PID()).collect(5 * 400)
        assert len(rollout.episodes) == 100 and not rollout.faults
        assert {one.info["route"] for one in rollout.episodes} == set(routes)
        everyone = [psutil.Process(), *psutil.Process().children(recursive=True)]
        assert sum(one.memory_info().rss for one in everyone) < 4 * GIBIBYTE
    finally:
        pool.close()


class PID:
    def act(self, step, carry, rng):
        return Decision(turn_of_pid(step.obs))


def test_a_policy_can_be_had_without_its_run(sequential):
    directory, _ = sequential
    with Pool(make_cockpit, 2, backend="serial") as pool:
        policy = load_policy(directory.path, pool.spec)
        turns = policy.act(pool.reset(), None, None).action
    assert turns.shape == (2, 1) and np.isfinite(turns).all()


def test_no_route_is_for_two_things_and_each_seed_shares_them_out_anew():
    splits = [RouteSplit.of(resolve("tinyphysics", {"seed": seed})) for seed in (0, 1)]
    for split in splits:
        parts = [set(split.training), set(split.validation), set(split.test)]
        assert [len(part) for part in parts] == [60, 15, 25]
        assert len(set.union(*parts)) == 100
    assert set(splits[0].test) != set(splits[1].test)
    with pytest.raises(OptionError, match="100 routes"):
        RouteSplit.of(resolve("tinyphysics", {"test_routes": 90}))


def test_there_are_cautious_settings_and_bold_ones():
    config = resolve("tinyphysics", {"ppo.gamma": 0.9})
    assert (config.ppo.lr, config.ppo.n_epochs, config.num_envs) == (1e-5, 4, 8)
    assert config.ppo.log_std_init == pytest.approx(math.log(0.05))
    assert (config.ppo.clip_range, config.ppo.gamma) == (0.1, 0.9)
    assert config.steps_per_update == 100_000
    assert resolve("tinyphysics_tuned", {}).ppo.lr > config.ppo.lr


def test_an_epoch_has_as_many_steps_with_any_number_of_envs():
    for num_envs, rows in ((1, 100_000), (8, 12_500), (16, 6250)):
        config = resolve("tinyphysics_steer", {"num_envs": num_envs})
        assert (config.ppo.n_steps, config.steps_per_update) == (rows, 100_000)
    assert resolve("tinyphysics_steer", {"ppo.n_steps": 7}).ppo.n_steps == 7
    with pytest.raises(OptionError, match="rollout_size is 4, less than one row"):
        resolve("tinyphysics_steer", {"rollout_size": 4})


def test_the_first_written_env_has_56_inputs_and_the_steer_as_its_action():
    config = resolve("tinyphysics_steer", {"backend": "serial", "num_envs": 2})
    built = recipe.build(config)
    try:
        spec = built.pool.spec
        assert spec.observation_space.shape == (56,)
        assert (spec.action_space.low, spec.action_space.high) == (-2.0, 2.0)
        obs = Collector(built.pool, UnsteadyPID(STEERS, scaled=True)).collect(400).obs
        assert np.abs(obs).max() <= 5.0
    finally:
        built.close()


EIGHT_ROUTES = {
    "backend": "serial",
    "clone_epochs": 0,
    "validation_routes": 46,
    "test_routes": 46,
    "evaluate_every": 100,
    "evaluate_episodes": 1,
    "final_episodes": 0,
    "ppo.batch_size": 400,
    "ppo.n_epochs": 1,
    "ppo.hidden": [8],
}
"""Four cars drive eight routes: an epoch of routes is two drives of each car."""


def run_on(training, updates):
    """So many updates, each with a checkpoint; returns the episodes that ended."""
    ended = []
    for _ in range(updates):
        rollout = training.collect()
        training.log(rollout, training.learn(rollout))
        ended += rollout.episodes
        training.checkpoint()
    return ended


def small_run(path, **settings):
    return begin("tinyphysics", {**SMALL, **EIGHT_ROUTES, **settings}, out=path)


@pytest.mark.parametrize("repeat", [1, 2])
def test_every_route_is_driven_once_an_epoch_though_checkpoints_end_the_drives(
    tmp_path, monkeypatch, repeat
):
    drawn, true_path = [], route.RouteOrder.path

    def path(order, slot, episode):
        drawn.append(true_path(order, slot, episode))
        return drawn[-1]

    with small_run(tmp_path / "run", **{"ppo.n_steps": 100, "repeat": repeat}) as run:
        monkeypatch.setattr(route.RouteOrder, "path", path)
        run_on(run, 4 * repeat)
        routes = sorted(repeat * run.parts.routes.training)
    epoch = len(routes)  # slots of a group draw the same route
    assert epoch == 8 * repeat
    assert sorted(drawn[:epoch]) == sorted(drawn[epoch : 2 * epoch]) == routes


@pytest.mark.parametrize("learner", ["ppo", "sb3_ppo"])
def test_a_checkpoint_between_two_drives_skips_no_route(tmp_path, learner):
    if learner == "sb3_ppo":
        pytest.importorskip("stable_baselines3", reason="its learner")
    settings = {"ppo.n_steps": 400, "learner": learner, "total_steps": 6400}
    with small_run(tmp_path / "run", **settings) as run:
        driven = [one.info["route"] for one in run_on(run, 4)]
        routes = sorted(run.parts.routes.training)
    assert sorted(driven[:8]) == sorted(driven[8:]) == routes


@pytest.mark.parametrize(
    "place",
    [{}, {"backend": "process", "workers": 2}],
    ids=["in this process", "in two processes"],
)
def test_a_resumed_run_goes_on_with_the_next_routes(tmp_path, place):
    rows = {**place, "ppo.n_steps": 200, "total_steps": 6400}
    with small_run(tmp_path / "whole", **rows) as whole:
        run_on(whole, 1)
        expected = whole.collect()
    with small_run(tmp_path / "parts", **rows) as first:
        run_on(first, 1)
    with resume(tmp_path / "parts", {}) as second:
        assert second.parts.recipe_state() == {"drives": 4}
        found = second.collect()
    for name in ("obs", "action", "reward"):
        np.testing.assert_array_equal(getattr(found, name), getattr(expected, name))
    # The cars' first observations tell the routes apart.
    with small_run(tmp_path / "new", **rows) as new:
        assert not np.isin(new.collect().obs[0, :, 0], found.obs[0, :, 0]).any()


def test_damaged_routes_are_all_named_before_training(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for number in range(6):
        write_route(load_route(f"synthetic:{number:05d}"), f"{number}.csv")
    for name in ("2.csv", "4.csv"):
        path = tmp_path / name
        lines = path.read_text().splitlines()
        lines[20] = "0,fast,0,0,0,0"
        path.write_text("\n".join(lines))
    few = {"data": ".", "validation_routes": 1, "test_routes": 1}
    with pytest.raises(OptionError) as refused:
        begin("tinyphysics", {**SMALL, **few}, out=tmp_path / "run")
    told = str(refused.value)
    assert "2 of 6 routes cannot be driven" in told
    assert "./2.csv, line 21, column vEgo" in told and "./4.csv, line 21" in told


def test_many_routes_are_read_by_workers(tmp_path, monkeypatch):
    write_route(load_route("synthetic:00000"), tmp_path / "one.csv")
    (tmp_path / "two.csv").write_text("t,vEgo\n")
    monkeypatch.setattr(route, "MANY", 2)
    with pytest.raises(OptionError, match="1 of 3 routes cannot be driven"):
        route.check_routes([str(tmp_path / f"{n}.csv") for n in ("one", "one", "two")])
