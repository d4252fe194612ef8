"""PPO in one file, as CleanRL writes it, on CartPole."""

import json

import gymnasium as gym
import numpy as np
import torch

# becomes: from corral.dropin import SyncVectorEnv
from gymnasium.vector import SyncVectorEnv
from torch import nn
from torch.distributions import Categorical

ENVS, STEPS, UPDATES, GAMMA, LAMBDA = 4, 32, 3, 0.99, 0.95


def make_env(index):
    def thunk():
        env = gym.make("CartPole-v1")
        env = gym.wrappers.RecordEpisodeStatistics(env)
        env.action_space.seed(index)
        return env

    return thunk


class Agent(nn.Module):
    def __init__(self):
        super().__init__()
        self.critic = nn.Sequential(nn.Linear(4, 32), nn.Tanh(), nn.Linear(32, 1))
        self.actor = nn.Sequential(nn.Linear(4, 32), nn.Tanh(), nn.Linear(32, 2))

    def act(self, obs, action=None):
        chances = Categorical(logits=self.actor(obs))
        action = chances.sample() if action is None else action
        value = self.critic(obs).flatten()
        return action, chances.log_prob(action), chances.entropy(), value


def main():
    torch.manual_seed(1)
    torch.set_num_threads(1)
    envs = SyncVectorEnv([make_env(i) for i in range(ENVS)])
    agent = Agent()
    optimizer = torch.optim.Adam(agent.parameters(), lr=2.5e-4, eps=1e-5)
    obs = torch.zeros((STEPS, ENVS, 4))
    actions, logs, rewards, dones, values = torch.zeros((5, STEPS, ENVS))
    episodes = []
    now, _ = envs.reset(seed=1)
    now, done = torch.Tensor(now), torch.zeros(ENVS)
    for _ in range(UPDATES):
        for step in range(STEPS):
            obs[step], dones[step] = now, done
            with torch.no_grad():
                action, logs[step], _, values[step] = agent.act(now)
            actions[step] = action
            now, reward, terminated, truncated, infos = envs.step(action.numpy())
            rewards[step] = torch.tensor(reward)
            now, done = torch.Tensor(now), torch.Tensor(terminated | truncated)
            if "episode" in infos:
                ended = infos["_episode"]
                episodes += infos["episode"]["r"][ended].tolist()
        with torch.no_grad():
            following = agent.act(now)[3]
        advantages, last = torch.zeros_like(rewards), 0
        for step in reversed(range(STEPS)):
            end = step == STEPS - 1
            goes_on = 1.0 - (done if end else dones[step + 1])
            value = following if end else values[step + 1]
            delta = rewards[step] + GAMMA * value * goes_on - values[step]
            advantages[step] = last = delta + GAMMA * LAMBDA * goes_on * last
        returns = (advantages + values).flatten()
        flat = advantages.flatten()
        order = np.random.default_rng(1).permutation(STEPS * ENVS)
        for part in np.array_split(order, 4):
            _, log, entropy, value = agent.act(
                obs.reshape(-1, 4)[part], actions.flatten()[part]
            )
            ratio = (log - logs.flatten()[part]).exp()
            gain = torch.min(flat[part] * ratio, flat[part] * ratio.clamp(0.8, 1.2))
            loss = ((value - returns[part]) ** 2).mean() - gain.mean()
            loss = loss - 0.01 * entropy.mean()
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(agent.parameters(), 0.5)
            optimizer.step()
    envs.close()
    weights = [p.detach().double().sum().item() for p in agent.parameters()]
    print(json.dumps({"weights": weights, "episodes": episodes, "obs": obs.tolist()}))


if __name__ == "__main__":
    main()
