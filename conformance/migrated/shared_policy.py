"""One policy for all agents of PettingZoo's parallel environments, by SuperSuit."""

import json

import numpy as np
from mpe2 import simple_spread_v3

# becomes: import corral
from supersuit import concat_vec_envs_v1, pettingzoo_env_to_vec_env_v1

ENVS, AGENTS, STEPS = 2, 3, 30


def make_env():
    return simple_spread_v3.parallel_env(max_cycles=STEPS)


def main():
    # becomes: (nothing)
    rows_of_one = pettingzoo_env_to_vec_env_v1(make_env())
    # becomes: envs = corral.make_shared_policy(make_env, ENVS)
    envs = concat_vec_envs_v1(rows_of_one, ENVS, base_class="gymnasium")
    rng = np.random.default_rng(10)
    obs, _ = envs.reset(seed=10)
    rows = [obs.tolist()]
    for _ in range(STEPS):
        actions = rng.integers(0, 5, ENVS * AGENTS)
        obs, rewards, terminations, truncations, _ = envs.step(actions)
        # SuperSuit's are of single precision, and its flags are numbers.
        ends = [terminations.astype(bool).tolist(), truncations.astype(bool).tolist()]
        rows.append([rewards.astype(np.float32).tolist(), ends, obs.tolist()])
    rows[-1].pop()  # the next episodes: SuperSuit's are not seeded, ours are
    envs.close()
    print(json.dumps(rows))


if __name__ == "__main__":
    main()
