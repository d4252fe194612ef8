"""TAAC once more, agent by agent and slowly."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch
from torch.nn import functional


def dense(layer: Any, x: Any) -> Any:
    return layer.weight @ x + layer.bias


def layers(net: Any, x: Any) -> Any:
    for layer in net.layers[:-1]:
        x = functional.leaky_relu(dense(layer, x))
    return dense(net.layers[-1], x)


def attended(attention: Any, heads: int, team: list[Any], me: int) -> Any:
    """What one of these agents attends to; absent agents are not in the list."""
    queries = dense(attention.query, team[me]).chunk(heads)
    keys = [dense(attention.key, one).chunk(heads) for one in team]
    values = [dense(attention.value, one).chunk(heads) for one in team]
    mixed = []
    for head in range(heads):
        size = len(queries[head])
        scores = [float(queries[head] @ key[head]) / math.sqrt(size) for key in keys]
        shares = [math.exp(score - max(scores)) for score in scores]
        mixed.append(
            sum(
                share / sum(shares) * value[head]
                for share, value in zip(shares, values, strict=True)
            )
        )
    return dense(attention.output, torch.cat(mixed))


def logits(learner: Any, team: list[Any], me: int) -> Any:
    """The head's outputs of one agent."""
    actor, config = learner.actor, learner.config
    embedded = [layers(actor.embedding, one) for one in team]
    seen = attended(actor.attention, config.heads, embedded, me)
    if config.own_embedding:
        seen = torch.cat([seen, embedded[me]])
    features = functional.leaky_relu(layers(actor.body, seen))
    return actor.head(features[None])[0]


def value(learner: Any, team: list[Any], actions: list[Any], me: int) -> float:
    """The critic's value of one agent's action."""
    critic = learner.critic
    pairs = zip(team, actions, strict=True)
    embedded = [layers(critic.embedding, torch.cat(pair)) for pair in pairs]
    seen = attended(critic.attention, learner.config.heads, embedded, me)
    return float(layers(critic.body, torch.cat([seen, embedded[me]])))


def baseline(learner: Any, team: list[Any], actions: list[Any], me: int) -> float:
    """The mean over one agent's own (Discrete) actions; the others' stay."""
    total = 0.0
    for option, log_prob in enumerate(logits(learner, team, me).tolist()):
        changed = list(actions)
        changed[me] = functional.one_hot(torch.tensor(option), len(actions[me])).float()
        total += math.exp(log_prob) * value(learner, team, changed, me)
    return total


def advantages(
    reward: Any, expected: Any, ends: Any, after: Any, gamma: float, lam: float
) -> list[float]:
    """GAE of one life of one agent, as the sum it stands for.

    Args:
        reward: of each step.
        expected: the value of each observation.
        ends: "terminated", "truncated" or "" where the rollout ends before it does.
        after: the value of what follows, unless terminated.
        gamma: the discount.
        lam: GAE's lambda.
    """
    values = [*expected, 0.0 if ends == "terminated" else after]
    errors = [reward[t] + gamma * values[t + 1] - values[t] for t in range(len(reward))]
    return [
        sum((gamma * lam) ** k * errors[t + k] for k in range(len(errors) - t))
        for t in range(len(errors))
    ]


def flattened_advantages(
    reward: Any, expected: Any, over: Any, gamma: float, lam: float
) -> Any:
    """As the authors' script computes them: time and agents are one axis.

    The "next value" of an agent is that of the next agent of the same step.
    """
    rewards, values, ends = (np.ravel(one) for one in (reward, expected, over))
    found, following, later = np.zeros(len(rewards)), 0.0, 0.0
    for at in reversed(range(len(rewards))):
        on = 1.0 - ends[at]
        error = rewards[at] + gamma * following * on - values[at]
        later = error + gamma * lam * on * later
        found[at], following = later, values[at]
    return found.reshape(reward.shape)


def conformity(team_rows: list[list[Any]], cap: float) -> float:
    """Rows of what present agents attend to."""
    means = []
    for row in team_rows:
        alike = [
            float(one @ other / (one.norm() * other.norm()))
            for place, one in enumerate(row)
            for other_place, other in enumerate(row)
            if place != other_place
        ]
        if alike:
            means.append(max(sum(alike) / len(alike), cap))
    return sum(means) / len(means) if means else 0.0
