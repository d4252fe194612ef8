"""sb3-contrib's MaskablePPO and RecurrentPPO."""

import json

import gymnasium as gym
import numpy as np
import torch
from sb3_contrib import MaskablePPO, RecurrentPPO

# becomes: from corral.dropin import SubprocVecEnv
from stable_baselines3.common.vec_env import SubprocVecEnv


class Corridor(gym.Env):
    """Walks between walls; steps into a wall are masked."""

    observation_space = gym.spaces.Box(0, 6, (1,), np.float32)
    action_space = gym.spaces.Discrete(3)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.at, self.left = int(self.np_random.integers(0, 7)), 9
        return np.array([self.at], np.float32), {}

    def step(self, action):
        if self.action_masks()[action]:
            self.at += int(action) - 1
        self.left -= 1
        seen = np.array([self.at], np.float32)
        return seen, float(self.at == 6), False, self.left == 0, {}

    def action_masks(self):
        return np.array([self.at > 0, True, self.at < 6])


def weights_of(kind, policy):
    envs = SubprocVecEnv([Corridor] * 3)
    model = kind(policy, envs, n_steps=32, batch_size=48, n_epochs=2, seed=6)
    model.learn(192)
    envs.close()
    return [p.detach().double().sum().item() for p in model.policy.parameters()]


def main():
    torch.set_num_threads(1)
    masked = weights_of(MaskablePPO, "MlpPolicy")
    recurrent = weights_of(RecurrentPPO, "MlpLstmPolicy")
    print(json.dumps([masked, recurrent]))


if __name__ == "__main__":
    main()
