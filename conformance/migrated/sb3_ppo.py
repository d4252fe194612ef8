"""Stable-Baselines3's PPO: make_vec_env, VecNormalize, an EvalCallback."""

import json
import tempfile

import torch
from stable_baselines3 import PPO
from stable_baselines3.common.callbacks import EvalCallback
from stable_baselines3.common.env_util import make_vec_env

# becomes: from corral.dropin import SubprocVecEnv
# becomes: from stable_baselines3.common.vec_env import VecNormalize
from stable_baselines3.common.vec_env import SubprocVecEnv, VecNormalize


def main():
    torch.set_num_threads(1)
    train = make_vec_env("CartPole-v1", n_envs=4, seed=3, vec_env_cls=SubprocVecEnv)
    test = make_vec_env("CartPole-v1", n_envs=2, seed=5, vec_env_cls=SubprocVecEnv)
    envs = VecNormalize(train)
    held_out = VecNormalize(test, training=False, norm_reward=False)
    with tempfile.TemporaryDirectory() as folder:
        callback = EvalCallback(
            held_out,
            n_eval_episodes=4,
            eval_freq=64,
            log_path=folder,
            best_model_save_path=folder,
            verbose=0,
        )
        model = PPO("MlpPolicy", envs, n_steps=64, batch_size=64, n_epochs=3, seed=3)
        model.learn(512, callback=callback)
        scores = [list(map(float, one)) for one in callback.evaluations_results]
    weights = [p.detach().double().sum().item() for p in model.policy.parameters()]
    mean, variance = envs.obs_rms.mean.tolist(), envs.ret_rms.var.item()
    envs.close()
    held_out.close()
    print(json.dumps([weights, scores, mean, variance]))


if __name__ == "__main__":
    main()
