"""Environments that fail on purpose, each in one way.

All but OddSpaces are KnownAnswers otherwise, so what they return before they fail, and
after they were restarted, can be checked to the last bit.

Some of the ways end or stop the whole process: use them with `backend="process"`.
"""

from __future__ import annotations

import copy
import ctypes
import logging
import os
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NoReturn

import gymnasium
import numpy as np
from gymnasium import spaces

from corral.engine.keywords import check_choice
from corral.engine.worker.seeds import episode_seed
from corral.errors import OptionError
from corral.tools.testing.answers import MEAN_LENGTH, KnownAnswers, Started, Stepped

# Ways to fail -------------------------------------------------------------------------


class OnPurpose(RuntimeError):
    """What a faulty env raises."""


def _raise() -> NoReturn:
    raise OnPurpose("failed on purpose")


def _hang() -> None:
    while True:
        time.sleep(600)


def _hang_in_c() -> None:
    # A PyDLL keeps the GIL while its functions run. A signal cuts a sleep short.
    library = ctypes.PyDLL(None)
    while True:
        library.sleep(600)


# An exception; sys.exit; os._exit(3); SIGKILL; SIGSEGV and abort in C; a hang; a hang
# in C, with the GIL held.
WAYS: dict[str, Callable[[], object]] = {
    "raise": _raise,
    "exit": lambda: sys.exit("left on purpose"),
    "os_exit": lambda: os._exit(3),
    "kill": lambda: os.kill(os.getpid(), signal.SIGKILL),
    "segfault": lambda: ctypes.string_at(0),
    "abort": os.abort,
    "hang": _hang,
    "hang_in_c": _hang_in_c,
}
MOMENTS = ("construct", "reset", "step", "close")


def fail(how: str) -> None:
    """Fail in one of the WAYS."""
    check_choice("how", how, WAYS)
    WAYS[how]()


# Environments -------------------------------------------------------------------------


class Crashing(KnownAnswers):
    """Fails at one moment of its life.

    Args:
        how: one of WAYS.
        at: "construct", "reset", "step" or "close".
        after: how many calls of that kind go well first, counted from the constructor.
        probability: the chance of each call instead, drawn from `seed` and the
            episode's own, so that the same episode fails at the same step again.
        seed: of the chances.
        times: how often in all, over every env that counts in the same `counter`; for
            ever if None.
        counter: a file, made if it is not there.
        form: of the observations.
        mean_length: of the episodes.
    """

    def __init__(
        self,
        how: str = "raise",
        at: str = "step",
        after: int = 0,
        *,
        probability: float | None = None,
        seed: int = 0,
        times: int | None = None,
        counter: str | Path | None = None,
        form: str = "plain",
        mean_length: int = MEAN_LENGTH,
    ) -> None:
        super().__init__(form, mean_length)
        check_choice("how", how, WAYS)
        check_choice("at", at, MOMENTS)
        if probability is not None and at in ("construct", "close"):
            raise OptionError(
                f"a probability is drawn for an episode, and {at} belongs to none; "
                "use `after`, or `times` and a `counter`"
            )
        if (times is None) != (counter is None):
            raise OptionError("`times` are counted in a file: give both, or neither")
        self._how, self._at, self._left = how, at, after
        self._probability, self._seed = probability, seed
        self._times, self._counter = times, counter
        self._episode_seed = -1
        self._meet("construct")

    def reset(self, *, seed: int | None = None, options: Any = None) -> Started:
        """Start an episode, or fail."""
        self._episode_seed = -1 if seed is None else seed
        self._meet("reset")
        return super().reset(seed=seed, options=options)

    def step(self, action: Any) -> Stepped:
        """Answer, or fail."""
        self._meet("step")
        return super().step(action)

    def close(self) -> None:
        """Close, or fail."""
        self._meet("close")
        super().close()

    def _meet(self, moment: str) -> None:
        if moment == self._at and self._due(moment) and self._counted():
            fail(self._how)

    def _due(self, moment: str) -> bool:
        if self._probability is None:
            self._left -= 1
            return self._left < 0
        length = self._episode.length if moment == "step" else -1
        draw = episode_seed(self._seed, self._episode_seed, length)
        return draw / 2**63 < self._probability

    def _counted(self) -> bool:
        """Count one more failure; False if there were enough."""
        if self._times is None or self._counter is None:
            return True
        with open(self._counter, "ab") as file:
            file.write(b"x")
            return file.tell() <= self._times


class Hanging(Crashing):
    """Never comes back from one call.

    Args:
        at: "construct", "reset", "step" or "close".
        after: how many calls of that kind go well first.
        holding_gil: hang in C with the GIL held, so that no Python thread of the
            process runs either.
        **others: as of Crashing.
    """

    def __init__(
        self,
        at: str = "step",
        after: int = 0,
        *,
        holding_gil: bool = False,
        **others: Any,
    ) -> None:
        super().__init__("hang_in_c" if holding_gil else "hang", at, after, **others)


_leaked: list[Any] = []


class Leaking(KnownAnswers):
    """Leaks so many bytes with every step; they are the process's until it ends."""

    def __init__(self, bytes_per_step: int = 2**20, **others: Any) -> None:
        super().__init__(**others)
        self._bytes_per_step = bytes_per_step

    def step(self, action: Any) -> Stepped:
        """Leak, and answer."""
        leak(self._bytes_per_step)
        return super().step(action)


def leak(size: int) -> None:
    """Take so many bytes of memory, and never give them back."""
    _leaked.append(np.ones(size, np.uint8))  # written, so that they are really there


class Slow(KnownAnswers):
    """Takes its time.

    Args:
        step: seconds of each step.
        reset: seconds of each reset.
        construct: seconds of the constructor.
        spread: let steps take from none to twice as long, by what they answer.
        **others: as of KnownAnswers.
    """

    def __init__(
        self,
        step: float = 0.01,
        reset: float = 0.0,
        construct: float = 0.0,
        *,
        spread: bool = False,
        **others: Any,
    ) -> None:
        super().__init__(**others)
        self._step_seconds, self._reset_seconds = step, reset
        self._spread = spread
        time.sleep(construct)

    def reset(self, *, seed: int | None = None, options: Any = None) -> Started:
        """Start an episode, slowly."""
        time.sleep(self._reset_seconds)
        return super().reset(seed=seed, options=options)

    def step(self, action: Any) -> Stepped:
        """Answer, slowly."""
        answer = super().step(action)
        factor = (answer[1] + 125) / 125 if self._spread else 1.0
        time.sleep(self._step_seconds * factor)
        return answer


class Noisy(KnownAnswers):
    """Prints, logs and writes to descriptors, in its constructor and in every step.

    Args:
        lines: how many each time.
        width: characters of each.
        **others: as of KnownAnswers.
    """

    def __init__(self, lines: int = 1, width: int = 60, **others: Any) -> None:
        super().__init__(**others)
        self._lines, self._text = lines, "x" * width
        self._speak("built")

    def step(self, action: Any) -> Stepped:
        """Make noise, and answer."""
        self._speak(f"step {self._episode.length}")
        return super().step(action)

    def _speak(self, what: str) -> None:
        for _ in range(self._lines):
            print(what, self._text)
            print(what, self._text, file=sys.stderr)
            os.write(1, b"half a line, and bytes that are no text: \xff\xfe")
            os.write(2, b"\n")
            logging.getLogger("corral.testing.noisy").debug("%s %s", what, self._text)


# Spaces that vector environments often get wrong.
ODD_SPACES: dict[str, spaces.Space[Any]] = {
    "scalar": spaces.Box(-1, 1, (), np.float32),
    "empty": spaces.Box(0, 1, (0, 3), np.float32),
    "unbounded": spaces.Box(-np.inf, np.inf, (2, 3), np.float64),
    "image": spaces.Box(0, 255, (3, 5, 7), np.uint8),
    "half": spaces.Box(-1, 1, (3,), np.float16),
    "flag": spaces.Box(0, 1, (2,), np.bool_),
    "from minus five": spaces.Discrete(3, start=-5),
    "bits": spaces.MultiBinary([2, 3]),
    "dice": spaces.MultiDiscrete(np.array([[2, 3], [4, 5]])),
    "nested": spaces.Dict(
        {
            "b": spaces.Tuple((spaces.Discrete(2), spaces.Dict({}))),
            "a": spaces.Dict({"b": spaces.Box(0, 1, (1,), np.float32)}),
        }
    ),
    "text": spaces.Text(8),
    "sequence": spaces.Sequence(spaces.Box(0, 1, (2,), np.float32)),
    "stacked sequence": spaces.Sequence(spaces.Discrete(5), stack=True),
    "graph": spaces.Graph(spaces.Box(0, 1, (2,), np.float32), spaces.Discrete(3)),
    "one of": spaces.OneOf((spaces.Discrete(4), spaces.Box(0, 1, (2,), np.float32))),
}


class OddSpaces(gymnasium.Env[Any, Any]):
    """Observes samples of one odd space, and wants its actions from another.

    Args:
        observation: a name of ODD_SPACES, or a space.
        action: the same; as the observation if None.
        length: of its episodes.
    """

    metadata = {"render_modes": []}  # noqa: RUF012 - Gymnasium's own way

    def __init__(
        self,
        observation: str | spaces.Space[Any] = "nested",
        action: str | spaces.Space[Any] | None = None,
        length: int = 5,
    ) -> None:
        self.observation_space = _space(observation)
        self.action_space = _space(observation if action is None else action)
        self._length = length
        self._count = 0

    def reset(self, *, seed: int | None = None, options: Any = None) -> Started:
        """Start an episode of samples."""
        super().reset(seed=seed)
        self._count = 0
        self.observation_space.seed(int(self.np_random.integers(2**31)))
        return self.observation_space.sample(), {}

    def step(self, action: Any) -> Stepped:
        """Refuse an action that is not of the space, else sample."""
        if not self.action_space.contains(action):
            raise ValueError(f"{action!r} is not in {self.action_space}")
        self._count += 1
        ended = self._count == self._length
        return self.observation_space.sample(), 1.0, ended, False, {}


def _space(chosen: str | spaces.Space[Any]) -> spaces.Space[Any]:
    """A space of this env alone: sampling from it must not advance another's."""
    if isinstance(chosen, str):
        check_choice("an odd space", chosen, ODD_SPACES)
        chosen = ODD_SPACES[chosen]
    return copy.deepcopy(chosen)
