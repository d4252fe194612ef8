"""What an env returned once, and the kind of driver that makes it return something."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

from gymnasium import Space


@dataclass(frozen=True, slots=True)
class EnvResponse:
    """What an env returned once; of several agents, dicts by agent."""

    what: str
    """`reset 0`, `step 17`: counted over all episodes."""
    obs: Any
    reward: Any
    terminated: Any
    truncated: Any
    info: Any
    over: bool
    """Whether the episode is."""


class EnvDriver(Protocol):
    """One kind of env, driven with sampled actions."""

    env: Any
    observation_spaces: dict[str, Space[Any]]
    """By agent; of a single-agent env under ""."""
    action_spaces: dict[str, Space[Any]]

    def reset(self, seed: int | None, what: str) -> EnvResponse:
        """Start an episode."""

    def draw(self) -> Any:
        """What to do next."""

    def step(self, drawn: Any, what: str) -> EnvResponse:
        """Do it."""
