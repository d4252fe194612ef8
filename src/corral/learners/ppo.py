"""Proximal policy optimisation, in reading order: settings, act, learn.

    ppo = PPO(pool.spec.observation_space, pool.spec.action_space, seed=0)
    collector = corral.Collector(pool, ppo.policy)
    while ppo.steps < 100_000:
        rollout = collector.collect(ppo.config.n_steps)
        metrics = ppo.update(rollout)

The defaults, and what they compute, are Stable-Baselines3's.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Annotated, Any, NamedTuple

import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from corral.errors import CheckpointError, MissingExtra, OptionError, TrainingDiverged
from corral.learners.minibatches import Packing, even_parts, shuffled, shuffled_slots
from corral.learners.nets.actor_critic import ActorCritic
from corral.learners.nets.encoders import split
from corral.learners.nets.heads import Gaussian
from corral.learners.nets.memory import MemoryKind
from corral.learners.nets.mlp import Activation
from corral.learners.optimiser import Optimiser
from corral.learners.policy import CHOSEN, LOG_PROB, VALUE, NetPolicy
from corral.learners.returns import gae
from corral.learners.rollout_tensors import RolloutTensors, TensorBatch, one_axis
from corral.learners.schedules import Schedule, scheduled
from corral.learners.tensors import to_tensor
from corral.learners.torch_import import torch
from corral.learners.update_metrics import UpdateMetrics, kl
from corral.rollouts.rollout import Rollout

try:
    from pydantic import BaseModel, ConfigDict, Field
except ImportError as error:
    raise MissingExtra("learners need pydantic: pip install 'corral[train]'") from error


# --- settings ---------------------------------------------------------------------


class PPOConfig(BaseModel):
    """Every setting of PPO."""

    model_config = ConfigDict(
        extra="forbid", frozen=True, validate_default=True, allow_inf_nan=False
    )

    lr: float = Field(
        default=3e-4, gt=0, description="how far a minibatch moves the weights"
    )
    lr_schedule: Schedule = Field(
        default="constant",
        description="how lr falls over the run, towards 0 unless constant",
    )
    n_steps: int = Field(
        default=2048, ge=1, description="rows of each slot that one update learns from"
    )
    batch_size: int = Field(
        default=64,
        ge=1,
        description="rows of a minibatch; with a memory as many slots as make so many",
    )
    n_epochs: int = Field(
        default=10, ge=1, description="how often each row is learnt from"
    )
    gamma: float = Field(default=0.99, ge=0, le=1, description="the discount per step")
    gae_lambda: float = Field(
        default=0.95,
        ge=0,
        le=1,
        description="advantages: 0 trusts the critic, 1 the rewards to the end",
    )
    clip_range: float = Field(
        default=0.2,
        gt=0,
        description="how much likelier an action may become in one update",
    )
    clip_schedule: Schedule = Field(
        default="constant", description="how clip_range falls over the run"
    )
    clip_range_vf: float | None = Field(
        default=None,
        gt=0,
        description="how far a value may move in one update; null: any",
    )
    normalise_advantage: bool = Field(
        default=True, description="to mean 0 and deviation 1 in each minibatch"
    )
    ent_coef: float = Field(
        default=0.0, ge=0, description="the weight of staying undecided"
    )
    vf_coef: float = Field(
        default=0.5, ge=0, description="the weight of the value loss"
    )
    max_grad_norm: float | None = Field(
        default=0.5,
        gt=0,
        description="longer gradients are shortened to this; null: none are",
    )
    target_kl: float | None = Field(
        default=None,
        gt=0,
        description="an update ends when kl is 1.5 times as large; null: never does",
    )
    log_std_init: float = Field(
        default=0.0,
        description="(Box actions) the logarithm of their deviation, at first",
    )
    hidden: tuple[Annotated[int, Field(ge=1)], ...] | None = Field(
        default=None,
        description="widths of actor and of critic; null: 64, 64, or none for an image",
    )
    activation: Activation = Field(
        default="tanh", description="after each of those layers"
    )
    memory: MemoryKind = Field(
        default="none", description="what the policy remembers with"
    )
    memory_size: int = Field(default=64, ge=1, description="the width of the memory")
    scale_images: bool = Field(
        default=True, description="bytes become numbers from 0 to 1"
    )

    def check_length(self, total_steps: int | None) -> None:
        """A schedule needs the length of the run: OptionError without it."""
        both = (self.lr_schedule, self.clip_schedule)
        if total_steps is None and both != ("constant", "constant"):
            raise OptionError(
                f"lr_schedule is {self.lr_schedule} and clip_schedule is "
                f"{self.clip_schedule}; they need total_steps, the length of the run"
            )


CHECKED_VALUES = (
    "the policy's output",
    "the value of an observation",
    "the policy loss",
    "the value loss",
)
"""What a minibatch computes, causes first."""


# --- the learner ------------------------------------------------------------------


class PPO:
    """Learns a policy from rollouts that this policy was collected with.

    Args:
        observation_space: of one env.
        action_space: of one env.
        config: the settings.
        seed: of the weights, and of the order in which rows are learnt from.
        total_steps: how long the run is to be, for schedules; env steps of all slots.
        device: where torch computes.

    It draws from a generator of its own; actions are drawn from the collector's.
    """

    def __init__(
        self,
        observation_space: spaces.Space[Any],
        action_space: spaces.Space[Any],
        config: PPOConfig | None = None,
        *,
        seed: int = 0,
        total_steps: int | None = None,
        device: str = "cpu",
    ) -> None:
        self.config = config = PPOConfig() if config is None else config
        self.total_steps = total_steps
        config.check_length(total_steps)
        self.steps = 0
        """Env steps learnt from."""
        self.updates = 0
        self.observation_space = observation_space
        self.device = torch.device(device)
        self._generator = torch.Generator().manual_seed(seed % 2**63)
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
        ).to(self.device)
        self._optimiser = Optimiser(self.net)
        self.policy = NetPolicy(self.net, observation_space, self.device)

    # Learn ------------------------------------------------------------------------

    def update(self, rollout: Rollout) -> dict[str, float]:
        """Learn from a rollout that `policy` was collected with; returns metrics.

        Raises:
            TrainingDiverged: something is not finite. The weights are as they were
                before the minibatch in which that was found.
        """
        done = self.steps / self.total_steps if self.total_steps else 0.0
        self.steps += rollout.valid.size
        lr = scheduled(self.config.lr, self.config.lr_schedule, done)
        clip = scheduled(self.config.clip_range, self.config.clip_schedule, done)
        rows = self._rows(rollout)
        update_metrics = UpdateMetrics()
        for _ in range(self.config.n_epochs):
            update_metrics.begin_epoch()
            for batch in self._minibatches(rows, rollout):
                if not self._learn(batch, lr, clip, update_metrics):
                    update_metrics.stopped = True
                    break
            if update_metrics.stopped:
                break
        self.updates += 1
        metrics = {
            "lr": lr,
            "clip_range": clip,
            **update_metrics.metrics(clip, self.net.head),
        }
        metrics["explained_variance"] = explained_variance(rows, rollout.valid)
        if isinstance(self.net.head, Gaussian):
            metrics["std"] = float(self.net.head.log_std.detach().exp().mean())
        return metrics

    def _learn(
        self, batch: TensorBatch, lr: float, clip: float, update_metrics: UpdateMetrics
    ) -> bool:
        """Move the weights by one minibatch; False if they have moved far enough."""
        rows, config, head = batch.rows, self.config, self.net.head
        features = self.net.unroll(rows.leaves, batch.batch_sizes, batch.carry)
        outputs, value = self.net.outputs(features), self.net.values(features)
        log_prob = head.log_prob(outputs, rows.chosen)

        advantage = rows.advantage
        if config.normalise_advantage and len(advantage) > 1:
            deviation, mean = torch.std_mean(advantage)
            advantage = (advantage - mean) / (deviation + 1e-8)
        log_ratio = log_prob.detach() - rows.log_prob
        policy = policy_loss(log_ratio, advantage, clip)
        critic = value_loss(value.detach(), rows, config.clip_range_vf)

        update_metrics.add_minibatch(
            log_ratio, policy.each, critic.each, outputs.detach()
        )
        if config.target_kl is not None and kl(log_ratio) > 1.5 * config.target_kl:
            return False
        count = len(log_ratio)
        slopes = [(log_prob, policy.slope / count)]
        slopes.append((value, critic.slope * (config.vf_coef / count)))
        if config.ent_coef:
            entropy = head.entropy(outputs)
            slopes.append((entropy, torch.full_like(value, -config.ent_coef / count)))
        norm = self._optimiser.backward(slopes)
        if not math.isfinite(norm):
            judged = (outputs, value, policy.each, critic.each)
            raise self._diverged(rows, judged)
        self._optimiser.step(lr, norm, config.max_grad_norm)
        update_metrics.add_step(norm)
        return True

    # Rows -------------------------------------------------------------------------

    def _rows(self, rollout: Rollout) -> RolloutTensors:
        """What is learnt from, one tensor row per row and slot of the rollout."""
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
        """A leaf of the observations; cast once, not in every minibatch."""
        flat = self._flat(leaf)
        return flat.float() if flat.dtype == torch.float64 else flat

    def _minibatches(
        self, rows: RolloutTensors, rollout: Rollout
    ) -> Iterator[TensorBatch]:
        """Every valid row once, in an order of its own each time."""
        if self.net.memory is not None:
            yield from self._sequences(rows, rollout)
            return
        index = shuffled(np.flatnonzero(rollout.valid), self._generator)
        # Gathered once per epoch: minibatches are views of it.
        mixed = rows.at(index)
        for part in even_parts(len(index), self.config.batch_size):
            if part.stop > part.start:
                yield TensorBatch(mixed.part(part))

    def _sequences(
        self, rows: RolloutTensors, rollout: Rollout
    ) -> Iterator[TensorBatch]:
        packings = shuffled_slots(
            rollout.started, rollout.valid, self.config.batch_size, self._generator
        )
        for packing in packings:
            yield TensorBatch(
                rows.at(packing.index),
                torch.from_numpy(packing.batch_sizes),
                self._first_carry(rollout.first_carry, packing),
            )

    def _first_carry(self, carry: Any, packing: Packing) -> Any:
        """What is remembered where each sequence begins."""
        if isinstance(carry, tuple):
            return tuple(self._first_carry(part, packing) for part in carry)
        begun = np.asarray(carry)[packing.slots]
        begun[packing.fresh] = 0.0
        return to_tensor(begun, self.device)

    def _diverged(
        self, rows: RolloutTensors, judged: tuple[Any, ...]
    ) -> TrainingDiverged:
        """The error, with the quantity's name: causes before what follows of them."""
        quantities = [*rows.quantities(), *zip(CHECKED_VALUES, judged, strict=True)]
        name, value = "the gradient", math.nan
        for one, tensor in quantities:
            if tensor.is_floating_point() and not bool(tensor.isfinite().all()):
                wrong = tensor.detach()[~tensor.isfinite()]
                name, value = one, float(wrong.flatten()[0])
                break
        return TrainingDiverged(
            f"{name} is {value} in update {self.updates + 1}, after {self.steps:,} "
            "steps; the weights are as they were before that minibatch. Look for what "
            "the env gave that is not finite or very large; if there is nothing, lower "
            "lr or max_grad_norm, or normalise observations and rewards"
        )

    # Save and load ----------------------------------------------------------------

    def state_dict(self) -> dict[str, Any]:
        """Everything it takes to go on as if nothing had happened."""
        net = self.net.state_dict()
        return {
            "net": {name: value.detach().clone() for name, value in net.items()},
            "optimiser": self._optimiser.state_dict(),
            "generator": self._generator.get_state(),
            "steps": self.steps,
            "updates": self.updates,
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on from what was saved, of a learner with the same spaces and nets."""
        self._load_net(state["net"])
        self._optimiser.load_state_dict(state["optimiser"])
        self._generator.set_state(state["generator"])
        self.steps = state["steps"]
        self.updates = state["updates"]

    def load_policy(self, state: dict[str, Any], log_std: float | None = None) -> None:
        """Start from the nets of another learner, and nothing else of it.

        Args:
            state: its `state_dict()`, as from a checkpoint or after `cloning.clone`.
            log_std: (Box actions) how much to explore, instead of as it did.
        """
        self._load_net(state["net"])
        if log_std is not None and isinstance(self.net.head, Gaussian):
            with torch.no_grad():
                self.net.head.log_std.fill_(log_std)

    def _load_net(self, saved: dict[str, Any]) -> None:
        with nets_that_fit():
            self.net.load_state_dict(saved)


@contextmanager
def nets_that_fit() -> Iterator[None]:
    """Say what is wrong where saved weights are those of other nets."""
    try:
        yield
    except RuntimeError as error:
        reasons = str(error).splitlines()[1:] or [str(error)]
        raise CheckpointError(
            "the saved nets are not those of this learner: "
            f"{'; '.join(reason.strip() for reason in reasons[:3])}. Use the "
            "settings and the env that they were saved with"
        ) from None


# --- losses -----------------------------------------------------------------------


class Loss(NamedTuple):
    """A loss of each row, and how it changes with what it is a loss of.

    The derivatives are short enough to be written out, which takes a third of the time
    that autograd takes for them.
    """

    each: Any
    slope: Any


def policy_loss(log_ratio: Any, advantage: Any, clip: float) -> Loss:
    """Less where what was better than expected got likelier, but only up to the clip.

    The slope is that by the log-probability.
    """
    ratio = log_ratio.exp()
    gain = advantage * ratio
    clipped = advantage * ratio.clamp(1.0 - clip, 1.0 + clip)
    return Loss(-torch.min(gain, clipped), -gain.masked_fill(gain > clipped, 0.0))


def value_loss(value: Any, rows: RolloutTensors, clip: float | None) -> Loss:
    """The square of how far the critic is from what came; the slope is by the value."""
    if clip is None:
        away = value - rows.returns
        return Loss(away * away, 2.0 * away)
    moved = value - rows.value
    away = rows.value + moved.clamp(-clip, clip) - rows.returns
    return Loss(away * away, 2.0 * away.masked_fill(moved.abs() > clip, 0.0))


def explained_variance(rows: RolloutTensors, valid: NDArray[np.bool_]) -> float:
    """How much of what came the critic had expected: 1 all, 0 nothing."""
    places = torch.from_numpy(np.flatnonzero(valid)).to(rows.value.device)
    returns, expected = rows.returns[places], rows.value[places]
    if len(places) < 2 or float(spread := returns.var()) == 0.0:
        return math.nan
    return 1.0 - float((returns - expected).var() / spread)
