"""Envs that fail beside another one in their process, or for other reasons."""

import os
import time

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


class Rude(Walk):
    """After three steps it fails where any other has stepped."""

    walked = set()  # noqa: RUF012

    def step(self, action):
        if self.at > 3.0 and self.walked - {self}:
            raise RuntimeError("stepSimulation failed.")
        self.walked.add(self)
        return super().step(action)


class Collecting(Walk):
    """The same, with a list of those that have stepped.

    Args:
        walked: the list, of their ids.
    """

    def __init__(self, walked):
        self.walked = walked

    def step(self, action):
        self.walked.append(id(self))
        if self.at > 3.0 and len({*self.walked}) > 1:
            raise RuntimeError("stepSimulation failed.")
        return super().step(action)


class Stuck(Rude):
    """The same; its steps hang while there is a file.

    Args:
        mark: the file.
    """

    def __init__(self, mark):
        self.mark = mark

    def step(self, action):
        while self.mark.exists():
            time.sleep(0.01)
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


class LastReset(Walk):
    """Fails in its third step, unless it is the one that was reset last."""

    owner = None

    def reset(self, **arguments):
        LastReset.owner = self
        return super().reset(**arguments)

    def step(self, action):
        if self.at > 2.0 and LastReset.owner is not self:
            raise RuntimeError("stepSimulation failed.")
        return super().step(action)


class Unlucky(Walk):
    """Some of the numbers that all envs of a process draw in turn are bad ones."""

    dice = np.random.default_rng(0)

    def step(self, action):
        if self.dice.random() < 0.02:
            raise RuntimeError("stepSimulation failed.")
        return super().step(action)


class Moody(Walk):
    """Its first reset anywhere fails, and no other: it has nothing to do with others.

    Args:
        mark: a file that is there once it has failed.
    """

    def __init__(self, mark):
        self.mark = mark

    def reset(self, **arguments):
        if not self.mark.exists():
            self.mark.touch()
            raise RuntimeError("getJointState failed.")
        return super().reset(**arguments)


class MoodySteps(Walk):
    """Fails in its third step, if nobody has failed yet.

    Args:
        mark: a file that is there once it has failed.
    """

    def __init__(self, mark):
        self.mark = mark

    def step(self, action):
        if self.at > 2.0 and not self.mark.exists():
            self.mark.touch()
            raise RuntimeError("stepSimulation failed.")
        return super().step(action)


class MoodyProcesses(Walk):
    """Fails in its third step, but in the second process that has any, and the third.

    Args:
        marks: a folder with a file for every process.
    """

    def __init__(self, marks):
        mark = marks / str(os.getpid())
        if not mark.exists():
            mark.write_text(str(len(list(marks.iterdir()))))
        self.number = int(mark.read_text())

    def step(self, action):
        if self.at > 2.0 and self.number not in (1, 2):
            raise RuntimeError("stepSimulation failed.")
        return super().step(action)


class AlwaysFails(Walk):
    """Fails wherever it is."""

    def step(self, action):
        raise RuntimeError("stepSimulation failed.")


class BuiltFirst(Walk):
    """Cannot be built beside another one."""

    count = 0

    def __init__(self):
        if BuiltFirst.count:
            raise RuntimeError("there is one already")
        BuiltFirst.count += 1

    def close(self):
        BuiltFirst.count -= 1


class Crashing(Walk):
    """A second one that walks crashes the process."""

    walked = set()  # noqa: RUF012

    def step(self, action):
        self.walked.add(self)
        if len(self.walked) > 1:
            os.abort()
        return super().step(action)


class Leaves(Walk):
    """One that does not leave anything fails where another one has.

    Args:
        leaves: which of both it is.
    """

    left = False

    def __init__(self, leaves):
        self.leaves = leaves

    def step(self, action):
        if Leaves.left and not self.leaves:
            raise RuntimeError("something lies in the way")
        Leaves.left = Leaves.left or self.leaves
        return super().step(action)


class Told(Rude):
    """Has an argument that takes much room."""

    def __init__(self, text):
        self.text = text
