"""Stable-Baselines3's PPO behind the same verbs as our own.

Acting, learning and scaling (`VecNormalize`) are its own code, driven by its `learn`
and a callback: the same steps give the same weights. What is ours is around it: global
generators of its own, and schedules that count from the beginning of an update (see
`schedules`), where SB3 counts from its end.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar

from gymnasium import spaces
from stable_baselines3 import PPO
from stable_baselines3.common.logger import Logger
from stable_baselines3.common.preprocessing import is_image_space, preprocess_obs
from stable_baselines3.common.torch_layers import BaseFeaturesExtractor

from corral.api.sb3.env import CorralVecEnv
from corral.api.shared_policy.policy import SharedPolicy
from corral.engine.pool import Pool
from corral.errors import OptionError
from corral.learners.net_learning import load_net, saved_net
from corral.learners.nets.own import OwnNetwork, joined, sampled_leaves
from corral.learners.ppo import PPOConfig
from corral.learners.ppo_learner import PPOSettings
from corral.learners.protocol import LearnerSetup
from corral.learners.sb3.collector import (
    Collected,
    Curriculum,
    SB3Collector,
    SeededResets,
    diverged,
)
from corral.learners.sb3.exported import exported
from corral.learners.sb3.global_rng import GlobalGenerators
from corral.learners.sb3.policy import Predictor, SB3Policy, SB3Scales
from corral.learners.sb3.run_schedule import RunProgress, run_schedule
from corral.learners.torch_import import nn, torch
from corral.rollouts.normalise import ObsNorm

ACTIVATIONS = {"tanh": nn.Tanh, "relu": nn.ReLU, "elu": nn.ELU, "silu": nn.SiLU}
# Its names -> ours; its entropy_loss is the entropy with another sign.
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


class SB3PPO(PPOSettings):
    """Learns as `model.learn` does, one rollout at a time.

    Args:
        setup: with the same settings as for our PPO; it has no memory.
        make_vec_env: makes the VecEnv that Stable-Baselines3 steps from the pool:
            `CorralVecEnv`, or another one that has its `pool`, `begin_at` and
            `last_step`.
        policy: makes what evaluations ask, where the VecEnv's rows are not the pool's.
        curriculum: `curriculum(venv, steps)`, called before every rollout.
    """

    algorithm: ClassVar[Any] = PPO
    predictor_class: ClassVar[type[Predictor]] = Predictor
    vec_env_class: ClassVar[type[CorralVecEnv]] = CorralVecEnv

    def __init__(
        self,
        setup: LearnerSetup,
        *,
        make_vec_env: Callable[[Pool], Any] | None = None,
        policy: Callable[[SB3PPO], Any] | None = None,
        curriculum: Curriculum | None = None,
    ) -> None:
        super().__init__(setup)
        self.config: PPOConfig = setup.settings
        self.config.check_length(setup.total_steps)
        assert setup.pool is not None
        self.venv = (make_vec_env or self.vec_env_class)(setup.pool)
        resets = SeededResets(self.venv)
        self.scales = SB3Scales.around(
            resets, setup.normalise_obs, setup.normalise_reward, self.config.gamma
        )
        # SB3 counts the rows of the VecEnv: a step of each agent, where they share it.
        rows = self.venv.num_envs // setup.pool.num_envs
        progress = RunProgress((setup.total_steps or 0) * rows)
        self.generators = GlobalGenerators(setup.seed, setup.device.startswith("cuda"))
        with self.generators.in_place():
            self.model = self._model(setup, progress)
        self.predictor = self.predictor_class(self.model.policy, self.scales)
        self.model.set_logger(Logger(folder=None, output_formats=[]))
        self._collector = SB3Collector(
            self.model, self.scales, self.generators, progress, resets, curriculum
        )
        # Epochs that other models had learnt before their state was loaded.
        self._epochs_before = 0
        self.policy: Any = policy(self) if policy else SB3Policy(self.predictor)

    def _model(self, setup: LearnerSetup, progress: RunProgress) -> Any:
        """Make the model, with the settings under SB3's names."""
        config, venv = self.config, self.scales.venv
        space, longest = venv.observation_space, config.max_grad_norm
        name = "CnnPolicy" if is_image_space(space) else "MlpPolicy"
        return self.algorithm(
            "MultiInputPolicy" if isinstance(space, spaces.Dict) else name,
            venv,
            learning_rate=run_schedule(config.lr, config.lr_schedule, progress),
            n_steps=config.n_steps,
            batch_size=config.batch_size,
            n_epochs=config.n_epochs,
            gamma=config.gamma,
            gae_lambda=config.gae_lambda,
            clip_range=run_schedule(config.clip_range, config.clip_schedule, progress),
            clip_range_vf=config.clip_range_vf,
            normalize_advantage=config.normalise_advantage,
            ent_coef=config.ent_coef,
            vf_coef=config.vf_coef,
            max_grad_norm=math.inf if longest is None else longest,
            target_kl=config.target_kl,
            policy_kwargs=self._nets(setup),
            stats_window_size=1,
            device=setup.device,
        )

    def _nets(self, setup: LearnerSetup) -> dict[str, Any]:
        """Return the arguments for the model's policy."""
        config = self.config
        kwargs: dict[str, Any] = {
            **_own_features(setup.network, self.scales.venv.observation_space),
            "activation_fn": ACTIVATIONS[config.activation],
            "log_std_init": config.log_std_init,
            "normalize_images": config.scale_images,
        }
        if config.hidden is not None:
            kwargs["net_arch"] = list(config.hidden)
        return kwargs

    @property
    def steps(self) -> int:
        """Env steps learnt from."""
        return int(self.model.num_timesteps)

    @property
    def epochs(self) -> int:
        """Epochs learnt, as SB3 counts them (`n_updates` in its logs)."""
        logged = self.model.logger.name_to_value.get("train/n_updates", 0)
        return int(logged) + self._epochs_before

    # Act and learn --------------------------------------------------------------------

    def collector(self) -> SB3Collector:
        """Return what calls `learn`."""
        return self._collector

    def update(self, data: Collected) -> dict[str, float]:
        """Return the metrics of what was learnt from the data by `collect`."""
        values = self.model.logger.name_to_value
        metrics = {
            ours: float(values[f"train/{name}"])
            for name, ours in METRICS.items()
            if f"train/{name}" in values
        }
        metrics["entropy"] = -float(values["train/entropy_loss"])
        if not math.isfinite(metrics["loss"]):
            raise diverged(self.model, f"the loss is {metrics['loss']}")
        return metrics

    # Save and load --------------------------------------------------------------------

    def state_dict(self) -> dict[str, Any]:
        """Return everything that is needed to continue exactly."""
        return {
            "net": saved_net(self.model.policy),
            "optimiser": self.model.policy.optimizer.state_dict(),
            "generators": self.generators.state_dict(),
            "steps": self.steps,
            "updates": self.epochs,
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue from a saved state of a learner with the same spaces and nets."""
        load_net(self.model.policy, state["net"])
        self.model.policy.optimizer.load_state_dict(state["optimiser"])
        self.generators.load_state_dict(state["generators"])
        self.model.num_timesteps = state["steps"]
        self._epochs_before += state["updates"] - self.epochs

    def load_policy(self, state: dict[str, Any], log_std: float | None = None) -> None:
        """Start from the nets of another learner, and nothing else of it."""
        load_net(self.model.policy, state["net"])
        if log_std is not None and hasattr(self.model.policy, "log_std"):
            with torch.no_grad():
                self.model.policy.log_std.fill_(log_std)

    def normalisers(self) -> dict[str, Any]:
        """Return what VecNormalize knows."""
        return self.scales.state_dict()

    def load_normalisers(self, state: dict[str, Any]) -> None:
        """Continue with what `normalisers` returned."""
        self.scales.load_state_dict(state)

    def single_policy(self) -> Any:
        """Return a policy that predicts, without draws."""
        return self.policy.deterministic()

    def policy_module(self, obs_norm: ObsNorm | None) -> Any:
        """Return the policy as a plain torch module, a copy; see `nets.exported`."""
        shared = isinstance(self.policy, SharedPolicy)
        beside = shared and self.policy.single[1].masked
        return exported(self.predictor.frozen(), self.venv, beside)

    def export(self, folder: Path) -> list[Path]:
        """Write the model and its VecNormalize as Stable-Baselines3 saves them."""
        zipped = folder / "best_sb3.zip"
        self.model.save(zipped, exclude=["ep_info_buffer", "ep_success_buffer"])
        written = [zipped]
        if self.scales.normalize is not None:
            written.append(folder / "best_vecnormalize.pkl")
            self.scales.normalize.save(str(written[-1]))
        return written


def _own_features(network: OwnNetwork | None, space: spaces.Space[Any]) -> Any:
    """Return the arguments for a features extractor of the user's."""
    if network is None:
        return {}
    kind = network.make
    if not (isinstance(kind, type) and issubclass(kind, BaseFeaturesExtractor)):
        raise OptionError(
            f"{network.name}: learner: sb3_ppo takes a class that derives from "
            "stable_baselines3.common.torch_layers.BaseFeaturesExtractor, not "
            f"{kind!r:.80}. Derive from it, or use learner: ppo, which takes any "
            "torch module"
        )
    try:
        leaves = sampled_leaves(space)
        tried = kind(space, **network.kwargs)
        obs = preprocess_obs(joined(space, iter(leaves)), space)
        with torch.no_grad():
            shape = tuple(tried(obs).shape)
    except Exception as error:
        lines = str(error).strip().splitlines() or [""]
        raise OptionError(
            f"{network.name}, called with observations of {space}, raised "
            f"{type(error).__name__}: {lines[0]}"
        ) from error
    if shape != (len(leaves[0]), tried.features_dim):
        raise OptionError(
            f"{network.name} returned shape {shape} for {len(leaves[0])} observations; "
            f"its features_dim is {tried.features_dim}"
        )
    return {
        "features_extractor_class": kind,
        "features_extractor_kwargs": dict(network.kwargs),
    }
