"""TAAC: PPO for a team, with attention over agents and counterfactual baselines.

    rows = TeamRows.of(team, rollout)             by agent: what it saw, did and got
    baseline                                      what it could expect before it acted
    advantage, returns = gae(...)                 along time, for each agent
    every minibatch: actor and critic, one step

Returns are advantages and baselines together; they are what the critic learns as the
value of the actions that were taken.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from corral.errors import OptionError
from corral.learners.net_learning import NetLearning, kl, load_net
from corral.learners.optimiser import Optimiser
from corral.learners.policy import CHOSEN, LOG_PROB
from corral.learners.ppo_learner import PPO_CHARTS
from corral.learners.protocol import Learner, LearnerSetup, Rows
from corral.learners.returns import gae
from corral.learners.taac.baseline import ActionNumbers, Baseline
from corral.learners.taac.exported import ExportedTeam
from corral.learners.taac.losses import clipped_gain, conformity, mean_over
from corral.learners.taac.nets import Actor, Critic
from corral.learners.taac.policy import TeamPolicy
from corral.learners.taac.settings import TAACConfig
from corral.learners.taac.team import TeamRows, TeamSpaces
from corral.learners.torch_import import nn, torch
from corral.rollouts.rollout import Rollout

CHARTS = {
    **PPO_CHARTS,
    "value_loss": ("Value loss", "Squared error of the critic's values of actions."),
    "conformity": ("Conformity", "Mean cosine similarity of what agents attend to."),
}


# What a minibatch computes, causes first.
CHECKED_LOSSES = ("the policy loss", "the value loss", "the entropy")


@dataclass(frozen=True, slots=True)
class Samples:
    """What is learnt from: tensors `(rows, agents, ...)`, rows of all slots."""

    obs: Any
    alive: Any
    allowed: Any
    chosen: Any
    valid: Any
    log_prob: Any
    advantage: Any
    returns: Any

    def at(self, places: Any) -> Samples:
        """Some of the rows."""
        parts = (getattr(self, name) for name in self.__slots__)
        return Samples(*(part if part is None else part[places] for part in parts))


class TAACLearner(NetLearning, Learner):
    """Team-attention actor-critic."""

    Config = TAACConfig
    group = "taac"
    title = "TAAC"
    charts = CHARTS
    packages: ClassVar[tuple[str, ...]] = ("torch",)
    trains_teams = True
    _remedy = "lower taac.lr or taac.max_grad_norm"

    def __init__(self, setup: LearnerSetup) -> None:
        super().__init__(setup)
        self.config: TAACConfig = setup.settings
        self.config.check()
        for name in ("normalise_obs", "normalise_reward"):
            if getattr(setup, name):
                raise OptionError(
                    f"{name} is true, and learner: taac takes what each agent sees and "
                    f"gets as it is; set {name}: false"
                )
        self.team = team = TeamSpaces.of(setup.spec)
        self._start(setup.seed, setup.total_steps, setup.device)
        space, config, generator = team.action_space, self.config, self._generator
        self._actions = ActionNumbers(space, config.baseline_samples)
        actor = Actor(team.numbers, space, config, generator)
        critic = Critic(team.numbers + self._actions.count, config, generator)
        self.net = nn.ModuleDict({"actor": actor, "critic": critic}).to(self.device)
        self.actor, self.critic = actor, critic
        self.baseline = Baseline(actor, critic, self._actions, generator)
        self._optimiser = Optimiser(self.net, weight_decay=config.weight_decay)
        self.policy = TeamPolicy(self.actor, team, self.device)

    @classmethod
    def wants(cls, settings: TAACConfig) -> Rows:
        """Return `n_steps` rows of every slot."""
        return Rows(settings.n_steps)

    # Learn ----------------------------------------------------------------------------

    def update(self, rollout: Rollout) -> dict[str, float]:
        """Learn from a rollout that was collected with `policy`; return metrics.

        Raises:
            TrainingDiverged: something is not finite. The weights are as they were
                before the minibatch in which that was found.
        """
        lr = self._lr(self._count(rollout.valid.size))
        samples, explained = self._samples(rollout)
        seen = [self._learn(batch, lr) for batch in self._minibatches(samples)]
        self.updates += 1
        metrics = {"lr": lr, "explained_variance": explained}
        if seen:  # none if every row is lost to faults
            means = np.mean([list(one.values()) for one in seen], axis=0)
            metrics |= dict(zip(seen[0], means.tolist(), strict=True))
            last_epoch = seen[-(len(seen) // self.config.n_epochs) :]
            metrics["kl"] = float(np.mean([one["kl"] for one in last_epoch]))
        return metrics

    def _lr(self, done: float) -> float:
        """From `lr` at the start to `lr_min` at the end of the run; it never rises."""
        first, last = self.config.lr, self.config.lr_min
        fall = 0.0 if last is None else max(0.0, first - last)
        return first - fall * min(done, 1.0)

    def _minibatches(self, samples: Samples) -> Iterator[Samples]:
        """All rows in one random order, `n_epochs` times.

        The last minibatch of each pass has what is left.
        """
        useful = samples.valid.any(1).nonzero()[:, 0]
        order = torch.randperm(len(useful), generator=self._generator)
        size = max(1, self.config.batch_size // self.team.agents)
        for _ in range(self.config.n_epochs):
            for places in useful[order.to(useful.device)].split(size):
                yield samples.at(places)

    def _learn(self, batch: Samples, lr: float) -> dict[str, float]:
        """Learn from one minibatch; return what it measured."""
        config, head, valid = self.config, self.actor.head, batch.valid
        outputs, attended = self.actor(batch.obs, batch.alive, batch.allowed)
        log_prob = head.log_prob(outputs, batch.chosen.flatten(0, 1)).view_as(valid)
        log_ratio = log_prob - batch.log_prob
        value = self.critic(batch.obs, self._actions.of(batch.chosen), batch.alive)

        gain = clipped_gain(log_ratio, batch.advantage, config.clip_range)
        policy_loss = mean_over(gain, valid)
        value_loss = mean_over((value - batch.returns) ** 2, valid)
        entropy = mean_over(head.entropy(outputs).view_as(valid), valid)
        alike = conformity(attended, batch.alive, config.conformity_cap)
        loss = policy_loss + config.vf_coef * value_loss - config.ent_coef * entropy
        loss = loss + config.conformity_coef * alike

        norm = self._optimiser.backward([(loss, torch.ones_like(loss))])
        if not math.isfinite(norm):
            losses = torch.stack([policy_loss, value_loss, entropy])[:, None]
            raise self._diverged(zip(CHECKED_LOSSES, losses, strict=True))
        self._optimiser.step(lr, norm, config.max_grad_norm)
        moved = log_ratio.detach()[valid]
        clipped = moved.expm1().abs() > config.clip_range
        return {
            "policy_loss": policy_loss.item(),
            "value_loss": value_loss.item(),
            "entropy": entropy.item(),
            "conformity": alike.item(),
            "kl": kl(moved),
            "clip_fraction": float(clipped.float().mean()),
            "gradient_norm": norm,
        }

    # Samples --------------------------------------------------------------------------

    def _samples(self, rollout: Rollout) -> tuple[Samples, float]:
        """The rollout as samples, and how much of the returns the baseline explains."""
        rows = TeamRows.of(self.team, rollout)
        seen = (rows.obs, rows.alive, rows.allowed, self._chosen(rollout, rows))
        flat = [self._flat(one) for one in seen]
        baseline = self.baseline(*flat).reshape(rows.reward.shape)
        advantage, returns = self._advantages(rows, baseline)
        valid = rows.valid
        if valid.any():
            kept = advantage[valid]
            advantage = (advantage - kept.mean()) / (kept.std() + 1e-8)
        more = (valid, rollout.extras[LOG_PROB], advantage, returns)
        explained = _explained(returns[valid], baseline[valid])
        return Samples(*flat, *map(self._flat, more)), explained

    def _chosen(self, rollout: Rollout, rows: TeamRows) -> NDArray[Any]:
        """What each agent chose, `[rows, slots, agents, numbers]`."""
        extras, shape = rollout.extras, rows.alive.shape
        if LOG_PROB not in extras:
            raise OptionError(
                f"the rollout's extras are {sorted(extras)}; {LOG_PROB} is needed: "
                "collect it with this learner's `policy`"
            )
        if CHOSEN in extras:
            return extras[CHOSEN]
        flat = rows.action.reshape(-1, *rows.action.shape[3:])
        picked: NDArray[Any] = self.actor.head.from_action(flat).numpy()
        return picked.reshape(*shape, -1)

    def _advantages(
        self, rows: TeamRows, baseline: NDArray[Any]
    ) -> tuple[NDArray[Any], NDArray[Any]]:
        """GAE along time for each agent of each slot, on its baseline."""
        bootstrap = np.zeros(rows.reward.shape)
        cut = (rows.truncated & rows.valid).any(-1)
        if cut.any():
            last = (rows.after[cut], rows.staying[cut])
            bootstrap[cut] = self.baseline(*(self._flat(one, 1) for one in last))
        seen = (rows.next_obs, rows.next_alive, rows.next_allowed)
        following = self.baseline(*(self._flat(one, 1) for one in seen))
        # Agents side by side, as if they were slots: time stays an axis of its own.
        shape, beside = rows.reward.shape, (len(rows.reward), -1)
        advantage, returns = gae(
            rows.reward.reshape(beside),
            baseline.reshape(beside),
            rows.terminated.reshape(beside),
            rows.truncated.reshape(beside),
            rows.valid.reshape(beside),
            bootstrap.reshape(beside),
            following.ravel(),
            gamma=self.config.gamma,
            lam=self.config.gae_lambda,
        )
        return advantage.reshape(shape), returns.reshape(shape)

    def _flat(self, array: NDArray[Any] | None, leading: int = 2) -> Any:
        """An array as a tensor, its first axes as one; floats are float32."""
        if array is None:
            return None
        flat = np.ascontiguousarray(array.reshape(-1, *array.shape[leading:]))
        if flat.dtype.kind == "f":
            flat = flat.astype(np.float32)
        return torch.as_tensor(flat, device=self.device)

    # Save and load --------------------------------------------------------------------

    def policy_module(self, obs_norm: Any) -> Any:
        """Return the actor as a plain torch module, a copy."""
        return ExportedTeam(self.actor, self.team).cpu()

    def load_policy(self, state: dict[str, Any]) -> None:
        """Start from the nets of another learner, and nothing else of it."""
        load_net(self.net, state["net"])


def _explained(returns: NDArray[Any], expected: NDArray[Any]) -> float:
    """Share of the returns' variance that is expected; 1 is perfect."""
    if len(returns) < 2 or (spread := float(returns.var())) == 0.0:
        return math.nan
    return 1.0 - float((returns - expected).var()) / spread
