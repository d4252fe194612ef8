"""What SAC and TD3 share: nets, targets, optimisers, and one update."""

from __future__ import annotations

import copy
from typing import Any

from corral.engine.worker.seeds import noise_seed
from corral.learners.net_learning import load_net, saved_net
from corral.learners.off_policy.batch import LATER, NOW, Batch
from corral.learners.off_policy.nets import ActorNet, CriticNet, NetSizes
from corral.learners.off_policy.settings import OffPolicyConfig
from corral.learners.optimiser import Optimiser, as_vector
from corral.learners.tensors import Device
from corral.learners.torch_import import nn, torch

# Of Adam.
EPSILON = 1e-8


class Agent:
    """Nets that learn from batches.

    Args:
        settings: of the learner.
        sizes: of the nets.
        discrete: whether actions are one-hot.
        outputs: numbers that the actor makes an action from.
        seed: of weights and of the noise in updates.
        device: where the nets are.
    """

    def __init__(
        self,
        settings: OffPolicyConfig,
        sizes: NetSizes,
        discrete: bool,
        outputs: int,
        seed: int,
        device: Device,
    ) -> None:
        self.settings: Any = settings
        self.sizes = sizes
        self.discrete = discrete
        weights = torch.Generator().manual_seed(seed)
        remembers = settings.architecture == "memory"
        self.actor = ActorNet(sizes, outputs, remembers, weights).to(device)
        self.critic = CriticNet(sizes, discrete, settings.recurrent, weights).to(device)
        # Another stream than that of the weights.
        self.noise = torch.Generator(device).manual_seed(noise_seed(seed))
        self._actor_optimiser = Optimiser(self.actor, EPSILON)
        self._critic_optimiser = Optimiser(self.critic, EPSILON)
        self.target_critic, self._target = target_of(self.critic)

    # One update -----------------------------------------------------------------------

    def update(self, batch: Batch) -> dict[str, Any]:
        """Learn from one batch; return metrics as tensors."""
        raise NotImplementedError

    def _learn_q(self, batch: Batch, target: Any) -> dict[str, Any]:
        """Move both critics towards the target, `(T, rows, 1)`."""
        hidden, obs = self._remembered(self.critic, batch, NOW)
        both = self.critic.forward(hidden, obs, batch.action)
        first, second = (self._taken(q, batch) for q in both)
        error = (first - target).square() + (second - target).square()
        loss = batch.mean(error)
        self._critic_optimiser.minimise(loss, self.settings.lr)
        return {"critic_loss": loss.detach(), "q": batch.mean(first.detach())}

    def _target_q(self, batch: Batch, action: Any) -> Any:
        """Return the smaller estimate of the target critics, where transitions end."""
        hidden, obs = self._remembered(self.target_critic, batch, LATER)
        return torch.minimum(*self.target_critic.forward(hidden, obs, action))

    def _past(self, batch: Batch) -> tuple[Any, Any]:
        """Return what the critic remembers; an action does not change its past."""
        with torch.no_grad():
            return self._remembered(self.critic, batch, NOW)

    def _returns(self, batch: Batch, value: Any) -> Any:
        """Return the targets of Q: the reward and the discounted value after it."""
        lives = 1.0 - batch.terminated
        return batch.reward + self.settings.gamma * lives * value

    def _follow(self) -> None:
        """Move the target nets a little towards the nets."""
        self._target.lerp_(self._critic_optimiser.vector, self.settings.tau)

    @staticmethod
    def _remembered(critic: CriticNet, batch: Batch, steps: slice) -> tuple[Any, Any]:
        hidden = critic.hidden(batch.history.up_to(steps.stop))
        after = slice(steps.start, None)
        return None if hidden is None else hidden[after], batch.history.obs[steps]

    def _taken(self, q: Any, batch: Batch) -> Any:
        """Return the estimates of the actions that were taken."""
        return (q * batch.action).sum(-1, keepdim=True) if self.discrete else q

    # Saving ---------------------------------------------------------------------------

    def nets(self) -> dict[str, nn.Module]:
        """Return every net by name."""
        nets = {"actor": self.actor, "critic": self.critic}
        return {**nets, "target_critic": self.target_critic}

    def optimisers(self) -> dict[str, Optimiser]:
        """Return every optimiser by name."""
        return {"actor": self._actor_optimiser, "critic": self._critic_optimiser}

    def state_dict(self) -> dict[str, Any]:
        """Return all it takes to continue exactly."""
        return {
            "nets": {name: saved_net(net) for name, net in self.nets().items()},
            "optimisers": {k: one.state_dict() for k, one in self.optimisers().items()},
            "noise": self.noise.get_state(),
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue from what was saved."""
        self.load_nets(state)
        for name, optimiser in self.optimisers().items():
            optimiser.load_state_dict(state["optimisers"][name])
        self.noise.set_state(state["noise"].cpu())

    def load_nets(self, state: dict[str, Any]) -> None:
        """Take over the nets alone."""
        for name, net in self.nets().items():
            load_net(net, state["nets"][name])


def target_of(net: Any) -> tuple[Any, Any]:
    """A copy of a net that learns nothing by itself, and its weights as one vector."""
    target = copy.deepcopy(net).requires_grad_(False)
    return target, as_vector(target, list(target.parameters()))
