"""Environments with one bad habit each, for the doctor to find."""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
import threading
import time
from typing import Any

import gymnasium as gym
import numpy as np


class Walk(gym.Env[Any, Any]):
    """A random walk with good manners; episodes of 20 steps."""

    observation_space: gym.Space[Any] = gym.spaces.Box(-100, 100, (2,), np.float32)
    action_space: gym.Space[Any] = gym.spaces.Discrete(3)
    metadata = {"render_modes": []}  # noqa: RUF012 - Gymnasium's own way

    def __init__(self) -> None:
        self.place = np.zeros(2, np.float32)
        self.count = 0

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.place = self.np_random.normal(size=2).astype(np.float32)
        self.count = 0
        return self.place.copy(), {}

    def step(self, action):
        self.move(action)
        self.count += 1
        return self.place.copy(), float(self.place[0]), False, self.count == 20, {}

    def move(self, action):
        self.place[0] += action - 1 + self.np_random.normal()


class OneWorld(Walk):
    """Calls that name no world go to the last one made, as with some simulators."""

    world: Any = None

    def reset(self, *, seed=None, options=None):
        obs, info = super().reset(seed=seed)
        OneWorld.world = self.place
        return obs, info

    def move(self, action):
        super().move(action)
        self.place[1] = OneWorld.world[0]


class FailsOnce(Walk):
    """Fails beside another one, the first time that there is one and never again.

    Args:
        mark: a file that is there once it has.
    """

    made = 0

    def __init__(self, mark) -> None:
        super().__init__()
        self.mark = mark
        FailsOnce.made += 1

    def move(self, action):
        if FailsOnce.made > 1 and not self.mark.exists():
            self.mark.touch()
            raise RuntimeError("the server is busy")
        super().move(action)


class ClosesAll(Walk):
    """Closing one takes the world from under the others."""

    worlds = 0

    def __init__(self) -> None:
        super().__init__()
        ClosesAll.worlds += 1

    def move(self, action):
        if not ClosesAll.worlds:
            raise RuntimeError("not connected")
        super().move(action)

    def close(self):
        ClosesAll.worlds = 0


class SaysItShares(OneWorld):
    metadata = {"corral.isolation": "shared"}  # noqa: RUF012


class ReusesNumbers(Walk):
    """Has the number of envs that there are: after a close, that of another one.

    Args:
        folder: where the worlds are, one file for each number.
    """

    def __init__(self, folder) -> None:
        super().__init__()
        taken = list(folder.glob(f"{os.getpid()}-*"))
        self.world = folder / f"{os.getpid()}-{len(taken)}"
        self.world.touch()

    def move(self, action):
        self.world.write_text(self.world.read_text() + "." * action)
        super().move(action)
        self.place[1] = len(self.world.read_text())

    def reset(self, *, seed=None, options=None):
        self.world.write_text("")
        return super().reset(seed=seed)

    def close(self):
        self.world.unlink(missing_ok=True)


class CrashesInCompany(Walk):
    """Takes its process down as soon as there are two."""

    alive = 0

    def __init__(self) -> None:
        super().__init__()
        CrashesInCompany.alive += 1
        if CrashesInCompany.alive > 1:
            os.abort()


class Ends(Walk):
    """Its first move is its last.

    Args:
        deed: "crash", "hang" or "fail".
    """

    def __init__(self, deed: str) -> None:
        super().__init__()
        self.deed = deed

    def move(self, action):
        getattr(self, self.deed)()

    def crash(self):
        ctypes.string_at(0)

    def hang(self):
        time.sleep(600)

    def fail(self):
        raise OSError("no")


class DrawsGlobally(Walk):
    def move(self, action):
        self.place[0] += np.random.normal()


class ReseedsGlobally(Walk):
    """Alone it always does the same, since it seeds what everybody shares."""

    def reset(self, *, seed=None, options=None):
        np.random.seed(7)
        return super().reset(seed=seed)

    def move(self, action):
        self.place[0] += np.random.normal()


class DrawsInVain(Walk):
    def move(self, action):
        np.random.normal()
        super().move(action)


class Undecided(Walk):
    def move(self, action):
        self.place[0] += np.random.default_rng().normal()


class ReadsSets(Walk):
    """The order of a set is another in every process."""

    def move(self, action):
        order = list({f"leg {number}" for number in range(100)})
        self.place[0] += sum(place * int(leg[4:]) for place, leg in enumerate(order))


class Remembers(Walk):
    """Something survives a reset."""

    total = 0

    def move(self, action):
        self.total += 1
        self.place[1] = self.total


class MainThreadOnly(Walk):
    def __init__(self) -> None:
        super().__init__()
        if threading.current_thread() is not threading.main_thread():
            raise RuntimeError("only in the main thread")


class Meddles(Walk):
    """With what its whole process shares."""

    def __init__(self) -> None:
        super().__init__()
        np.seterr(divide="raise")
        os.environ["MEDDLED"] = "yes"

    def reset(self, *, seed=None, options=None):
        os.chdir("/")
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        return super().reset(seed=seed)


class Litters(Walk):
    def __init__(self) -> None:
        super().__init__()
        self.child = subprocess.Popen(["sleep", "600"])
        self.pipe = os.pipe()
        wait = threading.Event().wait
        threading.Thread(target=wait, name="litter", daemon=True).start()


class Sleeps(Walk):
    def __init__(self, real_time: bool = True) -> None:
        super().__init__()
        self.real_time = real_time

    def move(self, action):
        super().move(action)
        if self.real_time:
            time.sleep(0.001)


class Waits(Walk):
    """For a server, and nothing can turn that off."""

    def move(self, action):
        super().move(action)
        time.sleep(0.01)


class Reuses(Walk):
    def step(self, action):
        _, *rest = super().step(action)
        return self.place, *rest


class Untidy(Reuses, Meddles, Litters):
    """All of it at once."""


class Misfits(Walk):
    """Nothing is as its space says."""

    observation_space = gym.spaces.Dict(
        {
            "bounds": gym.spaces.Box(-1, 1, (2,), np.float32),
            "dtype": gym.spaces.Box(-100, 100, (2,), np.float32),
            "kind": gym.spaces.Box(0, 9, (1,), np.int64),
            "shape": gym.spaces.Box(-1, 1, (3,), np.float32),
            "number": gym.spaces.Discrete(2),
            "good": gym.spaces.Discrete(2),
        }
    )

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return self.obs(), {}

    def step(self, action):
        return self.obs(), 0.0, False, False, {}

    def obs(self):
        return {
            "bounds": np.array([0, 2], np.float32),
            "dtype": np.zeros(2),
            "kind": np.array([0.5]),
            "shape": np.zeros(2, np.float32),
            "number": 5,
            "good": 1,
        }


class SmallSeeds(Walk):
    def reset(self, *, seed=None, options=None):
        np.random.RandomState(seed)
        return super().reset(seed=seed)


class OldApi(Walk):
    def step(self, action):
        obs, reward, terminated, truncated, info = super().step(action)
        return obs, reward, terminated or truncated, info


class SaysMuch(Walk):
    def step(self, action):
        *rest, _ = super().step(action)
        return *rest, {"world": "x" * 5000, "count": self.count, "deep": {"a": 1.0}}


class SaysTheUnspeakable(Walk):
    def step(self, action):
        *rest, _ = super().step(action)
        return *rest, {"lock": threading.Lock()}


class Window(Walk):
    render_mode = "human"

    def __init__(self, gui: bool = True) -> None:
        super().__init__()


class DrawsNoTasks(Walk):
    """Goes its task further in each step."""

    task = 0.0

    def set_task(self, task):
        self.task = task

    def move(self, action):
        super().move(action)
        self.place[0] += self.task


class UsesItsTask(DrawsNoTasks):
    def sample_tasks(self, count, rng):
        return rng.random(count).tolist()


class IgnoresItsTask(UsesItsTask):
    def set_task(self, task):
        pass


class RarelyShowsItsTask(UsesItsTask):
    """It would show far away, where no walk comes."""

    def move(self, action):
        Walk.move(self, action)

    def get_task(self):
        return self.task


class UndecidedAboutItsTask(UsesItsTask):
    def move(self, action):
        self.place[0] += np.random.default_rng().normal()
