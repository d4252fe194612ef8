"""Soft actor-critic: maximises return and entropy together.

targets     r + γ (min Q'(s', a') - α log π(a'|s'))         a' ~ π(s')
critics     (Q(s, a) - target)²
actor       α log π(a|s) - min Q(s, a)                      a ~ π(s)
temperature raises α while the entropy is below its target

With discrete actions the expectation over them is exact instead of sampled.
"""

from __future__ import annotations

import math
from typing import Any

from corral.learners.off_policy.agent import EPSILON, Agent
from corral.learners.off_policy.batch import LATER, NOW, Batch
from corral.learners.off_policy.nets import NetSizes
from corral.learners.off_policy.settings import SACConfig
from corral.learners.optimiser import Optimiser
from corral.learners.tensors import Device
from corral.learners.torch_import import functional, nn, torch

LOG_STD_BOUNDS = -20.0, 2.0
# Default target entropy of discrete actions, as a share of the largest.
DISCRETE_TARGET = 0.7
HALF_LOG_TAU = 0.5 * math.log(2 * math.pi)


class SAC(Agent):
    """See the module."""

    def __init__(
        self,
        settings: SACConfig,
        sizes: NetSizes,
        discrete: bool,
        seed: int,
        device: Device,
    ) -> None:
        outputs = sizes.action if discrete else 2 * sizes.action
        super().__init__(settings, sizes, discrete, outputs, seed, device)
        self.automatic = settings.alpha == "auto"
        start = settings.alpha_init if settings.alpha == "auto" else settings.alpha
        log_alpha = math.log(max(float(start), 1e-30))
        self.log_alpha = nn.Parameter(torch.tensor(log_alpha, device=device))
        self._alpha_optimiser = Optimiser(nn.ParameterList([self.log_alpha]), EPSILON)
        self._target_entropy = self._entropy_wanted(settings)

    def _entropy_wanted(self, settings: SACConfig) -> float:
        if settings.target_entropy is not None:
            return settings.target_entropy
        if self.discrete:
            return DISCRETE_TARGET * math.log(self.sizes.action)
        return -float(self.sizes.action)

    def update(self, batch: Batch) -> dict[str, Any]:
        """Learn from one batch; return metrics as tensors."""
        alpha = self.log_alpha.detach().exp()
        features = self.actor.features(batch.history)
        with torch.no_grad():
            outputs = self.actor.outputs(features, LATER)
            value, _ = self._soft_value(outputs, batch, alpha, self._target_q)
            target = self._returns(batch, value)
        metrics = self._learn_q(batch, target)
        outputs = self.actor.outputs(features, NOW)
        value, entropy = self._soft_value(outputs, batch, alpha, self._smaller_q)
        loss = -batch.mean(value)
        self._actor_optimiser.minimise(loss, self.settings.lr)
        mean_entropy = batch.mean(entropy.detach())
        if self.automatic:
            self._adapt(mean_entropy)
        self._follow()
        more = {"actor_loss": loss.detach(), "entropy": mean_entropy, "alpha": alpha}
        return metrics | more

    def _soft_value(
        self, outputs: Any, batch: Batch, alpha: Any, q_of: Any
    ) -> tuple[Any, Any]:
        """Return the value of acting as the actor would, and its entropy."""
        if self.discrete:
            log_probs = functional.log_softmax(outputs, -1)
            q, probs = q_of(batch, None), log_probs.exp()
            entropy = -(probs * log_probs).sum(-1, keepdim=True)
            return (probs * q).sum(-1, keepdim=True) + alpha * entropy, entropy
        action, log_prob = squashed_sample(outputs, self.noise)
        return q_of(batch, action) - alpha * log_prob, -log_prob

    def _smaller_q(self, batch: Batch, action: Any) -> Any:
        past = self._past(batch)
        # Estimates of all discrete actions do not depend on the actor.
        with torch.set_grad_enabled(not self.discrete):
            return torch.minimum(*self.critic.forward(*past, action))

    def _adapt(self, entropy: Any) -> None:
        # The slope of log α (entropy - target).
        slope = entropy - self._target_entropy
        self._alpha_optimiser.descend(slope, self.settings.alpha_lr)

    def optimisers(self) -> dict[str, Optimiser]:
        """Return every optimiser by name."""
        return {**super().optimisers(), "alpha": self._alpha_optimiser}

    def state_dict(self) -> dict[str, Any]:
        """Return all it takes to continue exactly."""
        return super().state_dict() | {"log_alpha": self.log_alpha.detach().clone()}

    def load_nets(self, state: dict[str, Any]) -> None:
        """Take over the nets and the temperature."""
        super().load_nets(state)
        self.log_alpha.data.copy_(state["log_alpha"])


def squashed_sample(outputs: Any, generator: Any) -> tuple[Any, Any]:
    """Draw from a Gaussian, squash by tanh; return actions and log-probabilities."""
    mean, log_std = outputs.chunk(2, -1)
    log_std = log_std.clamp(*LOG_STD_BOUNDS)
    drawn = torch.empty_like(mean).normal_(generator=generator)
    before = mean + log_std.exp() * drawn
    log_prob = -0.5 * drawn.square() - log_std - HALF_LOG_TAU
    # log(1 - tanh(x)²), without cancellation where tanh is near ± 1.
    squashing = 2 * (math.log(2.0) - before - functional.softplus(-2 * before))
    return torch.tanh(before), (log_prob - squashing).sum(-1, keepdim=True)
