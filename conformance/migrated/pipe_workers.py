"""Workers behind pipes, written by hand, as in OpenAI's baselines."""

import json
import multiprocessing

import gymnasium as gym
import numpy as np


def worker(pipe, env):
    while True:
        what, value = pipe.recv()
        if what == "step":
            obs, reward, terminated, truncated, info = env.step(value)
            done = terminated or truncated
            if done:
                info["terminal_observation"] = obs
                obs, _ = env.reset()
            pipe.send((obs, reward, done, info))
        elif what == "reset":
            pipe.send(env.reset(seed=value)[0])
        else:
            env.close()
            pipe.close()
            return


class PipeEnvs:
    def __init__(self, env_fns):
        self.pipes, self.processes = [], []
        for fn in env_fns:
            ours, theirs = multiprocessing.Pipe()
            process = multiprocessing.Process(target=worker, args=(theirs, fn()))
            process.daemon = True
            process.start()
            theirs.close()
            self.pipes.append(ours)
            self.processes.append(process)

    def seed(self, seed):
        self.seeds = [seed + slot for slot in range(len(self.pipes))]

    def reset(self):
        for pipe, seed in zip(self.pipes, self.seeds, strict=True):
            pipe.send(("reset", seed))
        return np.stack([pipe.recv() for pipe in self.pipes])

    def step(self, actions):
        for pipe, action in zip(self.pipes, actions, strict=True):
            pipe.send(("step", action))
        results = [pipe.recv() for pipe in self.pipes]
        obs, rewards, dones, infos = zip(*results, strict=True)
        return np.stack(obs), np.stack(rewards), np.stack(dones), infos

    def close(self):
        for pipe in self.pipes:
            pipe.send(("close", None))
        for process in self.processes:
            process.join()


# becomes: from corral.dropin import SubprocVecEnv as Envs
Envs = PipeEnvs


def make_env():
    return gym.wrappers.TimeLimit(gym.make("CartPole-v1").unwrapped, 15)


def main():
    envs = Envs([make_env] * 3)
    envs.seed(8)
    rows = [envs.reset().tolist()]
    for step in range(60):
        obs, rewards, dones, infos = envs.step(np.array([step % 2, 1, step // 3 % 2]))
        last = [
            infos[i]["terminal_observation"].tolist() for i in np.flatnonzero(dones)
        ]
        rows.append([obs.tolist(), rewards.tolist(), dones.tolist(), last])
    envs.close()
    print(json.dumps(rows))


if __name__ == "__main__":
    main()
