"""Costs are the official ones: one env, every backend, batched or not."""

import csv
from functools import partial

import numpy as np
import onnxruntime
import plain_tinyphysics as plain
import pytest
from driving import drive

import corral
from corral.errors import OptionError
from corral.zoo.tinyphysics import (
    PID,
    find_routes,
    load_model,
    make_tinyphysics,
    make_tinyphysics_batched,
)
from corral.zoo.tinyphysics.tokens import sample, sample_one

FEW = 3


def truth():
    with open("pid_costs.csv") as file:
        return {
            row.pop("path"): [float(value) for value in row.values()]
            for row in csv.DictReader(file)
        }


def make_one():
    model = corral.this_worker().resource
    return make_tinyphysics("data", model, dtype="float64")


def make_many(num_envs):
    model = corral.this_worker().resource
    return make_tinyphysics_batched(num_envs, "data", model, dtype="float64")


def pooled(paths, num_envs, **options):
    """Path -> costs, by a pool."""
    batched = options.get("batched", False)
    with corral.Pool(
        make_many if batched else make_one,
        num_envs,
        per_worker=partial(load_model, "tinyphysics.onnx"),
        **options,
    ) as pool:
        tasks = [{"route": path} for path in paths]
        episodes = corral.run_episodes(pool, PID(), tasks=tasks, rows=False)
    return {
        episode.info["route"]: list(episode.info["episode_cost"].values())
        for episode in episodes
    }


@pytest.mark.parametrize(
    "options",
    [
        {"backend": "serial"},
        {"backend": "thread", "workers": 2},
        {"backend": "process", "workers": 2},
        {"backend": "process", "workers": 1, "batched": True},
    ],
    ids=["serial", "thread", "process", "batched"],
)
def test_costs_are_the_official_ones(official, options):
    known = truth()
    paths = find_routes("data")[:FEW]
    # Two slots: the last route is driven by a part of a shard.
    found = pooled(paths, 2, **options)
    assert list(found) == paths
    for path in paths:
        assert found[path] == pytest.approx(known[path], abs=1e-6), path


@pytest.mark.slow
@pytest.mark.parametrize("batched", [False, True])
def test_all_hundred_routes_cost_what_they_should(official, batched):
    known = truth()
    paths = find_routes("data")[:100]
    found = pooled(paths, 20, backend="process", workers=2, batched=batched)
    off = {path: found[path][2] - known[path][2] for path in paths}
    assert max(map(abs, off.values())) < 1e-6, off
    assert np.mean([cost[2] for cost in found.values()]) == pytest.approx(
        84.852, abs=1e-3
    )


def test_the_env_does_as_the_rules_say(data, monkeypatch):
    monkeypatch.chdir(data.parent)
    model = load_model()
    env = make_tinyphysics("data", model, dtype="float64")
    rewards, seen, info = drive(env, PID(), options={"route": "data/00003.csv"})
    kept = np.random.get_state()
    target, lataccel = plain.drive(model._session, "data/00003.csv", plain.pid())
    np.random.set_state(kept)
    assert (seen[1:, 3] == lataccel[100:]).all()
    assert info["episode_cost"]["total"] == plain.total_cost(target, lataccel)
    assert len(rewards) == 400


def test_tokens_are_those_that_numpy_chooses():
    """Also where a draw is as near to a bound as can be."""
    draw = np.random.default_rng(0)
    logits = (4 * draw.normal(size=(40, 1024))).astype(np.float32)
    scaled = logits / 0.8
    chances = np.exp(scaled - scaled.max(axis=1, keepdims=True))
    chances /= chances.sum(axis=1, keepdims=True)
    bounds = chances.cumsum(axis=1, dtype=np.float64)
    bounds /= bounds[:, -1:].copy()
    rows, places = np.arange(40), draw.integers(1, 1023, 40)
    at = bounds[rows, places]
    for draws in (draw.random(40), at, np.nextafter(at, 0), np.zeros(40)):
        expected = [bounds[row].searchsorted(draws[row], side="right") for row in rows]
        assert sample(logits, draws).tolist() == expected
        assert [sample_one(logits[row], draws[row]) for row in rows] == expected
    logits[3, 7] = np.nan  # where numpy refuses too
    for choose in (lambda: sample(logits, at), lambda: sample_one(logits[3], at[3])):
        with pytest.raises(OptionError, match="output is nan"):
            choose()


def test_the_spelling_of_a_path_seeds_its_route(data, monkeypatch):
    monkeypatch.chdir(data.parent)
    env = make_tinyphysics("data", dtype="float64")
    plainly, other, again = (
        drive(env, PID(), options={"route": path})[2]["episode_cost"]
        for path in ("data/00001.csv", "./data/00001.csv", "data/00001.csv")
    )
    assert plainly == again != other
    assert find_routes("./data")[1] == "./data/00001.csv"
    assert find_routes("data/")[1] == "data/00001.csv"


def test_what_else_draws_from_numpy_changes_nothing_and_is_not_changed(data):
    env = make_tinyphysics(str(data))
    path = str(data / "00000.csv")
    first = drive(env, PID(), options={"route": path})[0]
    np.random.seed(3)
    expected = np.random.RandomState(3).random_sample(2)
    env.reset(options={"route": path})
    assert np.random.random_sample() == expected[0]
    assert (drive(env, PID(), options={"route": path})[0] == first).all()
    assert np.random.random_sample() == expected[1]


def test_noise_may_come_from_the_seed_of_an_episode():
    env = make_tinyphysics(noise="episode")
    route = {"route": "synthetic:00004"}
    first, other, again = (
        drive(env, PID(), seed=seed, options=route)[2] for seed in (1, 2, 1)
    )
    assert first == again != other


def test_the_official_model_computes_its_last_row_alone_to_the_last_bit(official):
    model = load_model("tinyphysics.onnx")
    assert model.lean
    draw = np.random.default_rng(0)
    whole = onnxruntime.InferenceSession("tinyphysics.onnx")
    for rows in (1, 2, 5):
        states = draw.normal(size=(rows, 20, 4)).astype(np.float32)
        tokens = draw.integers(1024, size=(rows, 20))
        (logits,) = whole.run(None, {"states": states, "tokens": tokens})
        assert np.array_equal(model.logits(states, tokens), logits[:, -1])
