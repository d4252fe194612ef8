"""Stable-Baselines3's PPO behind the same verbs as our own.

    learner = SB3PPO(CorralVecEnv(pool), seed=0)
    collector = SB3Collector(learner)
    while learner.steps < 100_000:
        rollout = collector.collect(learner.config.n_steps)
        metrics = learner.update(rollout)

Acting, learning and scaling (`VecNormalize`) are its own code: the same steps give the
same weights as its `learn`. What is ours is around it: who calls, what is kept, that
its global generators are nobody else's, and that schedules count from the beginning of
an update (see `schedules`), where SB3 counts from its end.
"""

from __future__ import annotations

import copy
import math
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from corral.errors import CheckpointError, MissingExtra, OptionError, TrainingDiverged
from corral.learners.ppo import PPOConfig
from corral.learners.sb3.global_rng import GlobalGenerators
from corral.learners.sb3.normalisation import SB3Scales
from corral.learners.sb3.policy import SB3Policy
from corral.learners.schedules import Schedule, scheduled
from corral.learners.torch_import import nn, torch
from corral.rollouts.rollout import EpisodeSummary

try:
    from stable_baselines3 import PPO
    from stable_baselines3.common.logger import Logger
    from stable_baselines3.common.preprocessing import is_image_space
except ImportError as error:
    raise MissingExtra(
        f"this needs Stable-Baselines3 ({error}): pip install 'corral[sb3,train]'"
    ) from error

ACTIVATIONS = {"tanh": nn.Tanh, "relu": nn.ReLU, "elu": nn.ELU, "silu": nn.SiLU}
METRICS = {
    "policy_gradient_loss": "policy_loss",
    "value_loss": "value_loss",
    "approx_kl": "kl",
    "clip_fraction": "clip_fraction",
    "explained_variance": "explained_variance",
    "std": "std",
    "loss": "loss",
    "learning_rate": "lr",
}
"""Its names -> ours; its entropy_loss is the entropy with another sign."""


@dataclass(slots=True)
class Collected:
    """What the envs said; observations and actions are in the model's own buffer."""

    reward: NDArray[np.float64]
    """[rows, slots], as the envs gave them."""
    valid: NDArray[np.bool_]
    """[rows, slots]; False where what came of an action was lost in a fault."""
    episodes: tuple[EpisodeSummary, ...]


class SB3PPO:
    """Learns a policy from rollouts that `SB3Collector` collected with it.

    Args:
        venv: `CorralVecEnv`, or another VecEnv over a pool that has its `pool`,
            `begin_at` and `last_step`.
        config: the same settings as for our PPO; it has no memory.
        seed: of the weights, the actions, and the order in which rows are learnt from.
        total_steps: how long the run is to be, for schedules.
        device: where torch computes.
        normalise_obs: scale observations by `VecNormalize`.
        normalise_reward: the same for rewards.
    """

    def __init__(
        self,
        venv: Any,
        config: PPOConfig | None = None,
        *,
        seed: int = 0,
        total_steps: int | None = None,
        device: str = "cpu",
        normalise_obs: bool = False,
        normalise_reward: bool = False,
    ) -> None:
        self.config = config = PPOConfig() if config is None else config
        _check(config)
        config.check_length(total_steps)
        self.venv = venv
        self.scales = SB3Scales.around(
            venv, normalise_obs, normalise_reward, config.gamma
        )
        self.total_steps = total_steps
        self.generators = GlobalGenerators(seed, device.startswith("cuda"))
        with self.generators.in_place():
            self.model = _model(self.scales.venv, config, device)
        # What `learn` would set up; it is not called, since a run has its own loop.
        self.model.set_logger(Logger(folder=None, output_formats=[]))
        self.model.ep_info_buffer = deque(maxlen=1)
        self.model.ep_success_buffer = deque(maxlen=1)
        self.policy: Any = SB3Policy(self)

    @property
    def steps(self) -> int:
        """Env steps learnt from."""
        return int(self.model.num_timesteps)

    # Act and learn --------------------------------------------------------------------

    def predict(self, obs: Any, deterministic: bool = True) -> Any:
        """Actions for a batch of observations as the envs give them."""
        return self.model.predict(self.scales(obs), deterministic=deterministic)[0]

    def frozen(self) -> FrozenScales:
        """What predicts as it does now, whatever is learnt later."""
        policy = self.model.policy
        # Its distribution holds on to the last graph, which cannot be copied.
        known = {
            id(policy.action_dist): copy.copy(policy.action_dist),
            id(policy.optimizer): None,
        }
        return FrozenScales(copy.deepcopy(policy, known), self.scales.frozen())

    def update(self, rollout: Collected) -> dict[str, float]:
        """Learn from what was collected last; returns metrics."""
        model = self.model
        if not np.isfinite(rollout.reward).all():
            raise TrainingDiverged("a reward that cannot be learnt from came in")
        if self.total_steps is not None:
            # By the steps before this rollout: SB3's `learn` counts it in, and so
            # runs its last update with nothing left of lr.
            before = self.steps - model.n_steps * model.n_envs
            model._update_current_progress_remaining(before, self.total_steps)
        try:
            with self.generators.in_place():
                model.train()
        except ValueError as error:  # torch's distributions refuse what is no number
            raise self._diverged(str(error)) from error
        values = model.logger.name_to_value
        metrics = {
            ours: float(values[f"train/{name}"])
            for name, ours in METRICS.items()
            if f"train/{name}" in values
        }
        metrics["entropy"] = -float(values["train/entropy_loss"])
        if not math.isfinite(metrics["loss"]):
            raise self._diverged(f"the loss is {metrics['loss']}")
        return metrics

    def _diverged(self, reason: str) -> TrainingDiverged:
        return TrainingDiverged(
            f"learning diverged in update {self.model._n_updates} "
            f"({reason.partition(chr(10))[0]}). Try a lower ppo.lr, or "
            "normalise_reward: true"
        )

    # Save and load --------------------------------------------------------------------

    def state_dict(self) -> dict[str, Any]:
        """Everything it takes to go on as if nothing had happened."""
        net = self.model.policy.state_dict()
        return {
            "net": {name: value.detach().clone() for name, value in net.items()},
            "optimiser": self.model.policy.optimizer.state_dict(),
            "generators": self.generators.state_dict(),
            "steps": self.steps,
            "updates": self.model._n_updates,
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on from what was saved, of a learner with the same spaces and nets."""
        self._load_net(state["net"])
        self.model.policy.optimizer.load_state_dict(state["optimiser"])
        self.generators.load_state_dict(state["generators"])
        self.model.num_timesteps = state["steps"]
        self.model._n_updates = state["updates"]

    def load_policy(self, state: dict[str, Any], log_std: float | None = None) -> None:
        """Start from the nets of another, and nothing else of it."""
        self._load_net(state["net"])
        if log_std is not None and hasattr(self.model.policy, "log_std"):
            with torch.no_grad():
                self.model.policy.log_std.fill_(log_std)

    def _load_net(self, saved: dict[str, Any]) -> None:
        try:
            self.model.policy.load_state_dict(saved)
        except RuntimeError as error:
            reasons = str(error).splitlines()[1:] or [str(error)]
            raise CheckpointError(
                "the saved nets are not those of this learner: "
                f"{'; '.join(reason.strip() for reason in reasons[:3])}. Use the "
                "settings and the env that they were saved with"
            ) from None

    def export(self, folder: Path, name: str) -> list[Path]:
        """Write files that Stable-Baselines3 itself opens."""
        zipped = folder / f"{name}_sb3.zip"
        self.model.save(zipped, exclude=["ep_info_buffer", "ep_success_buffer"])
        written = [zipped]
        if self.scales.normalize is not None:
            written.append(folder / f"{name}_vecnormalize.pkl")
            self.scales.normalize.save(str(written[-1]))
        return written


class FrozenScales:
    """A policy of Stable-Baselines3 and its scales, as they were at one moment."""

    def __init__(self, policy: Any, scales: SB3Scales) -> None:
        self._policy = policy
        self._scales = scales

    def predict(self, obs: Any, deterministic: bool = True) -> Any:
        """Actions for a batch of observations as the envs give them."""
        return self._policy.predict(self._scales(obs), deterministic=deterministic)[0]

    def frozen(self) -> FrozenScales:
        """It stays as it is."""
        return self


def _check(config: PPOConfig) -> None:
    if config.memory != "none":
        raise OptionError(
            f"ppo.memory is {config.memory!r}, and Stable-Baselines3's PPO has none: "
            "set it to none, or learner to ppo"
        )


def _model(venv: Any, config: PPOConfig, device: str) -> Any:
    kwargs: dict[str, Any] = {
        "activation_fn": ACTIVATIONS[config.activation],
        "log_std_init": config.log_std_init,
        "normalize_images": config.scale_images,
    }
    if config.hidden is not None:
        kwargs["net_arch"] = list(config.hidden)
    longest = config.max_grad_norm
    return PPO(
        _policy_name(venv.observation_space),
        venv,
        learning_rate=_falling(config.lr, config.lr_schedule),
        n_steps=config.n_steps,
        batch_size=config.batch_size,
        n_epochs=config.n_epochs,
        gamma=config.gamma,
        gae_lambda=config.gae_lambda,
        clip_range=_falling(config.clip_range, config.clip_schedule),
        clip_range_vf=config.clip_range_vf,
        normalize_advantage=config.normalise_advantage,
        ent_coef=config.ent_coef,
        vf_coef=config.vf_coef,
        max_grad_norm=math.inf if longest is None else longest,
        target_kl=config.target_kl,
        policy_kwargs=kwargs,
        device=device,
    )


def _policy_name(space: Any) -> str:
    if isinstance(space, spaces.Dict):
        return "MultiInputPolicy"
    return "CnnPolicy" if is_image_space(space) else "MlpPolicy"


def _falling(value: float, schedule: Schedule) -> float | Callable[[float], float]:
    if schedule == "constant":
        return value
    return lambda left: scheduled(value, schedule, 1.0 - left)
