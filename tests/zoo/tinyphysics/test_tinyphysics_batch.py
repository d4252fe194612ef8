"""Many cars in one call drive as each would alone."""

from dataclasses import fields, replace
from types import SimpleNamespace

import numpy as np
import pytest
from driving import drive
from gymnasium.error import ResetNeeded

from corral.errors import OptionError
from corral.zoo.tinyphysics import (
    PID,
    find_routes,
    load_route,
    make_tinyphysics,
    make_tinyphysics_batched,
    write_route,
)

PATHS = find_routes()[:3]
COST = ("lataccel", "jerk", "total")


def steers(slot):
    return np.random.default_rng(slot).uniform(-1, 1, 400).astype(np.float32)


def test_slots_do_as_single_envs_do_wherever_they_are():
    """Slot 2 begins late, slot 1 pauses; every row is what a single env returns."""
    ours = make_tinyphysics_batched(3, noise="episode", scaled=True)
    singles = [make_tinyphysics(noise="episode", scaled=True) for _ in range(3)]
    tasks = [{"route": path} for path in PATHS]
    seeds = [11, 12, 13]
    ours.reset(seed=seeds, options={"tasks": tasks})
    seen = [
        env.reset(seed=seed, options=task)[0]
        for env, seed, task in zip(singles, seeds, tasks, strict=True)
    ]
    taken = [0, 0, 0]
    for number in range(600):
        if number == 5:  # again, after five steps
            mask = np.array([False, False, True])
            obs, infos = ours.reset(
                seed=[None, None, 99],
                options={"reset_mask": mask, "tasks": [None, None, tasks[0]]},
            )
            seen[2] = singles[2].reset(seed=99, options=tasks[0])[0]
            taken[2] = 0
            assert (obs == np.array(seen)).all()
            assert infos["_route"].tolist() == mask.tolist()
        moving = np.array([each < 400 for each in taken])
        moving[1] &= number % 7 != 3
        if not moving.any():
            continue
        actions = np.array([[steers(slot)[min(taken[slot], 399)]] for slot in range(3)])
        whole = None if moving.all() else moving
        obs, rewards, terminated, truncated, infos = ours.step(actions, whole)
        for slot in np.flatnonzero(moving):
            alone = singles[slot].step(actions[slot])
            seen[slot], taken[slot] = alone[0], taken[slot] + 1
            assert (rewards[slot], terminated[slot], truncated[slot]) == alone[1:4]
            if alone[3]:
                cost = {key: infos["episode_cost"][key][slot] for key in COST}
                assert cost == alone[4]["episode_cost"]
        assert (obs == np.array(seen)).all()
    assert taken == [400, 400, 400]


def test_routes_of_different_lengths_stand_side_by_side(tmp_path):
    paths = []
    for number, rows in enumerate((500, 700)):
        route = load_route(f"synthetic:{number:05d}")
        paths.append(str(tmp_path / f"{number}.csv"))
        write_route(resized(route, rows), paths[-1])
    options = {"whole_route": True, "dtype": "float64"}
    ours = make_tinyphysics_batched(2, paths, **options)
    tasks = {"tasks": [{"route": path} for path in paths]}
    obs, _ = ours.reset(options=tasks)
    costs, over = {}, np.zeros(2, bool)
    while not over.all():
        actions = PID().act(SimpleNamespace(obs=obs)).action
        obs, _, _, truncated, infos = ours.step(actions, ~over)
        over |= truncated
        for slot in np.flatnonzero(truncated):
            costs[paths[slot]] = infos["episode_cost"]["total"][slot]
    env = make_tinyphysics(paths, **options)
    for path in paths:
        info = drive(env, PID(), options={"route": path})[2]
        assert info["episode_cost"]["total"] == costs[path]


def resized(route, rows):
    arrays = {
        one.name: np.resize(getattr(route, one.name), rows)
        for one in fields(route)
        if one.name not in ("path", "steer")
    }
    return replace(route, **arrays)


def test_a_reset_that_fails_leaves_every_slot_as_it_was():
    ours, other = make_tinyphysics_batched(2), make_tinyphysics_batched(2)
    tasks = [{"route": path} for path in PATHS[:2]]
    for envs in (ours, other):
        envs.reset(options={"tasks": tasks})
        envs.step(np.zeros((2, 1)))
    with pytest.raises(OptionError, match=r"missing.csv cannot be read"):
        ours.reset(options={"tasks": [{"route": PATHS[2]}, {"route": "missing.csv"}]})
    ahead = np.ones((2, 1))
    for one, two in zip(ours.step(ahead), other.step(ahead), strict=True):
        assert np.array_equal(one, two)
    by_turns = {"slots": range(2), "total": 2, "shuffle": None}
    ours = make_tinyphysics_batched(2, [*PATHS, "missing.csv"], **by_turns)
    ours.reset()
    with pytest.raises(OptionError, match=r"missing.csv cannot be read"):
        ours.reset()
    _, infos = ours.reset(options={"reset_mask": np.array([True, False])})
    assert infos["route"][0] == PATHS[2], "its turn was not lost"


def test_what_is_over_is_not_stepped():
    ours = make_tinyphysics_batched(2)
    with pytest.raises(ResetNeeded, match=r"\[0, 1\] are over"):
        ours.step(np.zeros((2, 1)))
    ours.reset(seed=0, options={"reset_mask": np.array([True, False])})
    with pytest.raises(ResetNeeded, match=r"\[1\] are over"):
        ours.step(np.zeros((2, 1)))
    with pytest.raises(ResetNeeded):
        make_tinyphysics().step(np.zeros(1))


def test_a_steer_that_is_no_number_is_refused():
    env, envs = make_tinyphysics(), make_tinyphysics_batched(2)
    env.reset(options={"route": PATHS[0]})
    envs.reset(options={"tasks": PATHS[:2]})
    with pytest.raises(OptionError, match="row 100 of synthetic:00000 is nan"):
        env.step(np.array([np.nan]))
    with pytest.raises(OptionError, match="slot 1 at row 100 of synthetic:00001"):
        envs.step(np.array([[0.0], [np.nan]]))
    with pytest.raises(OptionError, match=r"shape \(1, 1\); expected \(2, 1\)"):
        envs.step(np.zeros((1, 1)))
