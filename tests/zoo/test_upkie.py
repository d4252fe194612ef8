"""The published robot: slots do as a lone one does, whatever happens to the others."""

import functools
import os
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


@pytest.mark.slow
def test_two_robots_in_one_process_are_refused_with_the_remedy():
    with corral.Pool(endless, 2, backend="process", workers=1) as pool:
        with pytest.raises(corral.errors.EnvError, match="getJointState") as caught:
            pool.reset()
        assert 'without them: isolation="slot"' in str(caught.value)
