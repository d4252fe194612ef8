"""The task families: spaces, rewards by hand, and bounds that follow from them."""

from __future__ import annotations

import gymnasium
import numpy as np
import pytest

import corral
from corral.zoo.meta import pendulum_v, point_robot

STEPS = 20


class ByHand:
    """A body of Gymnasium in the state of an env, stepped by MuJoCo itself."""

    def __init__(self, env):
        self._mujoco = pytest.importorskip("mujoco")
        inside = env.unwrapped
        self.model = self._mujoco.MjModel.from_xml_path(inside.fullpath)
        self.data = self._mujoco.MjData(self.model)
        self.data.qpos[:], self.data.qvel[:] = inside.data.qpos, inside.data.qvel
        self._mujoco.mj_forward(self.model, self.data)

    def velocity(self, action):
        """Apply the action for 0.05 s; returns the torso's velocity in x and y."""
        torso = self.data.body("torso")
        before = torso.xpos[:2].copy()
        self.data.ctrl[:] = action
        for _ in range(5):
            self._mujoco.mj_step(self.model, self.data)
        self._mujoco.mj_rnePostConstraint(self.model, self.data)
        return (torso.xpos[:2] - before) / 0.05


def played(env, task):
    """An env with this task, MuJoCo by hand in the same state, and random actions."""
    env.unwrapped.set_task(task)
    env.reset(seed=4)
    rng = np.random.default_rng(3)
    actions = rng.uniform(-1, 1, (STEPS, *env.action_space.shape)).astype(np.float32)
    return ByHand(env), actions


def trial_return(env, action, seed):
    env.reset(seed=seed)
    over, rewards = False, []
    while not over:
        _, reward, terminated, truncated, _ = env.step(action)
        rewards.append(float(reward))
        over = terminated or truncated
    return rewards


# AntDir -------------------------------------------------------------------------------


@pytest.fixture
def ant_dir():
    pytest.importorskip("mujoco")
    from corral.zoo.meta import ant_dir

    return ant_dir


@pytest.mark.parametrize("angle", [0.0, 1.0, 4.0])
def test_the_ants_reward_is_that_of_the_formula(ant_dir, angle):
    env = ant_dir.make()
    by_hand, actions = played(env, [angle])
    for action in actions:
        obs, reward, terminated, _, _ = env.step(action)
        velocity, data = by_hand.velocity(action), by_hand.data
        forward = velocity[0] * np.cos(angle) + velocity[1] * np.sin(angle)
        contact = 0.5e-3 * np.sum(np.clip(data.cfrc_ext, -1, 1) ** 2)
        expected = forward - 0.5 * np.sum(action**2) - contact + 1.0
        assert reward == pytest.approx(expected, abs=1e-9)
        assert obs == pytest.approx(np.concatenate([data.qpos[2:], data.qvel]))
        assert terminated == (not 0.2 <= data.qpos[2] <= 1.0)
    env.close()


def test_a_trial_of_the_ant_has_28_numbers_and_at_most_400_steps(ant_dir):
    assert ant_dir.make().observation_space.shape == (27,)
    env = corral.Trials(ant_dir.make(), episodes=2)
    assert env.observation_space.shape == (28,)
    for seed in range(3):  # standing still
        rewards = trial_return(env, np.zeros(8, np.float32), seed)
        assert len(rewards) == 400
        assert np.mean(rewards) == pytest.approx(1.0, abs=0.03)
    env.close()


def test_an_ant_that_falls_ends_its_episode(ant_dir):
    env = ant_dir.make()
    env.reset(seed=0)
    inside = env.unwrapped
    position = inside.data.qpos.copy()
    position[2] = 1.5
    inside.set_state(position, inside.data.qvel)
    _, _, terminated, truncated, _ = env.step(np.zeros(8, np.float32))
    assert terminated and not truncated
    env.close()


def test_directions_of_the_ant_are_those_of_the_original(ant_dir):
    rng = np.random.default_rng(0)
    two = ant_dir.make(directions="forward_backward").unwrapped
    assert {float(task[0]) for task in two.sample_tasks(20, rng)} == {-1.0, 1.0}
    around = np.ravel(ant_dir.make().unwrapped.sample_tasks(200, rng))
    assert around.min() >= 0 and 5 < around.max() <= 2 * np.pi


# The others ---------------------------------------------------------------------------


def test_the_cheetahs_reward_is_that_of_the_formula():
    pytest.importorskip("mujoco")
    from corral.zoo.meta import cheetah_vel

    env = cheetah_vel.make()
    by_hand, actions = played(env, [2.0])
    assert env.observation_space.shape == (20,)
    for action in actions:
        before = by_hand.data.qpos[0]
        obs, reward, terminated, _, _ = env.step(action)
        by_hand.velocity(action)
        speed = (by_hand.data.qpos[0] - before) / 0.05
        expected = -abs(speed - 2.0) - 0.05 * np.sum(action**2)
        assert reward == pytest.approx(expected, abs=1e-6) and reward <= 0
        assert obs[-3:] == pytest.approx(by_hand.data.body("torso").xpos)
        assert not terminated
    env.unwrapped.set_task([1.5])
    still = trial_return(env, np.zeros(6, np.float32), 0)
    assert len(still) == 200 and sum(still) == pytest.approx(-200 * 1.5, abs=3)
    env.close()


def test_a_point_is_rewarded_within_the_goals_radius():
    env = corral.Trials(point_robot.make(), episodes=2)
    goals = env.unwrapped.sample_tasks(50, np.random.default_rng(0))
    assert np.linalg.norm(goals, axis=1) == pytest.approx(1)
    assert np.array(goals)[:, 1].min() >= 0
    env.set_task(goals[0])
    total = 0.0
    obs, _ = env.reset(seed=0)
    for _ in range(120):
        assert env.observation_space.contains(obs)
        away = goals[0] - obs[:2]
        obs, reward, _, over, _ = env.step(np.clip(away, -0.5, 0.5).astype(np.float32))
        if obs[-1] == 0:  # else the next episode has begun elsewhere
            assert reward == (np.linalg.norm(obs[:2] - goals[0]) <= 0.2)
        total += reward
    assert over and 60 < total <= 120  # steps are at most 0.1 long
    env.close()


def test_the_pendulum_shows_its_velocity_alone():
    ours, theirs = pendulum_v.make(), gymnasium.make("Pendulum-v1")
    seen, whole = ours.reset(seed=3)[0], theirs.reset(seed=3)[0]
    assert ours.observation_space.shape == (1,)
    for _ in range(5):
        assert seen == whole[2:]
        seen, *ours_rest = ours.step([0.5])
        whole, *theirs_rest = theirs.step([0.5])
        assert ours_rest == theirs_rest
    ours.close()
    theirs.close()
