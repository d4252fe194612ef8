"""DQN in one file, as CleanRL writes it; last observations go into the buffer."""

import json

import gymnasium as gym
import numpy as np
import torch

# becomes: from corral.dropin import AsyncVectorEnv
from gymnasium.vector import AsyncVectorEnv
from torch import nn

ENVS, STEPS, BATCH, GAMMA = 4, 120, 32, 0.99


def make_env():
    return gym.wrappers.TimeLimit(gym.make("CartPole-v1").unwrapped, 12)


def main():
    torch.manual_seed(2)
    torch.set_num_threads(1)
    rng = np.random.default_rng(2)
    mode = gym.vector.AutoresetMode.SAME_STEP
    envs = AsyncVectorEnv([make_env] * ENVS, autoreset_mode=mode)
    network = nn.Sequential(nn.Linear(4, 32), nn.ReLU(), nn.Linear(32, 2))
    target = nn.Sequential(nn.Linear(4, 32), nn.ReLU(), nn.Linear(32, 2))
    target.load_state_dict(network.state_dict())
    optimizer = torch.optim.Adam(network.parameters(), lr=1e-3)
    buffer, losses = [], []
    obs, _ = envs.reset(seed=2)
    for step in range(STEPS):
        with torch.no_grad():
            greedy = network(torch.as_tensor(obs)).argmax(dim=1).numpy()
        anything = rng.random(ENVS) < 0.3
        actions = np.where(anything, rng.integers(0, 2, ENVS), greedy)
        following, rewards, terminations, truncations, infos = envs.step(actions)
        real = following.copy()
        for slot in np.flatnonzero(terminations | truncations):
            real[slot] = infos["final_obs"][slot]
        for slot in range(ENVS):
            row = obs[slot], actions[slot], rewards[slot], real[slot]
            buffer.append((*row, terminations[slot]))
        obs = following
        if step % 4 == 3:
            chosen = rng.integers(0, len(buffer), BATCH)
            columns = map(np.array, zip(*[buffer[i] for i in chosen], strict=True))
            seen, done, earned, after, over = map(torch.as_tensor, columns)
            with torch.no_grad():
                best = target(after).max(dim=1).values
                wanted = earned.float() + GAMMA * best * (~over).float()
            value = network(seen).gather(1, done[:, None]).flatten()
            loss = nn.functional.mse_loss(value, wanted)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
        if step % 40 == 39:
            target.load_state_dict(network.state_dict())
    envs.close()
    finals = np.array([row[3] for row in buffer]).tolist()
    print(json.dumps({"losses": losses, "finals": finals}))


if __name__ == "__main__":
    main()
