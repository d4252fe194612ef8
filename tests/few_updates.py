"""Runs of a few small updates, for tests of recipes."""

import torch

FEW = {
    "num_envs": 2,
    "backend": "serial",
    "total_steps": 128,
    "evaluate_every": 2,
    "evaluate_episodes": 2,
    "checkpoint_every": 2,
    "final_episodes": 2,
    "video": "never",
}
FEW_OF_PPO = FEW | {"ppo.n_steps": 16, "ppo.batch_size": 16, "ppo.n_epochs": 1}


def lead(training, updates):
    """So many updates, saved after every second one."""
    with training:
        while training.progress.update < updates:
            rollout = training.collect()
            training.log(rollout, training.learn(rollout))
            if training.progress.update % 2 == 0:
                training.checkpoint()
        return training.directory


def same(ours, theirs):
    """Whether states are equal: dicts, tensors, arrays and plain values."""
    if isinstance(ours, dict):
        return ours.keys() == theirs.keys() and all(
            same(ours[key], theirs[key]) for key in ours
        )
    if isinstance(ours, torch.Tensor):
        return torch.equal(ours, theirs)
    return bool((ours == theirs).all()) if hasattr(ours, "shape") else ours == theirs
