"""Stable-Baselines3's wrappers around vector envs, and questions to the envs."""

import json

import gymnasium as gym
import numpy as np
from stable_baselines3.common.vec_env import VecFrameStack, VecMonitor

# becomes: from corral.dropin import DummyVecEnv, SubprocVecEnv
from stable_baselines3.common.vec_env.dummy_vec_env import DummyVecEnv

# becomes: (nothing)
from stable_baselines3.common.vec_env.subproc_vec_env import SubprocVecEnv


class Camera(gym.Env):
    """Small pictures of a point that moves, in a light that can be set."""

    observation_space = gym.spaces.Box(0, 255, (8, 8, 1), np.uint8)
    action_space = gym.spaces.Discrete(4)
    light = 200

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.at = self.np_random.integers(0, 8, 2)
        self.left = int(self.np_random.integers(3, 12))
        return self.picture(), {"left": self.left}

    def step(self, action):
        move = ((0, 1), (1, 0), (0, -1), (-1, 0))[action]
        self.at = (self.at + move) % 8
        self.left -= 1
        reward = float(self.at.sum()) / 8
        return self.picture(), reward, False, self.left == 0, {"left": self.left}

    def picture(self):
        picture = np.zeros((8, 8, 1), np.uint8)
        picture[tuple(self.at)] = self.light
        return picture

    def brighten(self, by):
        self.light += by
        return self.light


def rows_of(kind):
    envs = VecFrameStack(VecMonitor(kind([Camera] * 3)), n_stack=2)
    envs.seed(4)
    rows = [envs.reset().tolist()]
    for step in range(40):
        obs, rewards, dones, infos = envs.step(np.arange(step, step + 3) % 4)
        ends = [info["episode"]["r"].item() for info in infos if "episode" in info]
        last = [
            infos[i]["terminal_observation"].tolist() for i in np.flatnonzero(dones)
        ]
        left = [info["left"] for info in infos]
        rows.append([obs.tolist(), rewards.tolist(), dones.tolist(), ends, last, left])
        if step == 10:
            rows.append(envs.env_method("brighten", 20, indices=[0, 2]))
        if step == 20:
            envs.set_attr("light", 90, indices=1)
            rows.append(envs.get_attr("light"))
    envs.close()
    return rows


def main():
    print(json.dumps([rows_of(DummyVecEnv), rows_of(SubprocVecEnv)]))


if __name__ == "__main__":
    main()
