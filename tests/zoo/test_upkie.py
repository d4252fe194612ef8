"""The published robot: slots do as a lone one does, whatever happens to the others."""

import functools
import os
import pickle
import signal

import numpy as np
import pytest

pytest.importorskip(
    "upkie", reason="the robot: pip install 'corral[upkie]', with Python up to 3.11"
)
pytest.importorskip("pybullet", reason="the simulator of the robot")

import corral
from corral.zoo.upkie import make

# Nothing of this module, which workers would import, and pytest with it.
endless = functools.partial(make, max_steps=None)


def balancing(obs):
    """The balancer of the robot's README: 10 pitch + p + 0.1 v."""
    gains = np.array([10.0, 1.0, 0.0, 0.1])
    return (obs @ gains)[..., None].astype(np.float32)


def lone(seed, steps):
    """One robot, by Gymnasium's own API."""
    env = endless()
    seen = [env.reset(seed=seed)[0]]
    for _ in range(steps):
        obs, _, terminated, truncated, _ = env.step(balancing(seen[-1]))
        assert not (terminated or truncated)
        seen.append(obs)
    env.close()
    return np.array(seen)


def led(pool, obs, steps, slots=None):
    """These slots with the balancer, from there on; returns observations by slot."""
    seen, ended = [obs], False
    for _ in range(steps):
        step = pool.step(balancing(seen[-1]), slots)
        ended |= step.ended
        seen.append(step.obs)
    return np.stack(seen, 1), ended


def test_slots_do_as_a_lone_robot_also_when_the_simulator_of_another_is_killed():
    options = {"isolation": "slot", "on_fault": "restart"}
    with corral.Pool(endless, 2, **options) as pool:
        before, _ = led(pool, pool.reset(seeds=[3, 3]).obs, 80)
        os.kill(pool.stats().workers[1].pid, signal.SIGKILL)
        after, _ = led(pool, before[:1, -1], 40, slots=[0])
    alone = lone(3, 120)
    assert np.array_equal(before[1], alone[:81])
    assert np.array_equal(np.concatenate([before[0], after[0, 1:]]), alone)


def rows_of(env):
    """Everything that an env returns, step by step, as bytes."""
    env.action_space.seed(7)
    yield pickle.dumps(env.reset(seed=7))
    while True:
        outcome = env.step(env.action_space.sample())
        yield pickle.dumps(outcome)
        if outcome[2] or outcome[3]:
            yield pickle.dumps(env.reset())


def rows_of_a_lone_one(kind, steps):
    """The published package, alone in this process."""
    env = make(env_id=f"Upkie-PyBullet-{kind}", max_steps=steps // 2)
    rows = rows_of(env)
    found = [next(rows) for _ in range(steps)]
    env.close()
    return found


def check_together(kind, count, steps):
    """Robots by turns in one process, one of them closed early."""
    alone = rows_of_a_lone_one(kind, steps)
    together = {"env_id": f"Upkie-PyBullet-{kind}", "in_process": True}
    robots = [make(**together, max_steps=steps // 2) for _ in range(count)]
    runs = [rows_of(robot) for robot in robots]
    for number, row in enumerate(alone):
        if number == steps // 3:
            runs.pop(0).close()
            robots.pop(0).close()
        assert all(next(run) == row for run in runs), (kind, number)
    for robot in robots:
        robot.close()


@pytest.mark.parametrize("kind", ["Pendulum", "Servos"])
def test_robots_in_one_process_do_as_a_lone_one_also_when_another_is_closed(kind):
    check_together(kind, 3, 30)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["Pendulum", "Servos", "Gyropod"])
def test_eight_robots_in_one_process_do_as_a_lone_one(kind):
    check_together(kind, 9, 400)


def test_robots_that_share_a_process_are_placed_in_this_one():
    make_robot = functools.partial(make, in_process=True)
    with corral.Pool(make_robot, 2, backend="serial") as pool:
        seen, _ = led(pool, pool.reset(seeds=[3, 3]).obs, 5)
        assert pool.layout.workers == 1
    assert np.array_equal(seen[0], seen[1]) and np.array_equal(seen[0], lone(3, 5))


def test_an_id_that_the_package_does_not_have_is_refused_with_those_that_it_has():
    with pytest.raises(corral.errors.OptionError, match="Upkie-PyBullet-Servos"):
        make(env_id="Upkie-PyBullet-Servo")


@pytest.mark.parametrize("in_process", [False, True])
def test_frames_show_the_robot(in_process):
    env = make(render_mode="rgb_array", in_process=in_process)
    env.reset(seed=0)
    first = env.render()
    assert (first.shape, first.dtype) == ((240, 320, 3), np.uint8)
    middle = first[60:180, 120:200].reshape(-1, 3)
    body = (middle[:, 0] > middle[:, 2] + 40).mean()  # its case is brown
    assert 0.05 < body < 0.9
    for _ in range(10):
        env.step(np.full(1, 3.0, np.float32))
    assert np.abs(env.render().astype(int) - first).mean() > 1
    env.close()


@pytest.mark.slow
def test_eight_robots_never_fall():
    with corral.Pool(endless, 8) as pool:
        assert (pool.layout.backend, pool.layout.workers) == ("process", 8)
        assert "one process per slot, since" in pool.layout.reason
        seen, ended = led(pool, pool.reset(seeds=range(8)).obs, 2000)
    assert not ended.any()
    assert np.abs(seen[:, :, 0]).max() < 0.5
    each_alone = functools.partial(lone, steps=2000)
    alone = corral.map(each_alone, range(8), backend="process")
    assert np.array_equal(seen, alone)


@pytest.mark.slow
def test_a_robot_whose_simulator_was_killed_gets_a_new_one():
    options = {"isolation": "slot", "on_fault": "restart"}
    with corral.Pool(endless, 3, **options) as pool:
        undisturbed, _ = led(pool, pool.reset(seeds=range(3)).obs, 60)
        start = pool.reset(seeds=range(3)).obs
        os.kill(pool.stats().workers[1].pid, signal.SIGKILL)
        seen, ended = led(pool, start, 60)
    assert ended.tolist() == [False, True, False]
    for slot in (0, 2):
        assert np.array_equal(seen[slot], undisturbed[slot])


def test_two_robots_in_one_process_are_refused_with_the_remedy():
    with pytest.raises(corral.errors.IsolationError, match="must not share") as caught:
        corral.Pool(endless, 2, backend="process", workers=1)
    assert 'give each env a process: isolation="slot"' in str(caught.value)
