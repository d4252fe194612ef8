"""An environment whose every transition can be worked out.

Observations, rewards, ends and infos are pure functions of the episode's seed, its task
and the actions so far: one number, the state, is hashed from them, and all the rest is
read from it. An action that was lost, doubled or swapped with another changes the state
and with it every observation that follows::

    state = hash(seed, task)            obs, reward, ends, info = shown(state, length)
      └─ action ─► state = hash(state, action) ─► ...
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces

from corral.engine.keywords import check_choice
from corral.engine.worker.seeds import episode_seed

ACTIONS = 1000
MEAN_LENGTH = 20
MAX_EPISODE_STEPS = 1_000_000
# What `reset` of an env returns.
Started = tuple[Any, dict[str, Any]]
# What `step` of an env returns.
Stepped = tuple[Any, float, bool, bool, dict[str, Any]]


@dataclass(frozen=True, slots=True)
class Answer:
    """What the environment has to return."""

    obs: Any
    reward: float
    terminated: bool
    truncated: bool
    info: dict[str, Any]

    @property
    def ended(self) -> bool:
        """Whether the episode is over."""
        return self.terminated or self.truncated


@dataclass(frozen=True, slots=True)
class Form:
    """How a state is shown: a space, and the observation of a state in it."""

    space: spaces.Space[Any]
    show: Callable[[int, int], Any]


def _halves(state: int) -> tuple[float, float]:
    return float(state & 0xFFFFFFFF), float(state >> 32)


def _bytes(state: int) -> Any:
    return np.frombuffer(state.to_bytes(8, "little"), np.uint8).copy()


_BYTES = spaces.Box(0, 255, (8,), np.uint8)
_PLACE = spaces.Tuple(
    (spaces.Discrete(MAX_EPISODE_STEPS), spaces.Box(0, 2**32, (2,), np.float64))
)
_NAME = spaces.Text(16, charset="0123456789abcdef")
# One array; nested ones of several types; one whose text no array can hold.
FORMS = {
    "plain": Form(
        spaces.Box(0, 2**32, (3,), np.float64),
        lambda state, length: np.array([*_halves(state), length], np.float64),
    ),
    "nested": Form(
        spaces.Dict({"bytes": _BYTES, "place": _PLACE}),
        lambda state, length: {
            "bytes": _bytes(state),
            "place": (np.int64(length), np.array(_halves(state))),
        },
    ),
    "mailed": Form(
        spaces.Dict({"bytes": _BYTES, "name": _NAME}),
        lambda state, length: {"bytes": _bytes(state), "name": f"{state:016x}"},
    ),
}


class KnownEpisode:
    """One episode, worked out step by step.

    Example::

        episode = KnownEpisode(seed=step.seed[0])
        assert (step.obs[0] == episode.first().obs).all()
        answer = episode.step(action)   # what the env has to return for it
    """

    def __init__(
        self,
        seed: int | None,
        task: Any = None,
        form: str = "plain",
        mean_length: int = MEAN_LENGTH,
    ) -> None:
        check_choice("form", form, FORMS)
        self.task = task
        self.length = 0
        self.total = 0.0
        self.over = False
        self._form = FORMS[form]
        self._mean_length = mean_length
        self._state = episode_seed(-1 if seed is None else seed, _number(task))

    def first(self) -> Answer:
        """What reset returns."""
        return Answer(self._obs(), 0.0, False, False, self._info())

    def step(self, action: int) -> Answer:
        """What the next step returns."""
        if self.over:
            raise RuntimeError("stepped after the end of its episode")
        self._state = state = episode_seed(self._state, action)
        self.length += 1
        reward = (state % 2001 - 1000) / 8
        self.total += reward
        self.over = state // 2001 % self._mean_length == 0
        cut = self.over and bool(state & 1)
        return Answer(self._obs(), reward, self.over and not cut, cut, self._info())

    def _obs(self) -> Any:
        return self._form.show(self._state, self.length)

    def _info(self) -> dict[str, Any]:
        """A number always, another one or a word at times, and the task if any."""
        state = self._state
        info: dict[str, Any] = {"length": self.length}
        if state % 3 == 0:
            info["third"] = state / 3
        if state % 7 == 0:
            info["word"] = f"{state:x}"
        if self.task is not None:
            info["task"] = str(self.task)
        return info


def _number(task: Any) -> int:
    return int.from_bytes(repr(task).encode(), "little")


def known_answers(
    seed: int | None,
    actions: Iterable[int],
    task: Any = None,
    form: str = "plain",
    mean_length: int = MEAN_LENGTH,
) -> list[Answer]:
    """The answers of an episode: to its reset, then to each of these actions."""
    episode = KnownEpisode(seed, task, form, mean_length)
    return [episode.first(), *(episode.step(int(action)) for action in actions)]


class KnownAnswers(gymnasium.Env[Any, Any]):
    """The environment of which `known_answers` tells.

    Args:
        form: what observations look like: "plain", "nested" or "mailed".
        mean_length: of its episodes; each step ends one with that chance.
    """

    metadata = {"render_modes": []}  # noqa: RUF012 - Gymnasium's own way
    action_space: spaces.Space[Any] = spaces.Discrete(ACTIONS)

    def __init__(self, form: str = "plain", mean_length: int = MEAN_LENGTH) -> None:
        self._form = form
        self._mean_length = mean_length
        self._episode = KnownEpisode(None, None, form, mean_length)
        self.observation_space = FORMS[form].space

    def reset(self, *, seed: int | None = None, options: Any = None) -> Started:
        """Start the episode of this seed, and of the task among the options."""
        task = (options or {}).get("task")
        self._episode = KnownEpisode(seed, task, self._form, self._mean_length)
        answer = self._episode.first()
        return answer.obs, answer.info

    def step(self, action: Any) -> Stepped:
        """Answer."""
        one = self._episode.step(int(action))
        return one.obs, one.reward, one.terminated, one.truncated, one.info

    def length(self) -> int:
        """How many steps of its episode were taken; something to call."""
        return self._episode.length
