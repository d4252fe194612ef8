"""A run that takes no time, envs for it, and the folder of one that never was."""

import json

from corral.train.run.directory import RunDirectory

ENVS = '''
import os, signal, gymnasium, numpy as np

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
        info = {"cost": 2.5, "energy": np.float32(0.5), "laps": np.array([3])}
        return self.seen(), reward, self.steps == 10, False, info

class Succeeds(Counting):
    """Every other episode."""
    episodes = 0

    def step(self, action):
        *result, info = super().step(action)
        if result[2]:
            self.episodes += 1
            info["is_success"] = self.episodes % 2 == 0
        return *result, info

class TurnsNan(Counting):
    after, reward = 64, float("nan")

class TurnsInfinite(Counting):
    """What it sees, once it was stepped so often."""
    after, odd = 40, np.inf

    def seen(self):
        return super().seen() + np.float32(self.odd if self.total > self.after else 0)

class TurnsUnseen(TurnsInfinite):
    odd = np.nan

class Impatient(Counting):
    """Ctrl-C, twice, from whoever sits before it."""
    after = 60

    def step(self, action):
        if self.total > self.after:
            signal.raise_signal(signal.SIGINT)
            signal.raise_signal(signal.SIGINT)
        return super().step(action)

class Endless(Counting):
    """Nobody ends it; it can be seen."""
    metadata = {"render_modes": ["rgb_array"], "render_fps": 20}

    def __init__(self, render_mode=None):
        self.render_mode = render_mode

    def step(self, action):
        self.steps += 1
        return self.seen(), 1.0, False, False, {}

    def render(self):
        return np.full((8, 8, 3), self.steps % 3 * 90, np.uint8)

class Gated(Endless):
    """Where it is drawn, it waits for somebody to open the gate."""
    place = "render"

    def __init__(self, render_mode=None):
        super().__init__(render_mode)
        self.pass_gate("construct")

    def pass_gate(self, place):
        if self.render_mode is not None and self.place == place:
            open("gate").read()

    def render(self):
        if self.steps == 2:
            self.pass_gate("render")
        return super().render()

class GatedBefore(Gated):
    place = "construct"

class Unseen(Endless):
    def render(self):
        raise RuntimeError("no screen\\nto draw on")

class SometimesBreaks(Counting):
    """Some episodes, by their seeds."""
    def reset(self, *, seed=None, options=None):
        seen = super().reset(seed=seed)
        self.bad = seed is not None and seed % 7 == 0
        return seen

    def step(self, action):
        if self.bad and self.steps == 4:
            raise RuntimeError("broken")
        return super().step(action)

class Breaks(Counting):
    def step(self, action):
        raise RuntimeError("broken")

class Once(Counting):
    """Takes its process down, once."""
    def step(self, action):
        if not os.path.exists("ended"):
            open("ended", "w").close()
            os.kill(os.getpid(), signal.SIGKILL)
        return super().step(action)

class Led(Counting):
    """Sees how high its episode began; can be told to take its process down."""
    height, doomed = 0.9, False

    def reset(self, *, seed=None, options=None):
        self.began = self.height
        return super().reset(seed=seed)

    def seen(self):
        return np.full(2, self.began, np.float32)

    def step(self, action):
        if self.doomed:
            os.kill(os.getpid(), signal.SIGKILL)
        return super().step(action)

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


def made(folder, metrics, **about):
    """A run's directory with these metrics."""
    folder.mkdir()
    lines = "".join(json.dumps(line) + "\n" for line in metrics)
    (folder / "metrics.jsonl").write_text(lines)
    (folder / "about.json").write_text(json.dumps({"title": "a run", **about}))
    (folder / "config.yaml").write_text("env: CartPole-v1\n# signature: abc\n")
    return RunDirectory(folder)
