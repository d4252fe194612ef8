"""One bare env in a `for` loop: the unit that everything is held against."""

from __future__ import annotations

from typing import Any

from gymnasium.vector.utils import batch_space, iterate

from corral.adapters import adapt
from corral.adapters.named import is_pettingzoo
from corral.bench.libraries import Stepped
from corral.bench.messages import Order
from corral.core import Factory
from corral.errors import OptionError


class Loop:
    """Steps one env as often as a batch has slots; resets it when an episode ends."""

    def __init__(self, env: Any, slots: int) -> None:
        self._env = env
        self._batched = batch_space(env.action_space, slots)
        self._rows: dict[int, list[Any]] = {}
        self.episodes = 0

    def step(self, actions: Any) -> None:
        """Step the env with one action after the other."""
        env = self._env
        for action in self._split(actions):
            _, _, terminated, truncated, _ = env.step(action)
            if terminated or truncated:
                self.episodes += 1
                env.reset()

    def _split(self, actions: Any) -> list[Any]:
        # The batches are drawn once and come again and again: split each only once.
        rows = self._rows.get(id(actions))
        if rows is None:
            rows = self._rows[id(actions)] = list(iterate(self._batched, actions))
        return rows


def build(order: Order, factory: Factory) -> Stepped:
    """Make one env and reset it."""
    env = factory()
    if is_pettingzoo(env):
        raise OptionError(
            f"{order.env} makes {type(env).__name__}, a PettingZoo environment; "
            "several agents are not supported yet, only Gymnasium environments are"
        )
    adapt(env)  # says what is wrong with anything else that is no gymnasium.Env
    env.reset(seed=order.seed)
    loop = Loop(env, order.num_envs)
    return Stepped(
        loop.step,
        env.close,
        env.action_space,
        env.observation_space,
        episodes=lambda: loop.episodes,
    )
