"""A notebook whose environment is defined in a cell; `# %%` begins a cell."""

# %%
import json

import gymnasium as gym
import numpy as np

# becomes: from corral.dropin import AsyncVectorEnv
from gymnasium.vector import AsyncVectorEnv

scale = 0.5


# %%
class Drift(gym.Env):
    observation_space = gym.spaces.Dict(
        {"at": gym.spaces.Box(-9, 9, (2,), np.float64), "time": gym.spaces.Discrete(50)}
    )
    action_space = gym.spaces.Box(-1, 1, (2,), np.float64)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.at, self.time = self.np_random.normal(size=2), 0
        return self.seen(), {}

    def seen(self):
        return {"at": self.at.clip(-9, 9), "time": self.time}

    def step(self, action):
        self.at = self.at + scale * action + 0.1 * self.np_random.normal(size=2)
        self.time += 1
        far = bool(np.abs(self.at).max() > 2)
        info = {"distance": float(np.abs(self.at).max()), "name": f"step {self.time}"}
        return self.seen(), -info["distance"], far, self.time == 20, info


# %%
envs = AsyncVectorEnv([Drift] * 3)
obs, _ = envs.reset(seed=9)
rows = [obs["at"].tolist()]
rng = np.random.default_rng(9)
for _ in range(50):
    actions = rng.uniform(-1, 1, (3, 2))
    obs, rewards, terminations, truncations, infos = envs.step(actions)
    ends = [terminations.tolist(), truncations.tolist()]
    told = [infos.get("distance", rewards).tolist(), list(infos.get("name", []))]
    seen = [obs["at"].tolist(), obs["time"].tolist()]
    rows.append([seen, rewards.tolist(), ends, told])

# %%
envs.close()
print(json.dumps(rows))
