"""Wheeled pendulums in one process do not know of each other."""

from functools import partial

import numpy as np
import pytest

pytest.importorskip("pybullet", reason="the simulator; it has wheels up to Python 3.11")

from broken_pendulum import BrokenPendulum, LeavingPendulum

import corral
from corral.zoo.bullet_pendulum import BulletPendulum

GAINS = np.array([5.0, 0.5, 0.5, 1.0])


def balancing(obs):
    return np.clip(obs @ GAINS, -1, 1)[..., None].astype(np.float32)


def led(envs, steps, balance=balancing):
    """Interleaved: every env a step, then every env the next."""
    seen = [[env.reset(seed=seed)[0]] for seed, env in enumerate(envs)]
    for _ in range(steps):
        for rows, env in zip(seen, envs, strict=True):
            rows.append(env.step(balance(rows[-1]))[0])
    return [np.array(rows) for rows in seen]


def each_alone(kind, count, steps):
    trajectories = []
    for seed in range(count):
        env = kind()
        obs = [env.reset(seed=seed)[0]]
        for _ in range(steps):
            obs.append(env.step(balancing(obs[-1]))[0])
        env.close()
        trajectories.append(np.array(obs))
    return trajectories


@pytest.mark.parametrize("kind", [BulletPendulum, BrokenPendulum])
def test_side_by_side_as_alone_unless_client_ids_are_left_out(kind):
    alone = each_alone(kind, 3, 30)
    envs = [kind() for _ in range(3)]
    try:
        beside = led(envs, 30)
    finally:
        for env in envs:
            env.close()
    same = all(map(np.array_equal, alone, beside))
    assert same == (kind is BulletPendulum)


def test_closing_one_leaves_the_others():
    first, second = BulletPendulum(), BulletPendulum()
    second.reset(seed=0)
    first.close()
    first.close()
    _, reward, terminated, _, _ = second.step(np.zeros(1, np.float32))
    assert reward == 1.0 and not terminated
    second.close()


def test_a_linear_balancer_keeps_it_up_and_nobody_does_not():
    env = BulletPendulum(max_steps=400)
    for seed in range(3):
        obs, _ = env.reset(seed=seed)
        truncated = terminated = False
        while not (terminated or truncated):
            obs, _, terminated, truncated, _ = env.step(balancing(obs))
        assert truncated and abs(obs[0]) < 0.1
    env.reset(seed=0)
    steps = 1
    while not env.step(np.zeros(1, np.float32))[2]:
        steps += 1
    assert 20 < steps < 100
    env.close()


def test_episodes_repeat_themselves_also_in_an_env_that_was_used():
    env = BulletPendulum()
    (first,) = led([env], 20)
    led([env], 7)
    (again,) = led([env], 20)
    env.close()
    assert np.array_equal(first, again)


def test_it_can_be_seen():
    env = BulletPendulum(render_mode="rgb_array")
    env.reset(seed=0)
    picture = env.render()
    env.close()
    assert picture.shape == (240, 320, 3) and picture.std() > 5


def led_in(pool, steps):
    rows = [pool.reset(seeds=range(pool.num_envs)).obs]
    for _ in range(steps):
        rows.append(pool.step(balancing(rows[-1])).obs)
    return np.stack(rows, 1)


def test_slots_of_one_process_do_as_a_lone_env():
    alone = each_alone(BulletPendulum, 4, 15)
    with corral.Pool(BulletPendulum, 4, backend="process", workers=1) as pool:
        assert np.array_equal(led_in(pool, 15), np.stack(alone))


def test_auto_gives_the_broken_one_a_process_each():
    alone = each_alone(BulletPendulum, 3, 15)
    with corral.Pool(BrokenPendulum, 3) as pool:
        assert (pool.layout.backend, pool.layout.workers) == ("process", 3)
        assert "one process per slot" in pool.layout.reason
        assert np.array_equal(led_in(pool, 15), np.stack(alone))


def test_one_that_takes_the_simulator_from_another_is_told_of(tmp_path, monkeypatch):
    envs = [partial(LeavingPendulum, max_steps=steps) for steps in (5, 20)]
    asked = {"backend": "process", "workers": 1, "autoreset": "next_step"}
    with corral.Pool(envs, isolation="shared", **asked) as pool:
        with pytest.raises(corral.errors.EnvError, match="Not connected") as caught:
            led_in(pool, 20)
        assert caught.value.fault.slot == 1
        assert "if envs interfere: " in str(caught.value)
    caught.value.fault.save(tmp_path / "fault.zip")
    monkeypatch.setattr("corral.tools.doctor.neighbours.RUNS", 1)
    replayed = corral.replay(tmp_path / "fault.zip", backend="process")
    assert replayed.reproduced is False and replayed.neighbours.interferes
