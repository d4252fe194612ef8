"""Actors of SAC and TD3 that have a memory, as plain torch modules."""

from __future__ import annotations

from typing import Any

from corral.learners.nets.exported import ExportedPolicy, LargestOption, PlainMemory
from corral.learners.off_policy.nets import ActorNet, History
from corral.learners.torch_import import functional, torch


class ExportedHistory(ExportedPolicy):
    """Sees the last reward and remembers its last action, beside what it observes.

    Args:
        *parts: as of `ExportedPolicy`.
        actor: has a history.
        width: of an action as the nets know it.
    """

    takes = ("reward",)

    def __init__(self, *parts: Any, actor: ActorNet, width: int) -> None:
        super().__init__(*parts)
        assert actor.history is not None
        self.history, self.shortcut = actor.history, actor.shortcut
        self.memory = PlainMemory(actor.history.memory)
        self._width = width
        self.carry = {"previous_action": width, **self.memory.carry}

    def forward(self, *inputs: Any) -> Any:
        """Leaves, reward and carry to actions and carry."""
        count = len(self.scales)
        obs, (reward, previous, *carry) = self.features(inputs[:count]), inputs[count:]
        seen = History(previous, reward[:, None], obs)
        hidden, *more = self.memory(self.history.embedded(seen), *carry)
        outputs = self.actor(torch.cat([hidden, self.shortcut(obs)], -1))
        return (self.choice(outputs), self._as_known(outputs), hidden, *more)

    def _as_known(self, outputs: Any) -> Any:
        """The action as the nets know it: in -1 to 1, or one-hot."""
        if isinstance(self.choice, LargestOption):
            return functional.one_hot(outputs.argmax(-1), self._width).float()
        return outputs.tanh()
