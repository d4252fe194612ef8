"""Environments that show what happens to them; imported by name in the workers."""

from __future__ import annotations

import fcntl
import random
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces

import corral
from corral.engine.layout.codec import StandIn, register_codec


class Mixed(gymnasium.Env[Any, Any]):
    """Dict and Tuple spaces of many dtypes, infos of many kinds."""

    observation_space = spaces.Dict(
        {
            "image": spaces.Box(0, 255, (3, 2), np.uint8),
            "pose": spaces.Tuple(
                (
                    spaces.Box(-np.inf, np.inf, (2,), np.float32),
                    spaces.Discrete(5, start=-2),
                    spaces.Dict({"wide": spaces.Box(-1, 1, (), np.float64)}),
                )
            ),
            "bits": spaces.MultiBinary(3),
            "nothing": spaces.Box(0, 1, (0,), np.float32),
        }
    )
    action_space = spaces.Dict(
        {
            "gear": spaces.Discrete(3, start=1),
            "parts": spaces.Tuple(
                (spaces.Box(-1, 1, (2,), np.float32), spaces.MultiDiscrete([3, 4]))
            ),
        }
    )

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        self._left = int(self.np_random.integers(1, 7))
        self._sum = 0.0
        return self._observe(), {"left": self._left}

    def step(self, action: Any) -> Any:
        box, discrete = action["parts"]
        assert type(action) is dict and type(action["parts"]) is tuple
        self._sum += float(box.sum()) + int(action["gear"]) + int(discrete.sum())
        self._left -= 1
        info: dict[str, Any] = {
            "sum": self._sum,
            "deep": {"box": box, "left": self._left},
        }
        if self._left % 2:
            info["odd"] = np.float32(self._sum)
        if self._left % 3 == 0:
            info["word"] = f"{self._left} left"
        ended = self._left <= 0
        return self._observe(), self._sum, ended and self._sum > 4, ended, info

    def _observe(self) -> Any:
        draw = self.np_random
        return {
            "image": draw.integers(0, 256, (3, 2), np.uint8),
            # float64 into a float32 space: a same-kind cast.
            "pose": (
                draw.normal(size=2) + self._sum,
                int(draw.integers(-2, 3)),
                {"wide": np.float64(draw.uniform(-1, 1))},
            ),
            "bits": draw.integers(0, 2, 3, np.int8),
            "nothing": np.zeros(0, np.float32),
        }


class Gambler(gymnasium.Env[Any, Any]):
    """Draws from the global generators, in the constructor too."""

    observation_space = spaces.Box(-np.inf, np.inf, (4,), np.float64)
    action_space = spaces.Discrete(3)

    def __init__(self) -> None:
        self._torch = None
        with suppress(ImportError):
            import torch

            self._torch = torch
        self._birth = self._draw()

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        return self._observe(), {"drawn": random.gauss(0, 1)}

    def step(self, action: Any) -> Any:
        # How much is drawn depends on the action: streams of slots drift apart.
        drawn = [self._draw() for _ in range(int(action) + 1)]
        return self._observe(), sum(drawn), random.random() < 0.2, False, {}

    def _draw(self) -> float:
        torchs = 0.0 if self._torch is None else float(self._torch.randn(()))
        return random.random() + np.random.randn() + torchs

    def _observe(self) -> Any:
        return np.array([self._birth, random.random(), np.random.rand(), self._draw()])


class Countdown(gymnasium.Env[Any, Any]):
    """Short episodes, one observation buffer for all of them, rewards of any kind."""

    observation_space = spaces.Box(-np.inf, np.inf, (3,), np.float32)
    action_space = spaces.Discrete(100)

    def __init__(self, reward: Callable[[int], Any] = float, longest: int = 4) -> None:
        self._reward = reward
        self._longest = longest
        self._buffer = np.zeros(3, np.float32)
        self.episodes = 0

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        self.episodes += 1
        self._left = int(self.np_random.integers(1, self._longest + 1))
        self._buffer[:] = self.np_random.normal(size=3)
        return self._buffer, {"episode": self.episodes}

    def step(self, action: Any) -> Any:
        assert self._left > 0, "stepped after the end"
        self._left -= 1
        self._buffer += np.float32(action)
        ended = self._left == 0
        cut = ended and int(action) % 2 == 0
        info = {"left": self._left, "last": "yes"} if ended else {"left": self._left}
        return self._buffer, self._reward(int(action)), ended and not cut, cut, info


REWARDS: dict[str, Callable[[int], Any]] = {
    "float": float,
    "int": int,
    "float32": lambda action: np.float32(action / 3),
    "int64": np.int64,
    "shape (1,)": lambda action: np.array([action / 3]),
    "shape ()": lambda action: np.array(action / 3, np.float32),
    "bool": lambda action: action % 2 == 0,
}


class Echo(gymnasium.Env[Any, Any]):
    """Observes the action it was given; its episodes end when it is told so."""

    metadata = {"render_modes": ["rgb_array"]}  # noqa: RUF012 - Gymnasium's own way

    def __init__(
        self,
        space: spaces.Space[Any] | None = None,
        end_after: int = 10**9,
        render_mode: str | None = None,
    ) -> None:
        self.render_mode = render_mode
        self.action_space = spaces.Discrete(100) if space is None else space
        self.observation_space = self.action_space
        self._end_after = end_after
        self.gain = 1

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        self._count = 0
        self.first = sampled(self.observation_space, 0 if seed is None else seed)
        return self.first, {"seed": seed, "options": options}

    def step(self, action: Any) -> Any:
        self._count += 1
        return action, self.gain, self._count >= self._end_after, False, {}

    def render(self) -> Any:
        return np.full((2, 2, 3), self._count, np.uint8)

    def add(self, number: int, times: int = 1) -> int:
        return self.gain + number * times


def sampled(space: spaces.Space[Any], seed: int) -> Any:
    """The same value for the same seed, and none of the space's own state used."""
    import copy

    space = copy.deepcopy(space)
    space.seed(seed % 2**31)
    return space.sample()


class Witness(gymnasium.Env[Any, Any]):
    """Tells the exact bytes of its action."""

    observation_space = spaces.Discrete(2)

    def __init__(self, space: spaces.Space[Any]) -> None:
        self.action_space = space

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        return 0, {}

    def step(self, action: Any) -> Any:
        return (
            0,
            0.0,
            False,
            False,
            {"dtype": action.dtype.str, "raw": action.tobytes()},
        )


class Talker(gymnasium.Env[Any, Any]):
    """Says what it was told to, one info per step; the first one at reset."""

    observation_space = spaces.Discrete(2)
    action_space = spaces.Discrete(2)

    def __init__(self, infos: Sequence[dict[str, Any]], length: int = 10**9) -> None:
        self._infos = infos
        self._length = length
        self._said = 0
        self._count = 0

    def _say(self) -> dict[str, Any]:
        info = self._infos[self._said % len(self._infos)]
        self._said += 1
        return info

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        self._count = 0
        return 0, self._say()

    def step(self, action: Any) -> Any:
        self._count += 1
        return 1, 1.0, self._count >= self._length, False, self._say()


class Gated(gymnasium.Env[Any, Any]):
    """A step takes as long as somebody else holds the lock of its file."""

    observation_space = spaces.Discrete(100)
    action_space = spaces.Discrete(100)

    def __init__(self, path: str) -> None:
        self._path = path

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        return 0, {}

    def step(self, action: Any) -> Any:
        with open(self._path, "rb") as gate:
            fcntl.flock(gate, fcntl.LOCK_SH)
        return action, float(action), False, False, {}


class Tasked(gymnasium.Env[Any, Any]):
    """Shows the task and options of each episode; they last two steps."""

    observation_space = spaces.Discrete(100)
    action_space = spaces.Discrete(100)

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        self._count = 0
        self._options = options
        return 0, {"options": repr(options), "seed": seed}

    def step(self, action: Any) -> Any:
        self._count += 1
        info = {"options": repr(self._options)}
        return 0, 0.0, self._count == 2, False, info


class MetaTasked(Tasked):
    """Takes its task by a method, as meta-RL envs do."""

    task: Any = "none yet"

    def set_task(self, task: Any) -> None:
        self.task = task

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        obs, info = super().reset(seed=seed, options=options)
        return obs, {**info, "task": repr(self.task)}


class Deaf(gymnasium.Wrapper[Any, Any, Any, Any]):
    """Passes on nothing but the seed."""

    def reset(self, *, seed: int | None = None) -> Any:  # type: ignore[override]
        return self.env.reset(seed=seed)


class Asker(gymnasium.Env[Any, Any]):
    """Says what it finds out about its worker, in each of its methods."""

    observation_space = spaces.Discrete(100)
    action_space = spaces.Discrete(100)

    def __init__(self) -> None:
        self.at_birth = facts()

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        return 0, facts()

    def step(self, action: Any) -> Any:
        return 0, 0.0, False, False, facts()

    def ask(self) -> dict[str, Any]:
        return facts()

    def write_shared(self, name: str) -> None:
        corral.this_worker().shared[name][...] = 0


def facts() -> dict[str, Any]:
    worker = corral.this_worker()
    return {
        "worker": worker.index,
        "slots": list(worker.slots),
        "device": worker.device,
        "resource": worker.resource,
        "shared": {name: array.copy() for name, array in worker.shared.items()},
    }


class Doubled(gymnasium.Wrapper[Any, Any, Any, Any]):
    """A wrapper with something of its own to call and to set."""

    loud = False

    def shout(self, word: str) -> str:
        return word.upper() if self.loud else word


class Words(spaces.Space[Any]):
    """A custom space that Corral knows nothing about."""

    def __init__(self) -> None:
        super().__init__(None, None)

    def sample(self, mask: Any = None, probability: Any = None) -> Any:
        return ["word"] * int(self.np_random.integers(1, 4))

    def contains(self, x: Any) -> bool:
        return isinstance(x, list)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Words)


class Point:
    """A value of a space of our own."""

    def __init__(self, x: float, y: float) -> None:
        self.x, self.y = x, y

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Point) and (self.x, self.y) == (other.x, other.y)


class Points(spaces.Space[Any]):
    """A custom space with a codec, registered beside it."""

    def __init__(self) -> None:
        super().__init__(None, None)

    def sample(self, mask: Any = None, probability: Any = None) -> Any:
        return Point(*self.np_random.uniform(size=2).tolist())

    def contains(self, x: Any) -> bool:
        return isinstance(x, Point)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Points)


def pack_point(point: Point) -> Any:
    return np.array([point.x, point.y])


def unpack_point(array: Any) -> Point:
    return Point(*array.tolist())


register_codec(
    Points,
    lambda space: StandIn(
        spaces.Box(-np.inf, np.inf, (2,), np.float64),
        pack=pack_point,
        unpack=unpack_point,
    ),
)


class Broken(gymnasium.Env[Any, Any]):
    """Does the wrong thing at the named moment."""

    observation_space = spaces.Box(-1, 1, (4,), np.float32)
    action_space = spaces.Discrete(2)

    def __init__(self, wrong: str = "", value: Any = None) -> None:
        self._wrong = wrong
        self._value = value

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        if self._wrong == "reset raises":
            raise RuntimeError("no ground under my feet")
        if self._wrong == "reset returns":
            return self._value
        if self._wrong == "reset obs":
            return self._value, {}
        return np.zeros(4, np.float32), {}

    def step(self, action: Any) -> Any:
        obs = np.zeros(4, np.float32)
        if self._wrong == "step raises":
            raise ZeroDivisionError("divided the sea")
        if self._wrong == "step returns":
            return self._value
        if self._wrong == "step obs":
            obs = self._value
        reward = self._value if self._wrong == "reward" else 0.0
        return obs, reward, False, False, {}
