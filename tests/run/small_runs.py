"""A run that takes no time, and envs for it."""

ENVS = '''
import gymnasium, numpy as np

class Counting(gymnasium.Env):
    """Ends after ten steps; rewards are as told."""
    observation_space = gymnasium.spaces.Box(-1, 1, (2,))
    action_space = gymnasium.spaces.Discrete(2)
    after, reward = 10**9, 1.0

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.steps = 0
        return self.seen(), {}

    def seen(self):
        return self.np_random.uniform(-1, 1, 2).astype(np.float32)

    total = 0

    def step(self, action):
        self.steps += 1
        self.total += 1
        reward = self.reward if self.total > self.after else 1.0
        return self.seen(), reward, self.steps == 10, False, {"cost": 2.5}

class TurnsNan(Counting):
    after, reward = 64, float("nan")

class Wider(Counting):
    observation_space = gymnasium.spaces.Box(-1, 1, (3,))

    def seen(self):
        return np.zeros(3, np.float32)
'''

SMALL = {
    "backend": "serial",
    "num_envs": 2,
    "total_steps": 192,
    "ppo.n_steps": 16,
    "ppo.batch_size": 16,
    "ppo.n_epochs": 2,
    "ppo.hidden": [8],
    "evaluate_every": 3,
    "evaluate_episodes": 2,
    "final_episodes": 3,
    "checkpoint_every": 3,
    "video": "never",
}
"""Six updates of 32 steps, saved and evaluated twice."""
