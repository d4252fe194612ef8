"""The counterfactual baseline: what an agent could expect before it acted.

The mean of the critic's values over an agent's own actions, as likely as the policy
takes them, while all other agents do what they did. Discrete actions are all taken into
account; of a Box some are drawn. Where no action has been taken yet, as after the last
row of a rollout, those of the others are drawn.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from corral.learners.taac.nets import Actor, Critic
from corral.learners.torch_import import functional, torch

# Rows of one pass, so that the values of all options fit in memory.
PASS_ROWS = 1024


class ActionNumbers:
    """Actions of one agent as the critic sees them: one-hot, or the numbers of a Box.

    Args:
        space: Discrete or Box.
        samples: (Box) actions drawn to stand for all.
    """

    def __init__(self, space: Any, samples: int) -> None:
        self._space = space
        self._samples = samples
        self.discrete = isinstance(space, spaces.Discrete)
        # How many numbers an action is.
        self.count = int(space.n) if self.discrete else math.prod(space.shape)

    def of(self, chosen: Any) -> Any:
        """Choices `(..., numbers)` of a head; those of a Box within its bounds."""
        if self.discrete:
            return functional.one_hot(chosen[..., 0], self.count).float()
        low, high = (
            torch.as_tensor(bound.reshape(-1), device=chosen.device)
            for bound in (self._space.low, self._space.high)
        )
        return chosen.clamp(low, high)

    def drawn(self, head: Any, outputs: Any, count: int, generator: Any) -> Any:
        """Choices drawn from a head's outputs, `(agents, count, numbers)`."""
        if self.discrete:
            chances = outputs.exp().cpu()
            drawn = torch.multinomial(chances, count, True, generator=generator)
            return drawn[..., None].to(outputs.device)
        shape = len(outputs), count, outputs.shape[-1]
        noise = torch.randn(shape, generator=generator).to(outputs.device)
        return outputs[:, None] + head.log_std.exp() * noise

    def options(self, head: Any, outputs: Any, generator: Any) -> tuple[Any, Any]:
        """Actions `(agents, options, numbers)` to average over, and their shares."""
        if self.discrete:
            each = torch.eye(self.count, device=outputs.device)
            return each.expand(len(outputs), -1, -1), outputs.exp()
        count = self._samples
        numbers = self.of(self.drawn(head, outputs, count, generator))
        return numbers, torch.full(numbers.shape[:2], 1 / count, device=numbers.device)


class Baseline:
    """Values of observations for GAE, from an actor and a critic."""

    def __init__(
        self, actor: Actor, critic: Critic, actions: ActionNumbers, generator: Any
    ) -> None:
        self._actor = actor
        self._critic = critic
        self._actions = actions
        self._generator = generator

    def __call__(
        self, obs: Any, alive: Any, allowed: Any = None, chosen: Any = None
    ) -> NDArray[np.float64]:
        """What each agent can expect, `(rows, agents)`.

        Args:
            obs: `(rows, agents, numbers)`, a tensor as all that follow.
            alive: `(rows, agents)`.
            allowed: the allowed actions, or None for all.
            chosen: what the agents chose; None to draw it.
        """
        parts = (obs, alive, allowed, chosen)
        with torch.no_grad():
            passes = [
                self._pass(*(_some(one, begin) for one in parts))
                for begin in range(0, len(obs), PASS_ROWS)
            ]
        whole: NDArray[np.float64] = torch.cat(passes).cpu().double().numpy()
        return whole

    def _pass(self, obs: Any, alive: Any, allowed: Any, chosen: Any) -> Any:
        actions, head, generator = self._actions, self._actor.head, self._generator
        outputs, _ = self._actor(obs, alive, allowed)
        if chosen is None:
            drawn = actions.drawn(head, outputs, 1, generator)
            chosen = drawn.view(*alive.shape, -1)
        options, shares = actions.options(head, outputs, generator)
        options = options.reshape(*alive.shape, *options.shape[1:])
        values = self._critic.of_options(obs, actions.of(chosen), options, alive)
        return (values * shares.view_as(values)).sum(-1)


def _some(tensor: Any, begin: int) -> Any:
    return None if tensor is None else tensor[begin : begin + PASS_ROWS]
