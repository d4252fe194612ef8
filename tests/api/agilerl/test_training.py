"""AgileRL's algorithms train through the drop-in, also where agents leave early."""

from __future__ import annotations

import functools

import numpy as np
import pytest

pytest.importorskip("agilerl", reason="AgileRL is not installed")
pytest.importorskip("peft", reason="AgileRL's algorithms import it")
pytest.importorskip("mpe2", reason="mpe2 is not installed")

import torch

import corral
from corral.dropin import AsyncPettingZooVecEnv
from corral.zoo import grid_world

SLOTS = 4


def push():
    from mpe2 import simple_push_v3

    return simple_push_v3.parallel_env()


def grid():
    """Its agents leave one at a time."""
    return grid_world.parallel_env(flat=True, max_steps=20)


def staying_grid():
    return corral.StayingAgents(grid())


def trained(name, make, opened):
    """A little; returns the weights before and after, and the fitness."""
    # Here, since importing them warns.
    from agilerl import algorithms
    from agilerl.components.replay_buffer import ReplayBuffer
    from agilerl.training.train_multi_agent_off_policy import (
        train_multi_agent_off_policy,
    )
    from agilerl.training.train_multi_agent_on_policy import train_multi_agent_on_policy

    envs = opened(AsyncPettingZooVecEnv([make] * SLOTS, workers=1))
    small = {"hidden_size": [16]}
    own = {"learn_step": 100}
    if name != "IPPO":
        own = {"learn_step": 25, "vect_noise_dim": SLOTS}
    agent = getattr(algorithms, name)(
        [envs.single_observation_space(one) for one in envs.agents],
        [envs.single_action_space(one) for one in envs.agents],
        agent_ids=list(envs.agents),
        batch_size=32,
        net_config={"latent_dim": 16, "encoder_config": small, "head_config": small},
        **own,
    )
    before = weights(agent)
    options = {"max_steps": 800, "evo_steps": 400, "eval_steps": 20, "verbose": False}
    if name == "IPPO":
        train = train_multi_agent_on_policy
    else:
        memory = ReplayBuffer(max_size=1000)
        train = functools.partial(train_multi_agent_off_policy, memory=memory)
    _, fitness = train(envs, "drop-in", name, [agent], **options)
    return before, weights(agent), fitness


def weights(agent):
    return [
        value.detach().clone()
        for actor in agent.actors.values()
        for value in actor.parameters()
    ]


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", ["IPPO", "MADDPG", "MATD3"])
@pytest.mark.parametrize("make", [push, staying_grid], ids=["push", "grid"])
def test_it_trains(name, make, opened):
    before, after, fitness = trained(name, make, opened)
    assert np.isfinite(fitness).all()
    assert all(torch.isfinite(one).all() for one in after)
    changed = [not torch.equal(*pair) for pair in zip(before, after, strict=True)]
    assert any(changed)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", ["MADDPG", "MATD3"])
def test_off_policy_algorithms_train_where_agents_leave(name, opened):
    before, after, fitness = trained(name, grid, opened)
    assert np.isfinite(fitness).all()
    assert all(torch.isfinite(one).all() for one in after)
    assert any(not torch.equal(*pair) for pair in zip(before, after, strict=True))
