"""An environment that fails when its action orders it to.

An action is an order and a number: `order * ACTIONS + number`. Without an order it is
KnownAnswers, whose answers depend on the whole action, so a test that sends orders
knows what every row has to be, and which faults to expect.
"""

from __future__ import annotations

import enum
import faulthandler
import subprocess
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from gymnasium import spaces

from corral.tools.testing.answers import ACTIONS, KnownAnswers
from corral.tools.testing.faulty_envs import OnPurpose, fail, leak

LEAK = 24 * 2**20


class Effect(enum.Enum):
    """What becomes of the step that carries an order."""

    FINE = "it is answered"
    RAISES = "the env is built again"
    KILLS = "the worker is replaced"
    LATER = "it is answered; the next reset fails"


@dataclass(frozen=True, slots=True)
class Order:
    """Something to fail at."""

    name: str
    effect: Effect
    obey: Callable[[Obedient], object]
    later: Effect = Effect.FINE
    """What becomes of the next reset."""


class Obedient(KnownAnswers):
    """Does what its actions say.

    Args:
        failures: a file with one byte for each time the constructor has yet to fail.
        **others: as of KnownAnswers.
    """

    def __init__(self, failures: str, **others: Any) -> None:
        super().__init__(**others)
        self.action_space = spaces.Discrete(ACTIONS * len(ORDERS))
        self.failures = Path(failures)
        self.bad_shape = False
        self.at_reset = ""
        self.at_close = ""
        self._fail_if_told()

    def _fail_if_told(self) -> None:
        with suppress(FileNotFoundError):
            left = self.failures.stat().st_size
            if left:
                with self.failures.open("r+b") as file:
                    file.truncate(left - 1)
                raise OnPurpose("not built, on purpose")

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        """Start an episode, unless told to fail."""
        if self.at_reset:
            fail(self.at_reset)
        return super().reset(seed=seed, options=options)

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        """Obey, then answer if that is still possible."""
        ORDERS[int(action) // ACTIONS].obey(self)
        answer = super().step(action)
        if not self.bad_shape:
            return answer
        return (np.zeros((2, 7)), *answer[1:])

    def close(self) -> None:
        """Close, unless told to fail."""
        if self.at_close:
            fail(self.at_close)


def order_of(action: int) -> Order:
    """The order in an action."""
    return ORDERS[int(action) // ACTIONS]


# What can be ordered ------------------------------------------------------------------


def _way(how: str) -> Callable[[Obedient], None]:
    def obey(_: Obedient) -> None:
        faulthandler.disable()  # thousands of stacks would be nobody's joy
        fail(how)

    return obey


def _at_reset(how: str) -> Callable[[Obedient], None]:
    def obey(env: Obedient) -> None:
        env.at_reset = how

    return obey


def _at_close(how: str) -> Callable[[Obedient], None]:
    def obey(env: Obedient) -> None:
        env.at_close = how
        fail("raise")

    return obey


def _not_built_again(times: int, how: str) -> Callable[[Obedient], None]:
    def obey(env: Obedient) -> None:
        env.failures.write_bytes(b"x" * times)
        fail(how)

    return obey


def _show_a_bad_shape(env: Obedient) -> None:
    env.bad_shape = True


def _leave_a_child(_: Obedient) -> None:
    subprocess.Popen(["sleep", "600"])
    fail("os_exit")


RAISES, KILLS, LATER = Effect.RAISES, Effect.KILLS, Effect.LATER
ORDERS = (
    Order("none", Effect.FINE, lambda env: None),
    Order("exception", RAISES, _way("raise")),
    Order("sys.exit", RAISES, _way("exit")),
    Order("bad shape", RAISES, _show_a_bad_shape),
    Order("exception, close raises", RAISES, _at_close("raise")),
    Order("exception, close exits", RAISES, _at_close("exit")),
    Order("exception, not built twice", RAISES, _not_built_again(2, "raise")),
    Order("os._exit", KILLS, _way("os_exit")),
    Order("SIGKILL", KILLS, _way("kill")),
    Order("SIGSEGV", KILLS, _way("segfault")),
    Order("abort", KILLS, _way("abort")),
    Order("os._exit, with a child", KILLS, _leave_a_child),
    Order("SIGKILL, not built once", KILLS, _not_built_again(1, "kill")),
    Order("hang", KILLS, _way("hang")),
    Order("hang in C", KILLS, _way("hang_in_c")),
    Order("exception in reset", LATER, _at_reset("raise"), RAISES),
    Order("sys.exit in reset", LATER, _at_reset("exit"), RAISES),
    Order("SIGKILL in reset", LATER, _at_reset("kill"), KILLS),
    Order("hang in reset", LATER, _at_reset("hang"), KILLS),
    Order("memory growth", Effect.FINE, lambda env: leak(LEAK)),
)
BY_NAME = {order.name: index for index, order in enumerate(ORDERS)}
