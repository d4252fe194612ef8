"""Small agents and batches that tests of off-policy learners share."""

from __future__ import annotations

import numpy as np
import torch

from corral.learners.off_policy.nets import NetSizes
from corral.learners.off_policy.sac import SAC
from corral.learners.off_policy.settings import SACConfig, TD3Config
from corral.learners.off_policy.td3 import TD3

OBS, ACTION = 3, 2
ARCHITECTURES = (
    ("markov", "gru"),
    ("memory", "gru"),
    ("memory", "lstm"),
    ("memory_markov", "gru"),
    ("memory_markov", "lstm"),
)
KINDS = ("sac", "sac_discrete", "td3")


def made_agent(kind: str, architecture: str, memory: str, **settings):
    """An agent with small nets whose outputs are not near 0."""
    sizes = NetSizes(OBS, ACTION, (7, 6), memory, 5, (4, 3, 2))
    config = TD3Config if kind == "td3" else SACConfig
    chosen = config(architecture=architecture, memory=memory, **settings)
    make = TD3 if kind == "td3" else SAC
    agent = make(chosen, sizes, kind == "sac_discrete", 3, torch.device("cpu"))
    with torch.no_grad():
        for net in agent.nets().values():
            for name, weight in net.named_parameters():
                if name.split(".")[-3:-1] == ["layers", "2"]:
                    weight.mul_(500)
    return agent


def made_sample(kind: str, lengths: list[int] | None, seed: int = 0):
    """What a replay samples; `lengths` of sequences, or None for six transitions."""
    rng = np.random.default_rng(seed)
    shape = (6,) if lengths is None else (max(lengths), len(lengths))
    obs = rng.normal(size=(shape[0] + 1, *shape[1:], OBS))
    action = np.tanh(rng.normal(size=(*shape, ACTION)))
    if kind == "sac_discrete":
        action = np.eye(ACTION)[rng.integers(ACTION, size=shape)]
    sampled = {
        "obs": obs[:-1].copy(),
        "action": action,
        "reward": rng.normal(size=(*shape, 1)),
        "terminated": (rng.random((*shape, 1)) < 0.3).astype(np.float64),
        "next_obs": obs[1:].copy(),
    }
    if lengths is not None:
        steps = np.arange(shape[0])[:, None]
        mask = steps < np.array(lengths)
        sampled["mask"] = mask[..., None].astype(np.float64)
    return sampled
