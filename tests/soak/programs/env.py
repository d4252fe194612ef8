"""The environment of random programs, patched together from the traits of its kind.

What it returns depends on its seed, its options and its actions alone, by way of one
number that is hashed from them; except where its trait is to depend on more.
"""

from __future__ import annotations

import os
import random
import sys
import time
from typing import Any, ClassVar

import gymnasium
import numpy as np

from corral.tools.testing.faulty_envs import OnPurpose, fail
from tests.soak.programs.digests import digest
from tests.soak.programs.infos import STYLES, Keeper
from tests.soak.programs.kinds import NEVER, NONE, Kind
from tests.soak.programs.shapes import sampled, space

TALLY: dict[str, int] = {"calls": 0}
"""What environments of the kind "module" share."""
REPLACED = 1000.0
"""What a step that was put in another's place earns more."""


class Doomed(BaseException):
    """Stands for a fault where an environment only works out what it would do."""


class Patchwork(gymnasium.Env[Any, Any]):
    """An environment of some kind.

    Args:
        kind: its traits.
        modelled: whether it only says, by Doomed, that it would fail now, and forks
            nothing: for the loop that it is held against.
    """

    metadata: ClassVar[dict[str, Any]] = {"render_modes": []}  # type: ignore[misc]
    built: ClassVar[int] = 0
    resets: ClassVar[int] = 0
    ends: ClassVar[int] = 0
    past: ClassVar[list[int]] = []

    def __init__(self, kind: Kind, modelled: bool = False) -> None:
        self.kind, self._modelled = kind, modelled
        self.observation_space = space(kind.obs)
        self.action_space = space(kind.action)
        self.bonus = 0.0
        """Added to every reward; something to set."""
        self._sampler = space(kind.obs)
        self._keeper = Keeper()
        self._buffer: Any = None
        self._state = 0
        self._count = 0
        Patchwork.built += kind.state == "class, when built"
        self._number = Patchwork.built
        self._meet("construct")

    # Gymnasium's ----------------------------------------------------------------------

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        """Begin an episode."""
        super().reset(seed=seed)
        self._state = digest(self._state if seed is None else seed, "reset", options)
        self._count = 0
        self._keeper.begin()
        self._touch_in_reset()
        self._replace_in_reset()
        self._meet("reset")
        return self._observe(), self._info()

    def step(self, action: Any) -> tuple[Any, ...]:
        """One step."""
        self._state = digest(self._state, action)
        self._count += 1
        if self.kind.waits:
            time.sleep(self.kind.waits)
        self._keeper.add(self._state)
        self._fork()
        self._replace_in_step()
        wrong = self._meet("step")
        return WRONG[wrong] if wrong else self._outcome(self._earned())

    def _step_of_another(self, action: Any) -> tuple[Any, ...]:
        """What some put in the place of their step."""
        obs, reward, *rest = Patchwork.step(self, action)
        return obs, reward + REPLACED, *rest

    def close(self) -> None:
        """Close, or fail."""
        self._meet("close")

    # To be asked ----------------------------------------------------------------------

    def length(self) -> int:
        """How many steps its episode has."""
        return self._count

    def add(self, number: float, twice: bool = False) -> float:
        """Change the bonus; something to call."""
        self.bonus += 2 * number if twice else number
        return self.bonus

    # What it returns ------------------------------------------------------------------

    def _observe(self) -> Any:
        value = sampled(self._sampler, self._state)
        if not self.kind.reuses_buffer:
            return value
        self._buffer = _written_over(self._buffer, value)
        return self._buffer

    def _info(self) -> dict[str, Any]:
        return STYLES[self.kind.infos](self._state, self._keeper)

    def _earned(self) -> float:
        return (self._state % 2001 - 1000) / 8 + self.bonus + self._touched()

    def _outcome(self, reward: float) -> tuple[Any, ...]:
        ended = self._state // 2001 % self.kind.mean_length == 0
        flag = self._state >> 40 & 3
        terminated, truncated = ended and flag != 1, ended and flag in (1, 2)
        Patchwork.ends += ended and self.kind.state == "class, at the end"
        outcome = (self._observe(), reward, terminated, truncated, self._info())
        if self.kind.numbers == "numpy":
            obs, _, _, _, info = outcome
            flags = np.bool_(terminated), np.bool_(truncated)
            outcome = (obs, np.float64(reward), *flags, info)  # type: ignore[assignment]
        return outcome

    # What it shares with others -------------------------------------------------------

    def _touch_in_reset(self) -> None:
        state = self.kind.state
        Patchwork.resets += state == "class, in reset"
        if state == "class list":
            Patchwork.past.append(self._state % 10)
        elif state == "seeded numpy":
            np.random.seed(self._state % 2**31)
        elif state == "seeded random":
            random.seed(self._state % 2**31)

    def _touched(self) -> float:
        """What the next reward owes to what is shared."""
        state = self.kind.state
        if state in ("seeded numpy", "drawn"):
            return float(np.random.random())
        if state == "seeded random":
            return random.random()
        if state == "module":
            TALLY["calls"] += 1
            return float(TALLY["calls"])
        if state == "class, when built":
            return float(self._number)
        shared = Patchwork.resets + Patchwork.ends + sum(Patchwork.past)
        return float(shared) if state.startswith("class") else 0.0

    # What it does to its process and to itself ----------------------------------------

    def _fork(self) -> None:
        """Fork a child at some steps, whose code goes on here."""
        if self.kind.forks == NEVER or self._modelled or self._state % 4:
            return
        child = os.fork()
        if child:
            if self.kind.reaps:
                os.waitpid(child, 0)
            return
        if self.kind.forks == "raises":
            raise OnPurpose("raised in a forked child")
        if self.kind.forks == "exits":
            sys.exit(0)
        if self.kind.forks == "exec fails":
            os.execv("/nonexistent/program", ["program"])

    def _replace_in_step(self) -> None:
        if self.kind.replaces == "step by step" and self._state % 3 == 0:
            if "step" in vars(self):
                del self.step
            else:
                self.step = self._step_of_another  # type: ignore[method-assign]
        elif self.kind.replaces == "class" and self._state % 3 == 0:
            self.__class__ = Swapped if type(self) is Patchwork else Patchwork

    def _replace_in_reset(self) -> None:
        if self.kind.replaces == "step by reset":
            vars(self).pop("step", None)
            if self._state % 2:
                self.step = self._step_of_another  # type: ignore[method-assign]

    def _meet(self, moment: str) -> str:
        """Fail, if the kind says that this moment is one to fail in.

        Returns:
            What it should return that is wrong; "" for nothing.
        """
        kind = self.kind
        if kind.fault == NONE or kind.moment != moment:
            return ""
        if moment in ("reset", "step") and self._state % kind.rarity:
            return ""
        if self._modelled:
            raise Doomed(kind.fault)
        if kind.fault in WRONG:
            return kind.fault
        if kind.fault == "unpicklable":
            error = OnPurpose("cannot be pickled")
            error.stream = sys.stderr  # type: ignore[attr-defined]
            raise error
        fail(kind.fault)
        return ""


class Swapped(Patchwork):
    """What some become in the middle of an episode."""

    def step(self, action: Any) -> tuple[Any, ...]:
        """One step, of another class."""
        return self._step_of_another(action)


WRONG: dict[str, tuple[Any, ...]] = {
    "four": (0, 0.0, False, {}),
    "shape": (np.zeros((17, 3)), 0.0, False, False, {}),
    "no number": (0, None, False, False, {}),
}
"""What an environment may return that it must not."""


class Around(gymnasium.Wrapper[Any, Any, Any, Any]):
    """A wrapper that does nothing."""


def build(kind: Kind, modelled: bool = False) -> Any:
    """An environment of a kind; what programs use as factory."""
    env = Patchwork(kind, modelled)
    return Around(env) if kind.wrapped else env


def _written_over(buffer: Any, value: Any) -> Any:
    """The value in the arrays and dicts of the buffer, as far as it fits in."""
    if isinstance(value, dict) and isinstance(buffer, dict):
        for key, part in value.items():
            buffer[key] = _written_over(buffer.get(key), part)
        return buffer
    if type(value) is tuple and type(buffer) is tuple and len(value) == len(buffer):
        return tuple(map(_written_over, buffer, value))
    arrays = isinstance(value, np.ndarray) and isinstance(buffer, np.ndarray)
    if arrays and (value.shape, value.dtype) == (buffer.shape, buffer.dtype):
        buffer[...] = value
        return buffer
    return value
