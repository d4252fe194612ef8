"""PPO's update, slowly and plainly: one row after the other, torch's own parts."""

from __future__ import annotations

import copy

import numpy as np
import torch
from torch import distributions, nn

from corral.learners.nets.heads import Bernoulli, Categorical, Gaussian
from corral.learners.returns import gae


def distribution(head, layer_outputs):
    """What the head stands for, by torch.distributions; (log_prob, entropy) of it."""
    if isinstance(head, Categorical):
        parts = head.parts(layer_outputs)
        several = [distributions.Categorical(logits=part) for part in parts]
        begins = np.cumsum([0, *(part.shape[1] for part in parts)])
        return (
            lambda chosen: sum(
                one.log_prob(chosen[:, i] - begins[i]) for i, one in enumerate(several)
            ),
            sum(one.entropy() for one in several),
        )
    if isinstance(head, Bernoulli):
        one = distributions.Independent(
            distributions.Bernoulli(logits=layer_outputs), 1
        )
        return one.log_prob, one.entropy()
    assert isinstance(head, Gaussian)
    normal = distributions.Normal(layer_outputs, head.log_std.exp())
    one = distributions.Independent(normal, 1)
    return one.log_prob, one.entropy()


def tower(mlp, x):
    for layer in mlp.layers:
        x = torch.tanh(nn.functional.linear(x, layer.weight, layer.bias))
    return x


def features_by_steps(net, obs, started, carry):
    """[rows, slots, ...] of features, stepping the memory row by row."""
    features = []
    for row in range(len(obs)):
        fresh = torch.as_tensor(started[row])[:, None]
        carry = tuple(torch.where(fresh, 0.0, part) for part in carry)
        cell = nn.GRUCell if len(carry) == 1 else nn.LSTMCell
        weights = dict(
            weight_ih=net.memory.inward,
            weight_hh=net.memory.onward,
            bias_ih=net.memory.inward_bias,
            bias_hh=net.memory.onward_bias,
        )
        with torch.device("meta"):  # takes nothing from the global generator
            module = cell(obs.shape[-1], net.memory.width)
        hidden = carry[0] if len(carry) == 1 else carry
        out = torch.func.functional_call(module, weights, (obs[row], hidden))
        carry = (out,) if len(carry) == 1 else out
        features.append(carry[0])
    return torch.stack(features)


def slow_update(ppo, rollout, minibatches) -> dict[str, torch.Tensor]:
    """The weights after learning from lists of (row, slot) pairs, a list at a time."""
    config, net = ppo.config, copy.deepcopy(ppo.net)
    for weight in net.parameters():
        weight.grad = None
    adam = torch.optim.Adam(net.parameters(), lr=config.lr, eps=1e-5)
    advantage, returns = gae(
        rollout.reward,
        rollout.extras["value"],
        rollout.terminated,
        rollout.truncated,
        rollout.valid,
        rollout.bootstrap,
        rollout.next_value,
        gamma=config.gamma,
        lam=config.gae_lambda,
    )
    for pairs in minibatches:
        at = tuple(np.array(pairs).T)
        obs = torch.as_tensor(rollout.obs)
        if net.memory is None:
            features = obs[at]
        else:
            carry = rollout.first_carry
            carry = carry if isinstance(carry, tuple) else (carry,)
            first = tuple(torch.as_tensor(part) for part in carry)
            features = features_by_steps(net, obs, rollout.started, first)[at]
        outputs = net.head.layer(tower(net.actor, features))
        value = net.value(tower(net.critic, features))[:, 0]
        log_prob_of, entropy = distribution(net.head, outputs)
        if "chosen" in rollout.extras:
            chosen = torch.as_tensor(rollout.extras["chosen"][at])
        else:
            chosen = net.head.from_action(rollout.action[at])
        old_log_prob = torch.as_tensor(rollout.extras["log_prob"][at])
        old_value = torch.as_tensor(rollout.extras["value"][at])
        better = torch.as_tensor(advantage[at].astype(np.float32))
        target = torch.as_tensor(returns[at].astype(np.float32))
        if config.normalise_advantage:
            better = (better - better.mean()) / (better.std() + 1e-8)
        ratio = torch.exp(log_prob_of(chosen) - old_log_prob)
        low, high = 1 - config.clip_range, 1 + config.clip_range
        surrogate = torch.min(better * ratio, better * ratio.clamp(low, high))
        if config.clip_range_vf is not None:
            limit = config.clip_range_vf
            value = old_value + (value - old_value).clamp(-limit, limit)
        loss = (
            -surrogate.mean()
            + config.vf_coef * ((value - target) ** 2).mean()
            - config.ent_coef * entropy.mean()
        )
        adam.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(net.parameters(), config.max_grad_norm)
        adam.step()
    return {name: value.detach() for name, value in net.state_dict().items()}
