"""Episodes handed to multiprocessing's Pool, one seed each."""

import json

# becomes: import corral
import multiprocessing

import gymnasium as gym
import numpy as np


def rollout(seed):
    env = gym.make("CartPole-v1")
    rng = np.random.default_rng(seed)
    obs, _ = env.reset(seed=seed)
    rows, over = [obs.tolist()], False
    while not over:
        obs, reward, terminated, truncated, _ = env.step(int(rng.integers(2)))
        rows.append([obs.tolist(), reward])
        over = terminated or truncated
    env.close()
    return rows


def main():
    # becomes: (nothing)
    pool = multiprocessing.Pool(2)
    # becomes: results = corral.map(rollout, range(12), workers=2)
    results = pool.map(rollout, range(12))
    # becomes: (nothing)
    pool.terminate()
    print(json.dumps(results))


if __name__ == "__main__":
    main()
