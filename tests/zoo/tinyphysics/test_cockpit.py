"""The cockpit: other observations, and turns of the wheel instead of steers."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

pytest.importorskip("onnx", reason="the simulator is an ONNX model")
pytest.importorskip("onnxruntime", reason="the simulator is an ONNX model")

from corral import Pool
from corral.zoo.tinyphysics import load_route, make_tinyphysics, write_route
from corral.zoo.tinyphysics.cockpit import (
    TURN,
    make_cockpit,
    make_cockpit_batched,
    turn_of_pid,
)

ROUTES = [{"route": f"synthetic:{number:05d}"} for number in range(3)]


def test_one_car_and_many_are_shown_and_do_the_same():
    with (
        Pool(make_cockpit, 3, backend="serial", seed=1) as alone,
        Pool(make_cockpit_batched, 3, backend="serial", seed=1, batched=True) as many,
    ):
        assert alone.spec.observation_space == many.spec.observation_space
        one, other = alone.reset(tasks=ROUTES), many.reset(tasks=ROUTES)
        draw = np.random.default_rng(0)
        for _ in range(401):
            np.testing.assert_array_equal(one.obs, other.obs)
            turns = turn_of_pid(one.obs) + 0.3 * draw.normal(size=(3, 1))
            one, other = (pool.step(turns.astype(np.float32)) for pool in (alone, many))
            np.testing.assert_array_equal(one.reward, other.reward)
        assert one.seed.tolist() == other.seed.tolist()


def test_a_pid_controller_turns_the_wheel_as_it_steers():
    """But for the first turn: it begins elsewhere than the wheel was left."""
    seen = make_tinyphysics(dtype="float64", road="lataccel")
    cockpit = make_cockpit()
    obs, _ = seen.reset(seed=0, options=ROUTES[0])
    shown, _ = cockpit.reset(seed=0, options=ROUTES[0])
    steer = float(obs[-1])
    for _ in range(50):
        turn = turn_of_pid(shown[None])[0]
        steer = np.clip(steer + TURN * float(turn[0]), -2, 2)
        shown, reward, *_ = cockpit.step(turn)
        obs, theirs, *_ = seen.step(np.array([steer], np.float32))
        assert reward == pytest.approx(theirs, abs=1e-6)
        assert obs[-1] == pytest.approx(steer, abs=1e-6)


def test_an_unmoved_wheel_keeps_its_place_and_is_within_its_limits():
    env = make_cockpit()
    env.reset(seed=0, options=ROUTES[1])
    env.step(np.array([1000.0], np.float32))
    held = [env.step(np.array([0.0], np.float32))[0][-12:-6] for _ in range(2)]
    assert held[0][0] == 0.0 and held[0][1] > 0.0
    assert held[1][:2].tolist() == [0.0, 0.0] and held[1][2] == held[0][1]


def test_where_the_car_stands_the_road_ahead_is_still_worth_something(tmp_path):
    route = load_route("synthetic:00002")
    standing = replace(route, v_ego=np.full(len(route), 1e-4))
    write_route(standing, tmp_path / "standing.csv")
    env = make_cockpit(str(tmp_path / "standing.csv"))
    shown, _ = env.reset(seed=0)
    ahead = shown[7:19] / 5.0
    wanted = route.target[101:113] - route.roll_lataccel[101:113]
    now = route.target[100] - route.roll_lataccel[100]
    np.testing.assert_allclose(ahead, wanted - now, atol=1e-5)
