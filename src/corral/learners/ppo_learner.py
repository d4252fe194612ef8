"""PPO as a run's learner: its settings, charts, and what it collects."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any, ClassVar

from corral.learners.ppo import PPO, PPOConfig
from corral.learners.protocol import Learner, LearnerSetup, Rows

PPO_CHARTS = {
    "policy_loss": ("Policy loss", "PPO's clipped objective, negated."),
    "value_loss": ("Value loss", "Squared error of the critic."),
    "entropy": (
        "Entropy",
        "Policy entropy. Falls as the policy becomes more deterministic.",
    ),
    "kl": ("KL divergence", "From the policy that collected to the updated one."),
    "clip_fraction": ("Clip fraction", "Share of the samples outside the clip range."),
    "explained_variance": (
        "Explained variance",
        "Of the returns by the critic: 1 is perfect, 0 no better than a constant.",
    ),
    "lr": ("Learning rate", ""),
    "gradient_norm": ("Gradient norm", "Before it is clipped."),
    "std": ("Action standard deviation", "Of a Gaussian policy, mean over actions."),
}


class PPOSettings(Learner):
    """What learners with the settings of PPO share, whichever library computes."""

    Config = PPOConfig
    group = "ppo"
    charts = PPO_CHARTS
    packages: ClassVar[tuple[str, ...]] = ("torch",)
    takes_network = True

    @classmethod
    def wants(cls, settings: PPOConfig) -> Rows:
        """Return `n_steps` rows of every slot."""
        return Rows(settings.n_steps)

    def begin_with(self, state: dict[str, Any], given: Collection[str]) -> None:
        """Start with another learner's policy; keep a log_std_init that was set."""
        given_one = self.settings.log_std_init if "log_std_init" in given else None
        self.load_policy(state, given_one)

    def load_policy(self, state: dict[str, Any], log_std: float | None = None) -> None:
        """Start from the nets of another learner, and nothing else of it."""
        raise NotImplementedError


class PPOLearner(PPO, PPOSettings):
    """Corral's PPO."""

    title = "PPO"
    uses_masks = True

    def __init__(self, setup: LearnerSetup) -> None:
        PPOSettings.__init__(self, setup)
        PPO.__init__(
            self,
            setup.spec.observation_space,
            setup.spec.action_space,
            setup.settings,
            seed=setup.seed,
            total_steps=setup.total_steps,
            device=setup.device,
            network=setup.network,
        )
