"""What PPO and TAAC share: a net and its optimiser, what is counted and saved."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

from corral.errors import CheckpointError, TrainingDiverged
from corral.learners.optimiser import Optimiser
from corral.learners.torch_import import torch


class NetLearning:
    """Base of learners that move one net by gradients.

    A learner sets `net` and `_optimiser` when it has made them.

    Attributes:
        steps: Env steps learnt from.
    """

    net: Any
    _optimiser: Optimiser
    # What to lower if values of the env are not the reason; ends the error's text.
    _remedy = "lower lr or max_grad_norm"

    def _start(self, seed: int, total_steps: int | None, device: str) -> None:
        """Begin to count; `total_steps` is the length of the run, for schedules."""
        self.total_steps = total_steps
        self.steps = 0
        self.updates = 0
        self.device = torch.device(device)
        self._generator = torch.Generator().manual_seed(seed % 2**63)

    def _count(self, steps: int) -> float:
        """Count steps of an update; return the part of the run done before them."""
        done = self.steps / self.total_steps if self.total_steps else 0.0
        self.steps += steps
        return done

    def _diverged(self, quantities: Iterable[tuple[str, Any]]) -> TrainingDiverged:
        """The error, with the first quantity that is not finite: causes come first."""
        named = [*quantities, ("the gradient", torch.tensor(math.nan))]
        wrong = ((name, one.detach()[~one.isfinite()]) for name, one in named)
        name, value = next((name, one[0].item()) for name, one in wrong if len(one))
        return TrainingDiverged(
            f"{name} is {value} in update {self.updates + 1}, after {self.steps:,} "
            "steps; the weights are as they were before that minibatch. Check that the "
            "env's observations and rewards are finite and not very large; if they "
            f"are, {self._remedy}"
        )

    def state_dict(self) -> dict[str, Any]:
        """Return everything that is needed to continue exactly."""
        return {
            "net": saved_net(self.net),
            "optimiser": self._optimiser.state_dict(),
            "generator": self._generator.get_state(),
            "steps": self.steps,
            "updates": self.updates,
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue from a saved state of a learner with the same spaces and nets."""
        load_net(self.net, state["net"])
        self._optimiser.load_state_dict(state["optimiser"])
        self._generator.set_state(state["generator"])
        self.steps = state["steps"]
        self.updates = state["updates"]


def saved_net(net: Any) -> dict[str, Any]:
    """Return copies of a net's weights, by name."""
    return {name: value.detach().clone() for name, value in net.state_dict().items()}


def load_net(net: Any, saved: dict[str, Any]) -> None:
    """Load saved weights; raise CheckpointError if they are those of another net."""
    try:
        net.load_state_dict(saved)
    except RuntimeError as error:
        reasons = str(error).splitlines()[1:] or [str(error)]
        raise CheckpointError(
            "the saved nets are not those of this learner: "
            f"{'; '.join(reason.strip() for reason in reasons[:3])}. Use the "
            "settings and the env that they were saved with"
        ) from None


def kl(log_ratio: Any) -> float:
    """Estimate the KL divergence; never negative."""
    return float((log_ratio.expm1() - log_ratio).mean())
