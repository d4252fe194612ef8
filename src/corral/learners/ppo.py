"""Proximal policy optimisation, in reading order: settings, learn, losses, metrics.

    ppo = PPO(pool.spec.observation_space, pool.spec.action_space, seed=0)
    collector = corral.Collector(pool, ppo.policy)
    while ppo.steps < 100_000:
        rollout = collector.collect(ppo.config.n_steps)
        metrics = ppo.update(rollout)

The defaults, and what they compute, are Stable-Baselines3's.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Iterator, Sequence
from typing import Annotated, Any, NamedTuple

import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray
from pydantic import AfterValidator, Field

from corral.errors import OptionError
from corral.learners.minibatches import RolloutTensors, TensorBatch, minibatches
from corral.learners.net_learning import NetLearning, kl, load_net
from corral.learners.nets.actor_critic import ActorCritic
from corral.learners.nets.encoders import split
from corral.learners.nets.exported import (
    ExportedPolicy,
    RecurrentPolicy,
    choice_for,
    scales_for,
)
from corral.learners.nets.heads import Gaussian
from corral.learners.nets.memory import MemoryKind
from corral.learners.nets.mlp import Activation
from corral.learners.nets.own import OwnNetwork, own_network
from corral.learners.optimiser import Optimiser
from corral.learners.policy import CHOSEN, LOG_PROB, VALUE, NetPolicy
from corral.learners.protocol import Count, LearnerConfig, setting
from corral.learners.returns import gae
from corral.learners.schedules import Pieces, Schedule, check_pieces, scheduled
from corral.learners.tensors import one_axis, to_tensor
from corral.learners.torch_import import torch
from corral.rollouts.normalise import ObsNorm
from corral.rollouts.rollout import Rollout

# A learning rate: one number, or pieces.
Rate = Annotated[Annotated[float, Field(gt=0)] | Pieces, AfterValidator(check_pieces)]

# --- settings ---------------------------------------------------------------------


class PPOConfig(LearnerConfig):
    """Every setting of PPO."""

    lr: Rate = setting(
        3e-4,
        "learning rate, > 0; or pieces in the place of lr_schedule: [[part of the run, "
        "rate], ...], linear between them",
    )
    lr_schedule: Schedule = setting(
        "constant", "how lr falls over the run; to 0 unless constant"
    )
    n_steps: int = setting(2048, "rows of each env per update (default: 2048)", ge=1)
    batch_size: int = setting(
        64, "rows per minibatch; with a memory, of whole envs (default: 64)", ge=1
    )
    n_epochs: int = setting(10, "passes over the rows per update (default: 10)", ge=1)
    gamma: float = setting(0.99, "discount per step, 0 to 1", ge=0, le=1)
    gae_lambda: float = setting(
        0.95, "GAE's lambda, 0 (critic only) to 1 (rewards only)", ge=0, le=1
    )
    clip_range: float = setting(0.2, "PPO clip range, > 0", gt=0)
    clip_schedule: Schedule = setting("constant", "how clip_range falls over the run")
    clip_range_vf: float | None = setting(
        None, "clip range of the value function (default: no clipping)", gt=0
    )
    normalise_advantage: bool = setting(
        True, "scaling of advantages to mean 0 and deviation 1 per minibatch"
    )
    ent_coef: float = setting(0.0, "entropy bonus coefficient, >= 0 (default: 0)", ge=0)
    vf_coef: float = setting(0.5, "value loss coefficient, >= 0 (default: 0.5)", ge=0)
    max_grad_norm: float | None = setting(
        0.5, "norm to which gradients are clipped (default: 0.5; null: none)", gt=0
    )
    target_kl: float | None = setting(
        None,
        "KL divergence that ends an update once it is 1.5 times as large "
        "(default: none)",
        gt=0,
    )
    log_std_init: float = setting(
        0.0, "initial log standard deviation of continuous actions (default: 0)"
    )
    hidden: tuple[Count, ...] | None = setting(
        None,
        "widths of the hidden layers of actor and critic (default: 64, 64; "
        "none after a CNN)",
    )
    activation: Activation = setting(
        "tanh", "activation of the hidden layers (default: tanh)"
    )
    memory: MemoryKind = setting(
        "none", "recurrent layer of the policy (default: none)"
    )
    memory_size: int = setting(64, "width of the recurrent layer (default: 64)", ge=1)
    scale_images: bool = setting(True, "scaling of image bytes to 0..1 (default: true)")

    def check_length(self, total_steps: int | None) -> None:
        """Raise OptionError if a schedule has no total_steps to go by."""
        both = (self.lr_schedule, self.clip_schedule)
        changes = both != ("constant", "constant") or isinstance(self.lr, tuple)
        if total_steps is None and changes:
            raise OptionError(
                f"lr_schedule is {self.lr_schedule} and clip_schedule is "
                f"{self.clip_schedule}; they need total_steps, the length of the run"
            )


# What a minibatch computes, causes first.
CHECKED_VALUES = (
    "the policy's output",
    "the value of an observation",
    "the policy loss",
    "the value loss",
)


# --- the learner ------------------------------------------------------------------


class PPO(NetLearning):
    """Learns a policy from rollouts that were collected with it.

    Args:
        observation_space: of one env.
        action_space: of one env.
        config: the settings.
        seed: of the initial weights and the order of minibatches.
        total_steps: env steps of the whole run, over all slots, for schedules.
        device: where torch computes.
        network: makes networks of your own, a function or class; see `nets.own`.

    It draws from its own generator; actions are drawn from the collector's.
    """

    _remedy = "lower lr or max_grad_norm, or normalise observations and rewards"

    def __init__(
        self,
        observation_space: spaces.Space[Any],
        action_space: spaces.Space[Any],
        config: PPOConfig | None = None,
        *,
        seed: int = 0,
        total_steps: int | None = None,
        device: str = "cpu",
        network: OwnNetwork | Callable[..., Any] | None = None,
    ) -> None:
        self.config = config = PPOConfig() if config is None else config
        config.check_length(total_steps)
        self._start(seed, total_steps, device)
        self.observation_space = observation_space
        self.action_space = action_space
        self.net = ActorCritic(
            observation_space,
            action_space,
            hidden=config.hidden,
            activation=config.activation,
            memory=config.memory,
            memory_size=config.memory_size,
            log_std=config.log_std_init,
            scale_images=config.scale_images,
            generator=self._generator,
            own=own_network(network),
            seed=seed % 2**63,
        ).to(self.device)
        self._optimiser = Optimiser(self.net)
        self.policy = NetPolicy(self.net, observation_space, self.device)

    # Learn ------------------------------------------------------------------------

    def update(self, rollout: Rollout) -> dict[str, float]:
        """Learn from a rollout that was collected with `policy`; return metrics.

        Raises:
            TrainingDiverged: something is not finite. The weights are as they were
                before the minibatch in which that was found.
        """
        done = self._count(rollout.valid.size)
        lr = scheduled(self.config.lr, self.config.lr_schedule, done)
        clip = scheduled(self.config.clip_range, self.config.clip_schedule, done)
        rows = self._rows(rollout)
        epochs: list[list[JudgedBatch]] = []
        norms: list[float] = []
        for batch in self._epochs(rows, rollout, epochs):
            norm = self._learn(batch, lr, clip, epochs[-1])
            if norm is None:
                break
            norms.append(norm)
        self.updates += 1
        metrics = {"lr": lr, "clip_range": clip}
        metrics |= update_metrics(epochs, norms, clip, self.net.head)
        metrics["explained_variance"] = explained_variance(rows, rollout.valid)
        if isinstance(self.net.head, Gaussian):
            metrics["std"] = float(self.net.head.log_std.detach().exp().mean())
        return metrics

    def _epochs(
        self, rows: RolloutTensors, rollout: Rollout, epochs: list[list[JudgedBatch]]
    ) -> Iterator[TensorBatch]:
        """The minibatches of all epochs; adds a list to `epochs` for each."""
        for _ in range(self.config.n_epochs):
            epochs.append([])
            yield from self._minibatches(rows, rollout)

    def _learn(
        self, batch: TensorBatch, lr: float, clip: float, judged: list[JudgedBatch]
    ) -> float | None:
        """Learn from one minibatch; return the gradient's norm.

        None if the KL limit was reached, so that nothing was learnt.
        """
        rows, config, head = batch.rows, self.config, self.net.head
        features = self.net.unroll(rows.leaves, batch.batch_sizes, batch.carry)
        outputs = self.net.outputs(features, rows.leaves)
        value = self.net.values(features)
        log_prob = head.log_prob(outputs, rows.chosen)

        advantage = rows.advantage
        if config.normalise_advantage and len(advantage) > 1:
            deviation, mean = torch.std_mean(advantage)
            advantage = (advantage - mean) / (deviation + 1e-8)
        log_ratio = log_prob.detach() - rows.log_prob
        policy = policy_loss(log_ratio, advantage, clip)
        critic = value_loss(value.detach(), rows, config.clip_range_vf)

        judged.append(
            JudgedBatch(log_ratio, policy.each, critic.each, outputs.detach())
        )
        if config.target_kl is not None and kl(log_ratio) > 1.5 * config.target_kl:
            return None
        count = len(log_ratio)
        slopes = [(log_prob, policy.slope / count)]
        slopes.append((value, critic.slope * (config.vf_coef / count)))
        if config.ent_coef:
            entropy = head.entropy(outputs)
            slopes.append((entropy, torch.full_like(value, -config.ent_coef / count)))
        norm = self._optimiser.backward(slopes)
        if not math.isfinite(norm):
            judged_values = (outputs, value, policy.each, critic.each)
            named = zip(CHECKED_VALUES, judged_values, strict=True)
            raise self._diverged([*rows.quantities(), *named])
        self._optimiser.step(lr, norm, config.max_grad_norm)
        return norm

    # Rows -------------------------------------------------------------------------

    def _rows(self, rollout: Rollout) -> RolloutTensors:
        """The rollout as tensors with one row per row and slot."""
        extras = rollout.extras
        if not {LOG_PROB, VALUE} <= extras.keys():
            raise OptionError(
                f"the rollout's extras are {sorted(extras)}; {LOG_PROB} and {VALUE} "
                "are needed: collect it with this learner's `policy`"
            )
        advantage, returns = gae(
            rollout.reward,
            extras[VALUE],
            rollout.terminated,
            rollout.truncated,
            rollout.valid,
            rollout.bootstrap,
            rollout.next_value,
            gamma=self.config.gamma,
            lam=self.config.gae_lambda,
        )
        if CHOSEN in extras:
            chosen = self._flat(extras[CHOSEN])
        else:
            chosen = self.net.head.from_action(one_axis(rollout.action))
        leaves = split(self.observation_space, rollout.obs)
        return RolloutTensors(
            leaves=[self._narrow(leaf) for leaf in leaves],
            chosen=chosen.to(self.device),
            log_prob=self._flat(extras[LOG_PROB]),
            value=self._flat(extras[VALUE]),
            advantage=self._flat(advantage.astype(np.float32)),
            returns=self._flat(returns.astype(np.float32)),
        )

    def _flat(self, array: NDArray[Any]) -> Any:
        return to_tensor(one_axis(array), self.device)

    def _narrow(self, leaf: NDArray[Any]) -> Any:
        """A leaf of the observations, cast once instead of in every minibatch."""
        flat = self._flat(leaf)
        return flat.float() if flat.dtype == torch.float64 else flat

    def _minibatches(
        self, rows: RolloutTensors, rollout: Rollout
    ) -> Iterator[TensorBatch]:
        return minibatches(
            rows,
            rollout.started,
            rollout.valid,
            None if self.net.memory is None else rollout.first_carry,
            self.config.batch_size,
            self._generator,
        )

    # Save and load ----------------------------------------------------------------

    def policy_module(self, obs_norm: ObsNorm | None = None) -> Any:
        """Return the policy as a plain torch module, a copy; see `nets.exported`."""
        scales = scales_for(self.observation_space, obs_norm)
        encoder, actor = copy.deepcopy(self.net.encoder), self.net.plain_actor()
        choice, memory = choice_for(self.action_space), self.net.memory
        parts = (scales, encoder, actor, choice, self.net.mask)
        if memory is None:
            return ExportedPolicy(*parts).cpu()
        return RecurrentPolicy(memory, *parts).cpu()

    def load_policy(self, state: dict[str, Any], log_std: float | None = None) -> None:
        """Start from the nets of another learner, and nothing else of it.

        Args:
            state: its `state_dict()`, as from a checkpoint or after `cloning.clone`.
            log_std: (Box actions) log standard deviation to explore with.
        """
        load_net(self.net, state["net"])
        if log_std is not None and isinstance(self.net.head, Gaussian):
            with torch.no_grad():
                self.net.head.log_std.fill_(log_std)


# --- losses -----------------------------------------------------------------------


class Loss(NamedTuple):
    """The loss of each row, and its derivative.

    The derivatives are written out: with autograd an update takes 8 to 14% longer
    (benchmarks/ppo_derivatives.py).
    """

    each: Any
    slope: Any


def policy_loss(log_ratio: Any, advantage: Any, clip: float) -> Loss:
    """PPO's clipped objective, negated; the slope is by the log-probability.

    The loss falls when actions with positive advantage become more likely.
    """
    ratio = log_ratio.exp()
    gain = advantage * ratio
    clipped = advantage * ratio.clamp(1.0 - clip, 1.0 + clip)
    return Loss(-torch.min(gain, clipped), -gain.masked_fill(gain > clipped, 0.0))


def value_loss(value: Any, rows: RolloutTensors, clip: float | None) -> Loss:
    """Squared error of the critic; the slope is by the value."""
    if clip is None:
        away = value - rows.returns
        return Loss(away * away, 2.0 * away)
    moved = value - rows.value
    away = rows.value + moved.clamp(-clip, clip) - rows.returns
    return Loss(away * away, 2.0 * away.masked_fill(moved.abs() > clip, 0.0))


# --- metrics ----------------------------------------------------------------------


class JudgedBatch(NamedTuple):
    """What a minibatch computed, row by row."""

    log_ratio: Any
    policy_loss: Any
    value_loss: Any
    outputs: Any


def update_metrics(
    epochs: Sequence[Sequence[JudgedBatch]],
    norms: Sequence[float],
    clip: float,
    head: Any,
) -> dict[str, float]:
    """Return means over all minibatches; `kl` over the last epoch only.

    Args:
        epochs: the minibatches of each epoch.
        norms: gradient norms, one per step: the last minibatch has none if target_kl
            ended the update.
        clip: the clip range.
        head: of the policy.
    """
    batches = [batch for epoch in epochs for batch in epoch]
    if not batches:
        return {"minibatches": 0.0}
    whole = JudgedBatch(*(torch.cat(one) for one in zip(*batches, strict=True)))
    moved = whole.log_ratio.expm1().abs() > clip
    return {
        "policy_loss": float(whole.policy_loss.mean()),
        "value_loss": float(whole.value_loss.mean()),
        "entropy": float(head.entropy(whole.outputs).detach().mean()),
        "kl": kl(torch.cat([batch.log_ratio for batch in epochs[-1]])),
        "clip_fraction": float(moved.float().mean()),
        "gradient_norm": sum(norms) / len(norms) if norms else math.nan,
        "epochs": float(len(epochs)),
        "minibatches": float(len(norms)),
        "stopped_early": float(len(norms) < len(batches)),
    }


def explained_variance(rows: RolloutTensors, valid: NDArray[np.bool_]) -> float:
    """Share of the returns' variance that the critic explains; 1 is perfect."""
    places = torch.from_numpy(np.flatnonzero(valid)).to(rows.value.device)
    returns, expected = rows.returns[places], rows.value[places]
    if len(places) < 2 or float(spread := returns.var()) == 0.0:
        return math.nan
    return 1.0 - float((returns - expected).var() / spread)
