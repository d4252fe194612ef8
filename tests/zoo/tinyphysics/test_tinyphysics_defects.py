"""What went wrong in an env of this kind that was published, and must not here."""

import numpy as np
import pytest
from driving import Constant, drive

import corral
from corral.zoo.tinyphysics import (
    PID,
    RouteOrder,
    find_routes,
    load_route,
    make_tinyphysics,
    make_tinyphysics_batched,
)

ROUTE = {"route": "synthetic:00002"}


# (a) the action never reached the simulator


def test_the_car_goes_where_it_is_steered():
    env = make_tinyphysics()
    left, straight, right = (
        drive(env, Constant(steer), options=ROUTE)[1][-1, 3]
        for steer in (-1.0, 0.0, 1.0)
    )
    assert left < straight - 1.0 < straight + 1.0 < right


def test_every_steer_is_among_what_the_model_is_shown():
    shown = []

    class Watched(type(make_tinyphysics()._model)):
        def logits(self, states, tokens):
            shown.append(states[0, :, 0].copy())
            return super().logits(states, tokens)

    env = make_tinyphysics(model=Watched())
    env.reset(options=ROUTE)
    steers = np.linspace(-2.5, 2.5, 30, dtype=np.float32)
    for steer in steers:
        env.step(np.array([steer]))
    limited = np.clip(steers, -2, 2)
    logged = load_route("synthetic:00002").steer.astype(np.float32)
    assert (shown[0] == [*logged[81:100], limited[0]]).all()
    assert (shown[-1] == limited[10:]).all()


# (b) the warm-up ended 20 rows late


def test_the_first_row_that_is_steered_is_the_first_that_counts():
    route = load_route("synthetic:00002")
    env = make_tinyphysics(dtype="float64")
    obs, info = env.reset(options=ROUTE)
    assert info == ROUTE
    assert obs[0] == route.target[100] - route.target[99]
    assert obs[3] == route.target[99]
    assert obs[4] == route.v_ego[100]
    rewards, seen, _ = drive(env, PID(), options=ROUTE)
    assert len(rewards) == 400
    assert (seen[:, 4] == route.v_ego[100:501]).all()


def test_the_sum_of_errors_begins_anew_with_every_episode():
    env = make_tinyphysics(dtype="float64")
    first = drive(env, PID(), options=ROUTE)[1]
    drive(env, Constant(2.0), options={"route": "synthetic:00001"})
    assert (drive(env, PID(), options=ROUTE)[1] == first).all()
    errors = np.diff(load_route("synthetic:00002").target[19:101])
    assert first[0, 2] == pytest.approx(errors.sum())


# (c) all workers drove the same few files


def seed_globally():
    np.random.seed(42)  # as a module did that every worker imported


@pytest.mark.parametrize("batched", [False, True])
def test_no_route_is_driven_twice_before_all_have_been(batched):
    paths = find_routes()[:13]
    order = RouteOrder(paths, num_envs=4, shuffle=7)
    make = make_tinyphysics_batched if batched else make_tinyphysics
    visited = []
    with corral.Pool(
        make,
        4,
        env_kwargs={"routes": paths},
        backend="process",
        workers=2,
        seed=0,
        sample_task=order,
        worker_init=seed_globally,
        batched=batched,
    ) as pool:
        for _ in range(6):
            pool.send_reset()
            infos = pool.recv().infos
            visited += [infos.of(slot)["route"] for slot in range(4)]
    turns = visited[:13], visited[13:]
    assert sorted(turns[0]) == paths
    assert len(set(turns[1])) == len(turns[1]) == 11
    assert turns[0][:11] != turns[1]


def test_an_env_that_knows_its_slot_takes_its_turn():
    paths = find_routes()[:6]
    envs = [make_tinyphysics(paths, slot=slot, num_envs=2) for slot in range(2)]
    visited = [env.reset(seed=5)[1]["route"] for _ in range(3) for env in envs]
    assert sorted(visited) == paths
    many = make_tinyphysics_batched(2, paths, slots=range(2), total=2)
    again = [path for _ in range(3) for path in many.reset(seed=5)[1]["route"]]
    assert again == visited


# (d) rows that no action led to were learnt from, and costs were looked for in vain


@pytest.mark.parametrize("batched", [False, True])
def test_a_rollout_has_true_rows_only_and_the_cost_of_every_episode(batched):
    make = make_tinyphysics_batched if batched else make_tinyphysics
    with corral.Pool(
        make,
        2,
        env_kwargs={"dtype": "float64"},
        backend="serial",
        seed=0,
        batched=batched,
    ) as pool:
        rollout = corral.collect(pool, PID(), steps=805)
    assert rollout.valid.all()
    assert np.flatnonzero(rollout.started[:, 0]).tolist() == [0, 400, 800]
    assert [episode.length for episode in rollout.episodes] == [400] * 4
    for episode in rollout.episodes:
        cost = episode.info["episode_cost"]
        assert cost["total"] == pytest.approx(50 * cost["lataccel"] + cost["jerk"])


def test_rewards_belong_to_the_step_that_earned_them_and_add_up_to_the_cost():
    env = make_tinyphysics(dtype="float64")
    rewards, seen, info = drive(env, PID(), options=ROUTE)
    target = load_route("synthetic:00002").target
    lataccel = seen[1:, 3]
    error = target[100:500] - lataccel
    jerk = np.diff(lataccel, prepend=lataccel[0]) / 0.1
    assert rewards == pytest.approx(-(50 * error**2 + jerk**2) / 100)
    cost = info["episode_cost"]
    assert cost["lataccel"] == pytest.approx(100 * np.mean(error**2))
    assert cost["jerk"] == pytest.approx(100 * np.sum(jerk**2) / 399)


# (e) a time limit was called an end


@pytest.mark.parametrize("whole", [False, True])
def test_the_end_of_a_route_truncates_with_a_true_observation(whole):
    env = make_tinyphysics(whole_route=whole, dtype="float64")
    rewards, seen, _ = drive(env, PID(), options=ROUTE)  # asserts: never terminated
    route = load_route("synthetic:00002")
    assert len(rewards) == (500 if whole else 400)
    last = 599 if whole else 500
    assert seen[-1, 4] == route.v_ego[last]
    assert seen[-1, 0] == route.target[last] - seen[-1, 3]
    assert (seen[-1, 6:] == 0).all() == whole
