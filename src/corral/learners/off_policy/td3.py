"""TD3: a deterministic actor, noise on collected and on target actions.

targets     r + γ min Q'(s', π'(s') + clipped noise)
critics     (Q(s, a) - target)²
actor       -Q₁(s, π(s))
"""

from __future__ import annotations

from typing import Any

from corral.learners.off_policy.agent import Agent, target_of
from corral.learners.off_policy.batch import LATER, NOW, Batch
from corral.learners.off_policy.nets import NetSizes
from corral.learners.off_policy.settings import TD3Config
from corral.learners.tensors import Device
from corral.learners.torch_import import nn, torch


class TD3(Agent):
    """See the module."""

    def __init__(
        self,
        settings: TD3Config,
        sizes: NetSizes,
        discrete: bool,
        seed: int,
        device: Device,
    ) -> None:
        assert not discrete, "a deterministic actor needs continuous actions"
        super().__init__(settings, sizes, discrete, sizes.action, seed, device)
        self.target_actor, self._actor_target = target_of(self.actor)
        self._updates = 0

    def update(self, batch: Batch) -> dict[str, Any]:
        """Learn from one batch; return metrics as tensors."""
        with torch.no_grad():
            features = self.target_actor.features(batch.history)
            action = torch.tanh(self.target_actor.outputs(features, LATER))
            value = self._target_q(batch, self._noisy(action))
            target = self._returns(batch, value)
        metrics = self._learn_q(batch, target)
        self._updates += 1
        if self._updates % self.settings.policy_delay:
            return metrics
        features = self.actor.features(batch.history.up_to(NOW.stop))
        action = torch.tanh(self.actor.outputs(features))
        loss = -batch.mean(self.critic.first(*self._past(batch), action))
        self._actor_optimiser.minimise(loss, self.settings.lr)
        self._follow()
        return metrics | {"actor_loss": loss.detach()}

    def _noisy(self, action: Any) -> Any:
        noise = torch.empty_like(action).normal_(generator=self.noise)
        noise = (noise * self.settings.target_noise).clamp(
            -self.settings.noise_clip, self.settings.noise_clip
        )
        return (action + noise).clamp(-1.0, 1.0)

    def _follow(self) -> None:
        super()._follow()
        self._actor_target.lerp_(self._actor_optimiser.vector, self.settings.tau)

    def nets(self) -> dict[str, nn.Module]:
        """Return every net by name."""
        return {**super().nets(), "target_actor": self.target_actor}

    def state_dict(self) -> dict[str, Any]:
        """Return all it takes to continue exactly."""
        return {**super().state_dict(), "updates": self._updates}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue from what was saved."""
        super().load_state_dict(state)
        self._updates = int(state["updates"])
