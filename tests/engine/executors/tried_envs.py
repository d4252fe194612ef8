"""Envs that notice, or do not bear, being tried."""

import os
import time

from tests.stateful_envs import Plain


class Marked(Plain):
    """Leaves a file for every one that is made.

    Args:
        marks: the folder.
        seconds: how long that takes.
        rank: a number that nothing depends on.
    """

    def __init__(self, marks, seconds=0.0, rank=0):
        time.sleep(seconds)
        (marks / os.urandom(8).hex()).touch()


class Unseeded(Plain):
    """Never does the same twice."""

    def extra(self):
        return float(int.from_bytes(os.urandom(4), "little"))


class Numbered(Plain):
    """Knows how many of them were made before it, in all processes."""

    def __init__(self, marks):
        super().__init__()
        self._number = len(os.listdir(marks))
        open(os.path.join(marks, str(self._number)), "x").close()


class SlowToRepeat(Numbered, Unseeded):
    """The fourth that is made takes longer to reset than a trial may."""

    def reset(self, *, seed=None, options=None):
        if self._number == 3:
            time.sleep(1.0)
        return super().reset(seed=seed)


class AgreesByChance(Numbered):
    """Without a seed, the second and third draw another number than the others."""

    def reset(self, *, seed=None, options=None):
        if seed is None:
            seed = 1 if self._number in (1, 2) else 0
        return super().reset(seed=seed)


class UnseededLater(Plain):
    """The same, but for episodes that are given a seed."""

    def reset(self, *, seed=None, options=None):
        if seed is None:
            seed = int.from_bytes(os.urandom(4), "little")
        return super().reset(seed=seed)


class TellsTime(Plain):
    """Its infos are of this moment; all else is not."""

    def step(self, action):
        *rest, info = super().step(action)
        return *rest, {**info, "now": time.time_ns()}


class Stuck(Plain):
    """Its steps do not come back."""

    def step(self, action):
        time.sleep(600.0)


class Endless(Plain):
    """No episode ends by itself, and none may be cut short."""

    running = False

    def reset(self, **arguments):
        if self.running:
            raise RuntimeError("reset before the episode was over")
        self.running = True
        return super().reset(**arguments)

    def step(self, action):
        obs, reward, _, truncated, info = super().step(action)
        return obs, reward, False, truncated, info


class Declared(Plain):
    """Says that it is safe beside others."""

    metadata = {"corral.isolation": "shared"}  # noqa: RUF012


class Curriculum:
    """What all envs of a process learn from."""

    episodes = 0


class Pupil(Plain):
    """Shows every tenth episode of its process: a trial has not as many."""

    def extra(self):
        return float(Curriculum.episodes // 10)

    def step(self, action):
        *outcome, terminated, truncated, info = super().step(action)
        Curriculum.episodes += bool(terminated)
        return *outcome, terminated, truncated, info


class Forking(Plain):
    """Forks, and the child comes back from the step."""

    def step(self, action):
        if os.fork() == 0:
            raise OSError("exec failed in the child")
        os.wait()
        return super().step(action)
