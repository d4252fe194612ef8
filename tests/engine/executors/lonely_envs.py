"""Envs that do not bear another one in their process, each in its own way."""

import os
import signal

import gymnasium
import numpy as np
from gymnasium.spaces import Box, Discrete


class Walk(gymnasium.Env):
    """Fine beside anybody; the others are like it."""

    observation_space = Box(-np.inf, np.inf, (1,), np.float64)
    action_space = Discrete(2)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.at = float(self.np_random.random())
        return self.seen(), {}

    def step(self, action):
        self.at += float(action)
        return self.seen(), 1.0, False, False, {}

    def seen(self):
        return np.array([self.at])


class Lonely(Walk):
    """There is one simulator in a process, and the first env has it."""

    owner = None

    def __init__(self):
        if Lonely.owner is None:
            Lonely.owner = self

    def reset(self, **arguments):
        if Lonely.owner is not self:
            raise RuntimeError("getJointState failed.")
        return super().reset(**arguments)

    def close(self):
        if Lonely.owner is self:
            Lonely.owner = None


class Untidy(Lonely):
    """The second one complains when it is closed, and when it is collected."""

    is_open = True

    def close(self):
        if self.is_open and Lonely.owner is not self:
            raise RuntimeError("not connected")
        self.is_open = False
        super().close()

    def __del__(self):
        self.close()


class Hopeless(Walk):
    """The same error, and not for that reason."""

    def reset(self, **arguments):
        raise RuntimeError("getJointState failed.")


class Particular(Walk):
    """Must not be reset before its episode is over, as with SB3's Monitor."""

    steps = 20

    def reset(self, **arguments):
        if self.steps < 20:
            raise RuntimeError("reset before the episode was over")
        self.steps = 0
        return super().reset(**arguments)

    def step(self, action):
        self.steps += 1
        obs, reward, _, _, info = super().step(action)
        return obs, reward, self.steps == 20, False, info


class Entangled(Walk):
    """All envs of a process share one place, and nobody is told."""

    places = {"at": 0.0}  # noqa: RUF012

    @property
    def at(self):
        return self.places["at"]

    @at.setter
    def at(self, value):
        self.places["at"] = value


class GlobalDice(Walk):
    """Draws from numpy's global generator, seeded in every reset."""

    def reset(self, *, seed=None, options=None):
        np.random.seed(seed)
        return super().reset(seed=seed)

    def step(self, action):
        self.at += np.random.random()
        return super().step(action)


class Declared(Walk):
    """Says so itself."""

    metadata = {"corral.isolation": "slot"}  # noqa: RUF012
    made = 0

    def __init__(self):
        Declared.made += 1
        assert Declared.made == 1, "another one was made in this process"

    def close(self):
        Declared.made -= 1


class Stubborn(Entangled):
    """Says that it bears company, though it does not."""

    metadata = {"corral.isolation": "shared"}  # noqa: RUF012


class Rude(Walk):
    """After three steps it fails where any other has stepped."""

    walked = set()  # noqa: RUF012

    def step(self, action):
        if self.at > 3.0 and self.walked - {self}:
            raise RuntimeError("stepSimulation failed.")
        self.walked.add(self)
        return super().step(action)


class RudeLater(Walk):
    """The same when its next episode begins."""

    walked = set()  # noqa: RUF012

    def reset(self, **arguments):
        if self.walked - {self}:
            raise RuntimeError("resetSimulation failed.")
        return super().reset(**arguments)

    def step(self, action):
        self.walked.add(self)
        return super().step(action)


class MoodyAtFirst(Walk):
    """Now and then it cannot be built.

    Args:
        marks: a folder with a file for every one.
        failing: which of them, in the order of being built.
    """

    def __init__(self, marks, failing):
        number = len(list(marks.iterdir()))
        (marks / str(number)).touch()
        if number in failing:
            raise OSError("address already in use")


class Deadly(Walk):
    """A second one that walks takes the process down."""

    walked = set()  # noqa: RUF012
    signal = signal.SIGKILL

    def step(self, action):
        self.walked.add(self)
        if len(self.walked) > 1:
            os.kill(os.getpid(), self.signal)
        return super().step(action)


class Crashing(Deadly):
    """The same, as native code does it."""

    signal = signal.SIGSEGV
