"""Updates of SAC and TD3, slowly and plainly: one sequence and one step at a time."""

from __future__ import annotations

import copy
import math
from types import SimpleNamespace

import torch

HALF_LOG_TAU = 0.5 * math.log(2 * math.pi)


# Nets, row by row ---------------------------------------------------------------------


def dense(layer, row):
    return row @ layer.weight + layer.bias


def tower(net, row):
    *layers, last = net.layers
    for layer in layers:
        row = dense(layer, row).clamp(min=0)
    return dense(last, row)


def embedded(embedding, row):
    return dense(embedding.layer, row).clamp(min=0)


def cell(memory, x, carry):
    """One step of a GRU or an LSTM, by its textbook formulas."""
    inward = memory.inward @ x + memory.inward_bias
    onward = memory.onward @ carry[0] + memory.onward_bias
    if memory.gates == 3:
        (r, z, n), (r_, z_, n_) = inward.chunk(3), onward.chunk(3)
        reset, keep = torch.sigmoid(r + r_), torch.sigmoid(z + z_)
        return ((1 - keep) * torch.tanh(n + reset * n_) + keep * carry[0],)
    i, f, g, o = (inward + onward).chunk(4)
    kept = torch.sigmoid(f) * carry[1] + torch.sigmoid(i) * torch.tanh(g)
    return torch.sigmoid(o) * torch.tanh(kept), kept


def remembered(history, sequence):
    """Hidden states at all observations of a sequence; None without a memory."""
    if history is None:
        return [None] * len(sequence.obs)
    carry = [torch.zeros(history.memory.width)] * 2
    found = []
    for step, obs in enumerate(sequence.obs):
        first = step == 0
        action = torch.zeros_like(sequence.action[0])
        action = action if first else sequence.action[step - 1]
        reward = torch.zeros(1) if first else sequence.reward[step - 1]
        parts = [
            embedded(history.action, action),
            embedded(history.obs, obs),
            embedded(history.reward, reward),
        ]
        carry = cell(history.memory, torch.cat(parts), carry)
        found.append(carry[0])
    return found


def actor_outputs(actor, sequence):
    hidden = remembered(actor.history, sequence)
    rows = [
        obs if state is None else torch.cat([state, embedded(actor.shortcut, obs)])
        for state, obs in zip(hidden, sequence.obs, strict=True)
    ]
    return [tower(actor.tower, row) for row in rows]


def q_values(critic, state, obs, action):
    """Both estimates for one step; of all discrete actions if there is no action."""
    row = obs if action is None else torch.cat([obs, action])
    if state is not None:
        row = torch.cat([state, embedded(critic.shortcut, row)])
    return [tower(one, row) for one in critic.towers]


# Sequences ----------------------------------------------------------------------------


def sequences_of(sampled):
    """The sampled transitions of each sequence, without padding."""
    arrays = {name: torch.as_tensor(one) for name, one in sampled.items()}
    if "mask" not in arrays:
        arrays = {name: one[None] for name, one in arrays.items()}
        arrays["mask"] = torch.ones_like(arrays["reward"])
    found = []
    for column in range(arrays["mask"].shape[1]):
        length = int(arrays["mask"][:, column].sum())
        parts = {name: list(one[:length, column]) for name, one in arrays.items()}
        parts["obs"] = [parts["obs"][0], *parts["next_obs"]]
        found.append(SimpleNamespace(**parts, length=length))
    return found


# Updates ------------------------------------------------------------------------------


class SlowAgent:
    """The nets of an agent, with an optimiser of torch's own for each.

    After `update`, `critic_loss`, `actor_loss` and the gradients of the nets are there.
    """

    def __init__(self, agent) -> None:
        self.settings, self.discrete = agent.settings, agent.discrete
        nets = {name: copy.deepcopy(net) for name, net in agent.nets().items()}
        self.nets = SimpleNamespace(**nets)
        self.noise = torch.Generator().set_state(agent.noise.get_state())
        self._adams = {
            name: torch.optim.Adam(nets[name].parameters(), lr=self.settings.lr)
            for name in ("actor", "critic")
        }

    def update(self, sampled) -> None:
        self.sequences = sequences_of(sampled)
        self.steps = sum(one.length for one in self.sequences)
        self.shape = (*sampled["reward"].shape[:-1], sampled["action"].shape[-1])
        with torch.no_grad():
            targets = self.targets()
        losses = []
        for sequence, wanted in zip(self.sequences, targets, strict=True):
            hidden = remembered(self.nets.critic.history, sequence)
            for step in range(sequence.length):
                action = sequence.action[step]
                given = None if self.discrete else action
                both = q_values(
                    self.nets.critic, hidden[step], sequence.obs[step], given
                )
                if self.discrete:
                    both = [q @ action for q in both]
                losses += [((q - wanted[step]) ** 2).sum() for q in both]
        self.critic_loss = self._minimise("critic", sum(losses) / self.steps)
        self.actor_loss = self._minimise("actor", self.actor_objective())
        for name in ("actor", "critic"):
            self._follow(name)

    def drawn(self):
        """Normal numbers for each step and sequence."""
        drawn = torch.empty(self.shape).normal_(generator=self.noise)
        return drawn if drawn.ndim == 3 else drawn[None]

    def _minimise(self, name, loss):
        self._adams[name].zero_grad()
        loss.backward(inputs=list(getattr(self.nets, name).parameters()))
        self._adams[name].step()
        return loss.detach()

    def _follow(self, name) -> None:
        target = getattr(self.nets, f"target_{name}", None)
        if target is None:
            return
        net, tau = getattr(self.nets, name), self.settings.tau
        for mine, its in zip(target.parameters(), net.parameters(), strict=True):
            mine.data = (1 - tau) * mine.data + tau * its.data


class SlowSAC(SlowAgent):
    def __init__(self, agent) -> None:
        super().__init__(agent)
        self.alpha = agent.log_alpha.detach().exp()
        self.log_alpha = agent.log_alpha.detach().clone().requires_grad_()
        lr = self.settings.alpha_lr
        self._adams["alpha"] = torch.optim.Adam([self.log_alpha], lr=lr)

    def value(self, critic, hidden, obs, outputs, drawn):
        """Soft value and entropy of one step."""
        if self.discrete:
            probs = torch.softmax(outputs, 0)
            q = torch.minimum(*q_values(critic, hidden, obs, None))
            entropy = -(probs * probs.log()).sum()
            return (probs * q).sum() + self.alpha * entropy, entropy
        mean, log_std = outputs.chunk(2)
        std = log_std.clamp(-20, 2).exp()
        before = mean + std * drawn
        log_prob = (-0.5 * drawn**2 - std.log() - HALF_LOG_TAU).sum()
        log_prob = log_prob - torch.log(1 - torch.tanh(before) ** 2).sum()
        q = torch.minimum(*q_values(critic, hidden, obs, torch.tanh(before)))
        return q.sum() - self.alpha * log_prob, -log_prob

    def targets(self):
        drawn = None if self.discrete else self.drawn()
        found = []
        for column, sequence in enumerate(self.sequences):
            outputs = actor_outputs(self.nets.actor, sequence)
            hidden = remembered(self.nets.target_critic.history, sequence)
            wanted = []
            for step in range(sequence.length):
                later = step + 1
                value, _ = self.value(
                    self.nets.target_critic,
                    hidden[later],
                    sequence.obs[later],
                    outputs[later],
                    None if drawn is None else drawn[step, column],
                )
                lives = 1 - sequence.terminated[step]
                wanted.append(
                    sequence.reward[step] + self.settings.gamma * lives * value
                )
            found.append(wanted)
        return found

    def actor_objective(self):
        drawn = None if self.discrete else self.drawn()
        values, entropies = [], []
        for column, sequence in enumerate(self.sequences):
            outputs = actor_outputs(self.nets.actor, sequence)
            hidden = remembered(self.nets.critic.history, sequence)
            for step in range(sequence.length):
                value, entropy = self.value(
                    self.nets.critic,
                    hidden[step],
                    sequence.obs[step],
                    outputs[step],
                    None if drawn is None else drawn[step, column],
                )
                values.append(value)
                entropies.append(entropy.detach())
        self.entropy = sum(entropies) / self.steps
        actions = self.shape[-1]
        wanted = 0.7 * math.log(actions) if self.discrete else -float(actions)
        self._adams["alpha"].zero_grad()
        (self.log_alpha * (self.entropy - wanted)).backward()
        self._adams["alpha"].step()
        return -sum(values) / self.steps


class SlowTD3(SlowAgent):
    def targets(self):
        noise = (self.drawn() * self.settings.target_noise).clamp(
            -self.settings.noise_clip, self.settings.noise_clip
        )
        found = []
        for column, sequence in enumerate(self.sequences):
            outputs = actor_outputs(self.nets.target_actor, sequence)
            hidden = remembered(self.nets.target_critic.history, sequence)
            wanted = []
            for step in range(sequence.length):
                action = torch.tanh(outputs[step + 1]) + noise[step, column]
                both = q_values(
                    self.nets.target_critic,
                    hidden[step + 1],
                    sequence.obs[step + 1],
                    action.clamp(-1, 1),
                )
                lives = 1 - sequence.terminated[step]
                value = self.settings.gamma * lives * torch.minimum(*both)
                wanted.append(sequence.reward[step] + value)
            found.append(wanted)
        return found

    def actor_objective(self):
        values = []
        for sequence in self.sequences:
            outputs = actor_outputs(self.nets.actor, sequence)
            hidden = remembered(self.nets.critic.history, sequence)
            for step in range(sequence.length):
                action = torch.tanh(outputs[step])
                obs = sequence.obs[step]
                first, _ = q_values(self.nets.critic, hidden[step], obs, action)
                values.append(first.sum())
        return -sum(values) / self.steps
