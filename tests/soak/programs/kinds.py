"""What an environment is like: one trait of every sort.

All of it is plain values, so that a kind can be drawn, written down and changed.
"""

from __future__ import annotations

import random
from dataclasses import dataclass

OWN = "own"
NEVER = "never"
METHOD = "method"
NONE = "none"

SHARED_STATES = (
    "class, when built",
    "class, in reset",
    "class, at the end",
    "class list",
    "module",
    "seeded numpy",
    "seeded random",
)
"""What an environment keeps outside of itself, and shares with others beside it."""
FORKS = ("returns", "raises", "exits", "exec fails")
"""What a child that the environment forks does in the environment's code."""
REPLACEMENTS = ("step by step", "step by reset", "class")
"""What an environment puts in the place of its own methods, and when."""
RAISING = ("raise", "unpicklable", "exit", "four", "shape", "no number")
"""Faults that leave the process alive."""
DEADLY = ("os_exit", "kill", "segfault", "abort")
HANGING = "hang"


@dataclass(frozen=True, slots=True)
class Kind:
    """One kind of environment."""

    obs: str = "vector"
    """A name of `shapes.SPACES`, as is the next."""
    action: str = "choice"
    infos: str = NONE
    """A name of `infos.STYLES`."""
    mean_length: int = 6
    """Of episodes; with 1, every one has a single step."""
    reuses_buffer: bool = False
    """Whether it writes every observation into the same arrays."""
    state: str = OWN
    """OWN, "drawn" from global generators, or one of SHARED_STATES."""
    forks: str = NEVER
    reaps: bool = False
    """Whether it waits for the children that it forks."""
    replaces: str = METHOD
    fault: str = NONE
    moment: str = "step"
    """When the fault happens: "construct", "reset", "step" or "close"."""
    rarity: int = 12
    """One of so many resets or steps has the fault."""
    waits: float = 0.0
    """Seconds that a step sleeps."""
    wrapped: bool = False
    numbers: str = "python"
    """Types of rewards and flags: "python" or "numpy"."""

    @property
    def dies(self) -> bool:
        """Whether its fault takes its process down, or stops it."""
        return self.fault in (*DEADLY, HANGING)

    @property
    def is_plain(self) -> bool:
        """Whether it may run anywhere, beside anything."""
        return self.state in (OWN, "drawn") and self.forks == NEVER and not self.dies


def some_of(rng: random.Random, usual: str, others: tuple[str, ...]) -> str:
    """The usual value half of the time, else one of the others."""
    return usual if rng.random() < 0.5 else rng.choice(others)
