"""AgileRL's vector environment of PettingZoo environments, stepped by hand."""

import json

import numpy as np

# becomes: from corral.dropin import AsyncPettingZooVecEnv
from agilerl.vector import AsyncPettingZooVecEnv
from mpe2 import simple_speaker_listener_v4

ENVS = 3


def make_env():
    return simple_speaker_listener_v4.parallel_env(max_cycles=7)


def main():
    envs = AsyncPettingZooVecEnv([make_env for _ in range(ENVS)])
    rng = np.random.default_rng(11)
    obs, _ = envs.reset(seed=11)
    rows = [{agent: obs[agent].tolist() for agent in envs.agents}]
    for _ in range(25):
        actions = {
            agent: rng.integers(0, envs.single_action_space(agent).n, ENVS)
            for agent in envs.agents
        }
        obs, rewards, terminations, truncations, _ = envs.step(actions)
        for batch in (obs, rewards, terminations, truncations):
            rows.append({agent: np.asarray(batch[agent]).tolist() for agent in batch})
    envs.close()
    print(json.dumps(rows))


if __name__ == "__main__":
    main()
